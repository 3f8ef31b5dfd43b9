"""The brokers of a live network as commands: ``overweave up``, or one ``overweave broker`` each, which may be killed."""

import asyncio
import contextlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.processes import ChildProcess
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.errors import OverweaveError

#: The time limit for all brokers to be up; the first one of all compiles.
_START_S = 180.0
_STARTED = re.compile(r"start broker (\S+), unless it runs: overweave broker .* --join (\S+)$")
_LEFT = re.compile(r"broker (\S+) has left the overlay: stop it$")


def write_network_file(
    directory: Path, count: int, bandwidth_bytes_per_s: float, expiry_s: float, *, buffers: bool = True
) -> Path:
    """A network file of a balanced tree of brokers on free ports, with journals and metrics.

    Unless it ``buffers``, publications are settled only when clients have them. What a broker buffers for a stalled client is
    settled, and dropped if the client unsubscribes before it goes on (docs/guarantees.md).
    """
    lines = ["[network]", 'state = "state"', f"metrics_port = {_metrics_port(count)}", "[brokers]"]
    # All processes share this machine: when many brokers start, a client may stand still for longer than a slow consumer may.
    lines += [f"session_expiry_s = {expiry_s:g}", "slow_consumer_timeout_s = 60", *([] if buffers else ["stall_timeout_s = 0"])]
    for number, port in enumerate(free_ports(count), 1):
        lines += ["[[broker]]", f'id = "B{number}"', f'listen = "tcp://127.0.0.1:{port}"']
        lines.append(f"output_bandwidth_bytes_per_s = {bandwidth_bytes_per_s:.0f}")
    for number in range(2, count + 1):
        lines += ["[[link]]", f'between = ["B{number // 2}", "B{number}"]']
    file = directory / "network.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _metrics_port(count: int) -> int:
    """A port with a number of free ones behind it."""
    for base in random.sample(range(21_000, 32_000, 50), 200):  # another run looks for one too
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(base + 1, base + count + 1):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return base
    raise OverweaveError("no free ports for metrics")


class UpBrokers:
    """All brokers as children of ``overweave up``."""

    def __init__(self, file: Path) -> None:
        self._file, self._log = file, file.with_name("up.log")
        self._up: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the command, and wait until all brokers are up."""
        ready, end_s = self._file.with_name("ready"), time.monotonic() + _START_S
        command = [sys.executable, "-m", "overweave", "up", str(self._file), "--ready-file", str(ready)]
        with self._log.open("wb") as log:
            self._up = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=log)
        while not ready.exists():
            if self._up.returncode is not None or time.monotonic() > end_s:
                raise OverweaveError(f"the brokers are not up: {self.log()[-2000:]}")
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """End the command."""
        if self._up is not None and self._up.returncode is None:
            self._up.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._up.wait(), 60.0)

    async def running(self) -> list[str]:
        """The brokers that run."""
        return [each.broker for each in await SupervisorClient(self._file).list()]

    def on_line(self, line: str) -> None:
        """Nothing that `apply` says is for the operator here."""

    def ended(self) -> list[str]:
        """What has ended by itself."""
        code = None if self._up is None else self._up.returncode
        return [] if code is None else [f"'overweave up' ended with status {code}: {self.log()[-500:]}"]

    def log(self) -> str:
        """What the brokers said."""
        return self._log.read_text(errors="replace")


class SingleBrokers:
    """Each broker a command of its own, started and stopped as `apply` tells the operator."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._children: dict[str, ChildProcess] = {}
        self._lines: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[str] = []

    async def start(self) -> None:
        """Start all brokers of the overlay."""
        ids = read_network(self._file).overlay.ids
        await self._launch(ids[0], None)  # the first one of all compiles
        await asyncio.gather(*(self._launch(id, None) for id in ids[1:]))

    async def stop(self) -> None:
        """End all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(self._end, list(self._children)))

    async def running(self) -> list[str]:
        """The brokers that run."""
        return [id for id, child in self._children.items() if not child.exited.done()]

    def on_line(self, line: str) -> None:
        """Start and stop brokers as `apply` asks for it."""
        if found := _STARTED.search(line):
            self._spawn(found[1], found[2])
        elif found := _LEFT.search(line):
            self._task(self._end(found[1]))

    async def kill(self, broker: str, away_s: float) -> None:
        """Kill a broker as a crash would, and start it again after a while, unless it is to stop permanently meanwhile."""
        child = self._children.get(broker)
        if child is None:
            return
        child.is_stopping = True
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        await child.exited
        await asyncio.sleep(away_s)
        if self._children.get(broker) is child:
            await self._launch(broker, self._contact(broker))

    def ended(self) -> list[str]:
        """What has ended by itself."""
        ended = [id for id, child in self._children.items() if child.exited.done() and not child.is_stopping]
        failed = [str(task.exception()) for task in self._tasks if task.done() and not task.cancelled() and task.exception()]
        return [*(f"broker {id} has ended: {self.log()[-500:]}" for id in ended), *failed]

    def log(self) -> str:
        """What the brokers said."""
        return "\n".join(self._lines)

    def _contact(self, broker: str) -> str | None:
        """Where a broker joins that the file does not have in the overlay."""
        network = read_network(self._file)
        if broker in network.overlay:
            return None
        return next(url for id, url in network.running_urls.items() if id in self._children)

    def _spawn(self, broker: str, contact: str) -> None:
        child = self._children.get(broker)
        if child is None or child.exited.done():
            self._task(self._launch(broker, contact))

    async def _launch(self, broker: str, join: str | None) -> None:
        command = [sys.executable, "-m", "overweave", "broker", "--config", str(self._file), "--id", broker, "--until-eof"]
        command += [] if join is None else ["--join", join]
        child = self._children[broker] = await ChildProcess.start(
            broker, command, lambda name, line: self._lines.append(f"{name}: {line}")
        )
        ready: asyncio.Future[Any] = asyncio.ensure_future(child.ready.wait())
        await asyncio.wait([ready, child.exited], timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not child.ready.is_set() and not child.is_stopping:
            raise child.error if child.exited.done() else OverweaveError(f"broker {broker} is not ready")

    async def _end(self, broker: str) -> None:
        child = self._children.pop(broker)
        child.is_stopping = True
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGTERM)
        await asyncio.wait([child.exited], timeout=30.0)
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()
        await child.exited

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(work))


Brokers = UpBrokers | SingleBrokers


def mistakes(log: str) -> list[str]:
    """The errors that brokers have logged."""
    found: Mapping[str, int] = {each: log.find(each) for each in ("Traceback", "AssertionError", "never retrieved")}
    at = min((at for at in found.values() if at >= 0), default=-1)
    return [] if at < 0 else [log[max(at - 300, 0) : at + 2500]]
