"""Live brokers for tests: on free ports of this machine, within this process or in processes of their own that can be killed."""

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from overweave.drivers.tcp.client import Client
from overweave.drivers.tcp.limits import raise_descriptor_limit as raise_descriptor_limit
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.processes import READY, stop_with_parent
from overweave.drivers.tcp.serve import serve
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.tcp.uplink import Uplink
from overweave.drivers.tcp.warm import warm_up
from overweave.overlay.graph import Overlay

#: How long a broker may take to start; the first one of all compiles.
START_S = 120.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def network_settings(overlay: Overlay, scheme: str = "tcp", host: str = "127.0.0.1", **changes: Any) -> dict[str, BrokerSettings]:
    """The settings of all brokers of an overlay, each on a free port.

    >>> settings = network_settings(Overlay(["B1", "B2"], [("B1", "B2")]), routing="simple")
    >>> settings["B1"].urls["B2"] == settings["B2"].listen, settings["B2"].routing
    (True, 'simple')
    """
    urls = {id: f"{scheme}://{host}:{port}" for id, port in zip(overlay.ids, free_ports(len(overlay.ids)), strict=True)}
    return {id: BrokerSettings(id=id, listen=urls[id], overlay=overlay, urls=urls, **changes) for id in overlay.ids}


async def until(condition: Callable[[], bool], within_s: float = 20.0, what: str = "the condition") -> None:
    """Wait until something holds; an AssertionError when it takes too long."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"{what} does not hold after {within_s:g} s"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(settings: dict[str, BrokerSettings]) -> AsyncIterator[dict[str, BrokerNode]]:
    """The brokers within this process, from when all are healthy until the body ends."""
    nodes: dict[str, BrokerNode] = {}
    try:
        for id, each in settings.items():
            nodes[id] = BrokerNode(each)
            await nodes[id].start()
        await until(
            lambda: all(node.health_problem() is node.degradation() is None for node in nodes.values()),
            what="that all brokers are healthy",
        )
        yield nodes
    finally:
        for node in nodes.values():
            await node.stop()


def joining_settings(settings: dict[str, BrokerSettings], id: str, contact: str, **changes: Any) -> BrokerSettings:
    """The settings of a broker that joins a network which does not know it, at one of its brokers."""
    (port,) = free_ports(1)
    url, base = f"tcp://127.0.0.1:{port}", settings[contact]
    about = {"id": id, "listen": url, "urls": {**base.urls, id: url}, "overlay": Overlay([id]), "join": base.listen}
    return msgspec.structs.replace(base, **{**about, **changes})


@contextlib.asynccontextmanager
async def joined(settings: BrokerSettings) -> AsyncIterator[BrokerNode]:
    """A broker within this process, from when it has joined its network until the body ends."""
    node = BrokerNode(settings)
    await node.start()
    try:
        await until(lambda: bool(node.core.established_neighbours()), what="that it has joined")
        yield node
    finally:
        await node.stop()


class BrokerProcess:
    """A broker in a process of its own, which may be killed and started again."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        #: What all its lives said on their standard error.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.settings.listen

    def launch(self) -> None:
        """Start the process, without waiting for it."""
        command = [sys.executable, "-m", "overweave.testing.live"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True)
        assert self._process.stdin is not None
        pickle.dump(self.settings, self._process.stdin)
        self._process.stdin.flush()

    def wait_ready(self) -> None:
        """Wait until it listens."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip() == READY, f"{self.settings.id} did not start: {self.errors()[-2000:]}"

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._collect()

    def signal(self, number: int) -> None:
        """Send it a signal, as SIGSTOP and SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to stop, and wait for it."""
        if self._process is not None:
            self._process.terminate()
            self._collect()
        self._errors.close()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def memory_bytes(self) -> int:
        """What it holds in memory now."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        assert self._process is not None
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    def errors(self) -> str:
        """What it has said on its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _collect(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


@contextlib.contextmanager
def processes(settings: dict[str, BrokerSettings]) -> Iterator[dict[str, BrokerProcess]]:
    """The brokers in processes of their own, from when all listen until the body ends."""
    brokers = {id: BrokerProcess(each) for id, each in settings.items()}
    try:
        for broker in brokers.values():
            broker.launch()
        for broker in brokers.values():
            broker.wait_ready()
        yield brokers
    finally:
        for broker in brokers.values():
            broker.stop()


def with_changes(settings: dict[str, BrokerSettings], **changes: Any) -> dict[str, BrokerSettings]:
    """The same brokers with some settings changed."""
    return {id: msgspec.structs.replace(each, **changes) for id, each in settings.items()}


def main() -> None:
    """Be the broker whose settings come in on standard input, until that ends."""
    settings = pickle.load(sys.stdin.buffer)
    stop_with_parent(sys.stdin.fileno())
    raise_descriptor_limit()
    warm_up()
    asyncio.run(serve(settings, lambda: print(READY.decode(), flush=True)))


if __name__ == "__main__":
    main()


def uplink_of(client: Client) -> Uplink:
    """The uplink of a client, to break it."""
    return client.attachments[0].uplink
