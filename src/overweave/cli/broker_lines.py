"""The table of brokers of ``status`` and ``top``, from snapshots over HTTP."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from overweave.cli.output import put
from overweave.drivers.tcp.logs import printable
from overweave.drivers.tcp.monitor import ANSWER_S_MAX, MonitorError, Snapshot, fetch_snapshot, host_and_port
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, Group

File = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Network file in TOML, with metrics_port.", show_default=False)
]
Addresses = Annotated[
    list[str] | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Instead of FILE: metrics address of a broker; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Write a JSON list with one object per broker.")]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One broker. Numbers are None if it is unreachable, rates also without an earlier snapshot."""

    broker: str
    address: str | None
    #: up, degraded, unhealthy or unreachable; ``reason`` explains the last three.
    state: str
    reason: str | None = None
    uptime_s: float | None = None
    publications_in_per_s: float | None = None
    publications_out_per_s: float | None = None
    publications_to_clients_per_s: float | None = None
    publications_in: int | None = None
    publications_out: int | None = None
    publications_to_clients: int | None = None
    #: The former names of the two figures to clients, for one more release.
    deliveries_per_s: float | None = None
    deliveries: int | None = None
    subscriptions: int | None = None
    unsettled: int | None = None
    unadvertised: int | None = None
    #: The state of each module, by name.
    modules: dict[str, dict[str, Any]] = {}
    #: The clients that are moving away, and where to.
    migrations: dict[str, str] = {}
    migrations_completed: int | None = None
    migrations_failed: int | None = None


#: By broker, its snapshot or the reason why there is none.
Snapshots = Mapping[str, Snapshot | str]


def addresses_of(file: Path | None, metrics: Sequence[str] | None) -> dict[str, str | None]:
    """Metrics addresses by broker; a broker given by address has the address as its name."""
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
        raise InvalidInput(f"{file}: network.metrics_port: expected a port, found none")
    return addresses


async def fetch_snapshots(addresses: Mapping[str, str | None]) -> Snapshots:
    """Snapshots of all brokers, fetched concurrently."""
    found = await asyncio.gather(*(_fetch(name, address) for name, address in addresses.items()))
    return dict(zip(addresses, found, strict=True))


async def _fetch(name: str, address: str | None) -> Snapshot | str:
    if address is None:
        return "no metrics address"
    try:
        snapshot = await fetch_snapshot(address, ANSWER_S_MAX)
    except MonitorError as error:
        return str(error)
    return snapshot if name in (address, snapshot.broker) else f"broker {printable(snapshot.broker)} answers there"


def lines_of(addresses: Mapping[str, str | None], now: Snapshots, before: Snapshots | None = None) -> list[Line]:
    """One line per broker; rates are since ``before``, or since the start of the broker."""
    return [_line(name, address, now[name], None if before is None else before[name]) for name, address in addresses.items()]


def _line(name: str, address: str | None, now: Snapshot | str, before: Snapshot | str | None) -> Line:
    if isinstance(now, str):
        return Line(broker=name, address=address, state="unreachable", reason=now)
    done = now.statistics
    to_clients_per_s = _rate("publications_to_clients", now, before)
    return Line(
        broker=now.broker,
        address=address,
        state="unhealthy" if not now.healthy else "degraded" if now.degraded else "up",
        reason=now.reason,
        uptime_s=now.uptime_s,
        publications_in_per_s=_rate("publications_in", now, before),
        publications_out_per_s=_rate("publications_out", now, before),
        publications_to_clients_per_s=to_clients_per_s,
        publications_in=done.publications_in,
        publications_out=done.publications_out,
        publications_to_clients=done.publications_to_clients,
        deliveries_per_s=to_clients_per_s,
        deliveries=done.publications_to_clients,
        subscriptions=done.tables.get("subscriptions", 0),
        unsettled=sum(done.unsettled.values()),
        unadvertised=done.unadvertised,
        modules=now.modules,
        migrations=now.migrations,
        migrations_completed=done.migrations_completed,
        migrations_failed=done.migrations_failed,
    )


def _rate(name: str, now: Snapshot, before: Snapshot | str | None) -> float | None:
    """A rate by the clock of the broker; None after an outage or a restart."""
    if isinstance(before, str):
        return None
    passed_s = now.uptime_s - (before.uptime_s if before else 0.0)
    grown: int = getattr(now.statistics, name) - (getattr(before.statistics, name) if before else 0)
    return grown / passed_s if passed_s > 0 and grown >= 0 else None


def put_json(lines: Sequence[Line]) -> None:
    """Write the lines as one JSON document to stdout."""
    put(msgspec.json.format(msgspec.json.encode(lines), indent=2) + b"\n")


#: The working states and their colours.
WORKING = {"up": "green", "degraded": "yellow"}
_HEADINGS = ("in/s", "out/s", "in", "out", "to clients", "subscriptions", "unsettled")
_WIDTH_IN_PIPES = 200
#: The migrations of a broker that are shown by name.
_MIGRATIONS_NAMED = 5


def console() -> "Console":
    """The console for `view_of`; in a pipe lines are not cut."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDTH_IN_PIPES)


def view_of(lines: Sequence[Line]) -> "Group":
    """The table, with reasons, migrations and states of modules below it.

    Names are external input, so they are never parsed as markup.
    """
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
    reasons = [f"{printable(line.broker)}: {line.reason}" for line in lines if line.reason]
    modules = [_module_text(line.broker, name, status) for line in lines for name, status in line.modules.items() if status]
    migrations = [text for line in lines if (text := _migration_text(line))]
    return Group(table, *map(Text, (*reasons, *migrations, *modules)))


def _migration_text(line: Line) -> str:
    """The migrations of a broker; nothing if there were none."""
    if not (line.migrations or line.migrations_completed or line.migrations_failed):
        return ""
    counts = f"{line.migrations_completed or 0:,} completed, {line.migrations_failed or 0:,} failed"
    text = f"{line.broker} migrations: {len(line.migrations):,} in progress, {counts}"
    named = [f"{client} to {to}" for client, to in list(line.migrations.items())[:_MIGRATIONS_NAMED]]
    more = ["…"] if len(line.migrations) > len(named) else []
    return printable(f"{text}: {', '.join([*named, *more])}" if named else text, _WIDTH_IN_PIPES)


def _module_text(broker: str, module: str, status: Mapping[str, object]) -> str:
    values = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in status.items())
    return printable(f"{broker} {module}: {values}", _WIDTH_IN_PIPES)
