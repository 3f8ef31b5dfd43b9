"""``overweave drain``: moves all clients of a broker to others, so that it can be stopped."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from overweave.cli import INTERRUPTED
from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import NetworkArgument, Operators, Target, target_of, unreachable_text
from overweave.cli.output import put
from overweave.cli.terminal import is_watched, progress, say
from overweave.drivers.drain import Drain
from overweave.errors import InvalidInput, OverweaveError

EXAMPLE = "overweave drain B2 examples/network.toml"

RATE_HZ = 50.0
#: The interval between two lines about the progress where no terminal shows it.
_REPORT_S = 5.0


def drain(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Id of the broker to drain.", show_default=False)],
    network: NetworkArgument,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="BROKER", help="Broker that may get clients (default: all others); may be repeated."),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Clients to move per second.")] = RATE_HZ,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
) -> int:
    """Move all clients of a broker away, then report that the broker can be stopped.

    Clients are spread over the other brokers so that these get equal numbers of clients. A client whose migration fails gets a
    second attempt. If clients stay, they are listed with the reasons, and the exit status is 1. Ctrl-C orders no more
    migrations; those in progress complete. Where brokers have tokens, --name and --token need the permission control.
    """
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    target.check_broker("BROKER", broker)
    for each in to or ():
        target.check_broker("--to", each)
        if each == broker:
            raise InvalidInput(f"--to: expected another broker than {broker!r}, which is drained")
    run = _Run(target, broker, to or [each for each in target.network.overlay.ids if each != broker], rate)
    with _reports(broker) as report:
        try:
            is_empty = asyncio.run(run.drain(report))
        except KeyboardInterrupt:
            run.is_interrupted = True
            is_empty = False
    if json:
        put(msgspec.json.encode(run.summary(is_empty)) + b"\n")
    else:
        put(f"{run.text(is_empty)}\n".encode())
    return INTERRUPTED if run.is_interrupted else 0 if is_empty else 1


class _Run:
    """One drain, with its results even if it was interrupted."""

    def __init__(self, target: Target, broker: str, targets: Sequence[str], rate_hz: float) -> None:
        self._target, self._broker, self._targets, self._rate_hz = target, broker, targets, rate_hz
        self._drain: Drain | None = None
        self._start_s = time.monotonic()
        self.is_interrupted = False

    async def drain(self, report: Callable[[Drain], None]) -> bool:
        """Drain the broker; whether no client is left."""
        async with Operators(self._target, {self._broker: None, **dict.fromkeys(self._targets)}) as operators:
            port = operators.connected.get(self._broker)
            if port is None:
                raise OverweaveError(f"broker {self._broker} cannot be reached: {operators.unreachable[self._broker]}")
            others = {each: operators.connected[each] for each in self._targets if each in operators.connected}
            loads = {each: len(await operator.clients()) for each, operator in others.items()}
            if not loads:
                raise OverweaveError(f"no broker can take the clients of {self._broker}{unreachable_text(operators.unreachable)}")
            for each, reason in operators.unreachable.items():
                say(f"{each} gets no clients: {reason}")
            self._start_s = time.monotonic()
            self._drain = Drain(loads, self._rate_hz, report)
            return await self._drain.run(port)

    def summary(self, is_empty: bool) -> dict[str, object]:
        """The result for programs."""
        moved, stayed = ({}, {}) if self._drain is None else (self._drain.moved, self._drain.stayed)
        duration_s = time.monotonic() - self._start_s
        return {"broker": self._broker, "empty": is_empty, "moved": moved, "stayed": stayed, "duration_s": duration_s}

    def text(self, is_empty: bool) -> str:
        """The result for people."""
        if self._drain is None:
            return f"{self._broker}: nothing was moved"
        moved, stayed = self._drain.moved, self._drain.stayed
        spread = ", ".join(f"{broker} {count:,}" for broker, count in sorted(Counter(moved.values()).items()))
        duration_s = time.monotonic() - self._start_s
        text = f"{self._broker}: moved {len(moved):,} clients in {duration_s:.1f} s{f' ({spread})' if spread else ''}"
        if is_empty:
            return f"{text}; it can be stopped"
        if self.is_interrupted:
            left = len(self._drain.found) - len(moved)
            return f"{text}; interrupted, {left:,} clients left; migrations in progress will complete"
        lines = [f"{client}: {reason}" for client, reason in sorted(stayed.items())]
        return "\n".join([f"{text}; {len(stayed):,} stayed:", *lines])


@contextlib.contextmanager
def _reports(broker: str) -> Iterator[Callable[[Drain], None]]:
    """A report of progress: a bar on a terminal, else a line on stderr now and then."""
    with progress(f"draining {broker}", 1) as done:
        last_s = time.monotonic()

        def report(drain: Drain) -> None:
            nonlocal last_s
            if is_watched():
                done(len(drain.moved) / max(len(drain.found), 1))
            elif time.monotonic() - last_s >= _REPORT_S:
                last_s = time.monotonic()
                say(f"{broker}: moved {len(drain.moved):,} of {len(drain.found):,} clients")

        yield report
