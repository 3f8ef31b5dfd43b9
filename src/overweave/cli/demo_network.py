"""The live part of ``overweave demo``: a network run by ``overweave up``, and its clients in another process."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from overweave.cli.demo_children import Child, child
from overweave.cli.demo_messages import Begin, Begun, MarketConfig, Opened, Reply, Request, Span, Spans, Status, Stop
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.drivers.tcp.supervisor_protocol import SupervisorError, socket_path
from overweave.errors import OverweaveError
from overweave.overlay.shapes import make_overlay

#: The neighbours of a broker of the first overlay, at most.
DEGREE = 4
#: How long brokers may take to stop.
_STOP_S = 30.0
#: How long nothing may arrive from the clients: they report several times in a second.
_SILENCE_S = 120.0
_POLL_S = 0.5
_R = TypeVar("_R")
#: Timeouts for a machine that has other things to do: a client that waits for the processor is not a slow consumer.
_PATIENT = """
[brokers]
ping_interval_s = 20
stall_timeout_s = 10
slow_consumer_timeout_s = 120
session_expiry_s = 120
"""


def write_network(directory: Path, run: str, brokers: int, bandwidth_bytes_per_s: float) -> Path:
    """Write a network file with free ports, traces and the output bandwidth of brokers."""
    overlay = make_overlay("balanced", brokers=brokers, degree=DEGREE)
    lines = ["[network]", 'routing = "filter"', 'trace = "traces"', "trace_every_s = 2", f'run = "{run}"', _PATIENT.rstrip()]
    for id, port in zip(overlay.ids, free_ports(brokers), strict=True):
        lines += ["", "[[broker]]", f'id = "{id}"', f'listen = "tcp://127.0.0.1:{port}"']
        lines.append(f"output_bandwidth_bytes_per_s = {bandwidth_bytes_per_s:.0f}  # a limit for plans; traffic is not throttled")
    for link in overlay.links:
        lines += ["", "[[link]]", 'between = ["{}", "{}"]'.format(*link.ends)]
    file = directory / "network.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


@contextlib.contextmanager
def running_network(file: Path, brokers: int, show: Callable[[str], None]) -> Iterator[Child]:
    """The brokers of a network file under ``overweave up`` during the body; all of them are ready."""
    try:
        # SIGINT, which ``up`` hears while it starts, too.
        arguments = ["up", str(file), "--json", "--until-eof"]
        with child("overweave up", "overweave", arguments, signal.SIGINT, _STOP_S) as up:
            while up.line(_POLL_S) is None:
                show(f"{_ready(file)} of {brokers} are ready")
            yield up
    finally:
        # Nobody else runs this network, whose ports are gone.
        socket_path(file).with_suffix(".lock").unlink(missing_ok=True)


def _ready(file: Path) -> int:
    try:
        return sum(each.state == "ready" for each in asyncio.run(SupervisorClient(file).list()))
    except SupervisorError:
        return 0


class MarketProcess:
    """The process of all clients."""

    def __init__(self, process: Child, network: Child) -> None:
        self._process, self._network = process, network
        self.status = Status(0, 0, 0)

    def begin(self, span: str, show: Callable[[str], None]) -> Begun:
        """Begin a span, with the first one the traffic; the span before."""
        self._send(Begin(span))
        return self._await(Begun, show)

    def wait_open(self, show: Callable[[str], None]) -> None:
        """Wait until all clients are connected, and their filters and advertisements are in force."""
        self._await(Opened, show)

    def stop(self, show: Callable[[str], None]) -> tuple[Span, ...]:
        """End the traffic; all spans."""
        self._send(Stop())
        return self._await(Spans, show).spans

    def watch(self, time_s: float, show: Callable[[str], None]) -> None:
        """Show the progress for some time; an error if a process has ended."""
        end_s = time.monotonic() + time_s
        while (left_s := end_s - time.monotonic()) > 0:
            self._next(min(left_s, _POLL_S), show)

    def check(self) -> None:
        """Raise an error if a process has ended."""
        self._network.check()
        self._process.check()

    def _send(self, request: Request) -> None:
        self._process.send(msgspec.json.encode(request))

    def _await(self, kind: type[_R], show: Callable[[str], None]) -> _R:
        silent_s = time.monotonic()
        while time.monotonic() - silent_s < _SILENCE_S:
            reply = self._next(_POLL_S, show)
            if isinstance(reply, kind):
                return reply
            if reply is not None:
                silent_s = time.monotonic()
        raise OverweaveError(f"clients: no answer within {_SILENCE_S:g} s")

    def _next(self, limit_s: float, show: Callable[[str], None]) -> Reply | None:
        self._network.check()
        line = self._process.line(limit_s)
        if line is None:
            return None
        reply: Reply = msgspec.json.decode(line, type=Reply)
        if isinstance(reply, Status):
            self.status = reply
            show(f"{reply.clients:,} clients, {reply.publications:,} publications, {reply.deliveries:,} deliveries")
        return reply


@contextlib.contextmanager
def market_process(config: MarketConfig, network: Child) -> Iterator[MarketProcess]:
    """The clients during the body; they may still be connecting."""
    with child("clients", "overweave.cli.demo_market", [], signal.SIGTERM, _STOP_S) as process:
        process.send(msgspec.json.encode(config))
        yield MarketProcess(process, network)
