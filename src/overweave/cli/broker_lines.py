"""What a broker says of itself over HTTP, as a line of a table: shared by ``status`` and ``top``."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.answers import put
from overweave.drivers.tcp.logs import printable
from overweave.drivers.tcp.monitor import ANSWER_S_MAX, MonitorError, Snapshot, ask, host_and_port
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, Group

File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A network in TOML, with metrics_port.", show_default=False)]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Instead of FILE: where a broker serves metrics; once for each."),
]
Json = Annotated[bool, typer.Option("--json", help="Write a JSON list with one object for each broker.")]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of one broker. Figures are None where it gave no answer; rates also where there is nothing to compare."""

    broker: str
    address: str | None
    #: up; or degraded, unhealthy (it says so itself) or unreachable, and then ``reason`` says why.
    state: str
    reason: str | None = None
    uptime_s: float | None = None
    publications_in_per_s: float | None = None
    publications_out_per_s: float | None = None
    publications_to_clients_per_s: float | None = None
    publications_in: int | None = None
    publications_out: int | None = None
    publications_to_clients: int | None = None
    subscriptions: int | None = None
    unsettled: int | None = None
    unadvertised: int | None = None


#: What one look found: the snapshot of a broker, or why there is none.
Sights = Mapping[str, Snapshot | str]


def addresses_of(file: Path | None, metrics: Sequence[str] | None) -> dict[str, str | None]:
    """Where the brokers serve their metrics, by name; those that were given by address are called so until they say more."""
    if (file is None) == (not metrics):
        raise InvalidInput("expected either a network's FILE or --metrics HOST:PORT")
    if file is None:
        for address in metrics or ():
            try:
                host_and_port(address)
            except InvalidInput as error:
                raise InvalidInput(f"--metrics: {error}") from None
        return {address: address for address in metrics or ()}
    network = read_network(file)
    addresses = {broker: network.settings(broker).metrics for broker in network.overlay.ids}
    if not any(addresses.values()):
        raise InvalidInput(f"{file}: network.metrics_port: expected a port, without which brokers cannot be asked, got none")
    return addresses


async def look(addresses: Mapping[str, str | None]) -> Sights:
    """Ask all at once."""
    found = await asyncio.gather(*(_asked(name, address) for name, address in addresses.items()))
    return dict(zip(addresses, found, strict=True))


async def _asked(name: str, address: str | None) -> Snapshot | str:
    if address is None:
        return "no metrics address"
    try:
        snapshot = await ask(address, ANSWER_S_MAX)
    except MonitorError as error:
        return str(error)
    return snapshot if name in (address, snapshot.broker) else f"broker {printable(snapshot.broker)} answers there"


def lines_of(addresses: Mapping[str, str | None], now: Sights, before: Sights | None = None) -> list[Line]:
    """A line for each; rates are since ``before``, or since the broker started where that is not given."""
    return [_line(name, address, now[name], None if before is None else before[name]) for name, address in addresses.items()]


def _line(name: str, address: str | None, now: Snapshot | str, before: Snapshot | str | None) -> Line:
    if isinstance(now, str):
        return Line(broker=name, address=address, state="unreachable", reason=now)
    done = now.statistics
    return Line(
        broker=now.broker,
        address=address,
        state="unhealthy" if not now.healthy else "degraded" if now.degraded else "up",
        reason=now.reason,
        uptime_s=now.uptime_s,
        publications_in_per_s=_rate("publications_in", now, before),
        publications_out_per_s=_rate("publications_out", now, before),
        publications_to_clients_per_s=_rate("publications_to_clients", now, before),
        publications_in=done.publications_in,
        publications_out=done.publications_out,
        publications_to_clients=done.publications_to_clients,
        subscriptions=done.tables.get("subscriptions", 0),
        unsettled=sum(done.unsettled.values()),
        unadvertised=done.unadvertised,
    )


def _rate(name: str, now: Snapshot, before: Snapshot | str | None) -> float | None:
    """Per second of the broker's own clock. A broker that was away, or started anew, has no rate yet."""
    if isinstance(before, str):
        return None
    passed_s = now.uptime_s - (before.uptime_s if before else 0.0)
    grown: int = getattr(now.statistics, name) - (getattr(before.statistics, name) if before else 0)
    return grown / passed_s if passed_s > 0 and grown >= 0 else None


def put_json(lines: Sequence[Line]) -> None:
    """The lines as one document on stdout."""
    put(msgspec.json.format(msgspec.json.encode(lines), indent=2) + b"\n")


#: States in which a broker does what is asked of it, with the colour of each.
WORKING = {"up": "green", "degraded": "yellow"}
_HEADINGS = ("in/s", "out/s", "in", "out", "to clients", "subscriptions", "unsettled")
_WIDTH_IN_PIPES = 200


def console() -> "Console":
    """Where `view_of` goes; in a pipe nothing is cut."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDTH_IN_PIPES)


def view_of(lines: Sequence[Line]) -> "Group":
    """The lines for people, and below them why some are missing. Names come from elsewhere, so nothing in them is markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("broker", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        rates = (line.publications_in_per_s, line.publications_out_per_s)
        sent = (line.publications_out, line.publications_to_clients)
        totals = (line.publications_in, *sent, line.subscriptions, line.unsettled)
        figures = ["–" if each is None else f"{each:,.0f}" for each in (*rates, *totals)]
        table.add_row(Text(printable(line.broker)), Text(line.state, WORKING.get(line.state, "red")), *figures)
    return Group(table, *(Text(f"{printable(line.broker)}: {line.reason}") for line in lines if line.reason))
