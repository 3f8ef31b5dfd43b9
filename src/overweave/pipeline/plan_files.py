"""Plans in files: ``plan.json``, and placements and changes as Parquet beside it where clients are too many for JSON."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from overweave.errors import InvalidInput, PlanningError
from overweave.overlay.parts import link_ends
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.plan_brokers import read_offer
from overweave.planning.consistent import check_consistent
from overweave.planning.plan import Change, Plan
from overweave.planning.planned_for import PlannedFor, capacities, check_network

#: More clients than this are written as Parquet.
CLIENTS_MAX = 100_000
_KINDS = ("clients", "subscribers", "publishers")
_SCHEMA = pa.schema([("kind", pa.string()), ("id", pa.string()), ("broker", pa.string())])
_CHANGES = pa.schema([(name, pa.string()) for name in Change.__struct_fields__])


def check_out(out: LocationLike) -> None:
    """Raise an error if the target of a plan is a directory or a device."""
    path = Location.of(out)
    if path.is_remote:
        return
    there = Path(path.path)
    if there.exists() and not there.is_file():
        raise InvalidInput(f"--out: {path}: expected a file, found {'a directory' if there.is_dir() else 'a device'}")


def write_plan(plan: Plan, out: LocationLike) -> list[Location]:
    """Write a plan; answers with the files, the plan itself last, which is there when all is complete."""
    check_out(out)
    path, written = Location.of(out), []
    if len(plan.clients) > CLIENTS_MAX:
        stem = path.name.removesuffix(path.suffix)
        beside, changes = (path.parent / f"{stem}.{name}.parquet" for name in ("placements", "changes"))
        rows = [(kind, id, broker) for kind in _KINDS for id, broker in getattr(plan, kind).items()]
        _put_rows(beside, rows, _SCHEMA)
        _put_rows(changes, [msgspec.structs.astuple(change) for change in plan.changes], _CHANGES)
        plan = msgspec.structs.replace(
            plan, clients={}, subscribers={}, publishers={}, placements=beside.name, changes=(), changes_file=changes.name
        )
        written += [beside, changes]
    path.write_bytes(plan.encode())
    return [*written, path]


def read_plan(file: LocationLike) -> Plan:
    """The plan of a file, with its placements wherever they are; one that does not agree with itself is refused."""
    path = Location.of(file)
    plan = _read_plan(path)
    try:
        check_consistent(plan)
    except PlanningError as error:
        raise InvalidInput(f"{path}: {error}") from None
    return plan


def _read_plan(path: Location) -> Plan:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: expected a plan, found: {(error.strerror or str(error)).lower()}") from None
    try:
        plan = Plan.decode(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if plan.changes_file is not None:
        plan = msgspec.structs.replace(plan, changes=_read_changes(path, plan.changes_file), changes_file=None)
    if plan.placements is None:
        return plan
    beside = path.parent / Path(plan.placements).name
    try:
        with beside.fetched() as fetched:
            rows = pq.read_table(fetched).to_pydict()
        placed: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS}
        for kind, id, broker in zip(rows["kind"], rows["id"], rows["broker"], strict=True):
            placed[kind][id] = broker
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InvalidInput(f"{beside}: expected the placements of {path.name}, found: {error}") from None
    return msgspec.structs.replace(plan, **placed, placements=None)


def check_plan(path: LocationLike, network: Path | None, brokers: LocationLike | None) -> None:
    """Refuse the plan of a file that was made for another network than that of ``network``, or of a table ``brokers``."""
    plan = read_plan(path)
    found = read_offer(network, brokers)
    if found is None:
        return
    links = tuple(sorted(link_ends(*link) for link in found.links))
    if network is None and plan.network is not None:
        links = plan.network.links
    now = PlannedFor(brokers=capacities(found.pool), links=links, by_table=brokers is not None)
    source = str(network if network is not None else brokers)
    try:
        check_network(plan.fingerprint, plan.network, now, list(plan.publishers), list(plan.clients), source)
    except PlanningError as error:
        raise InvalidInput(f"{path}: {error}") from None


def _read_changes(path: Location, name: str) -> tuple[Change, ...]:
    beside = path.parent / Path(name).name
    try:
        with beside.fetched() as fetched:
            rows = pq.read_table(fetched).to_pydict()
        return tuple(Change(*row) for row in zip(*(rows[column] for column in _CHANGES.names), strict=True))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InvalidInput(f"{beside}: expected the changes of {path.name}, found: {error}") from None


def _put_rows(path: Location, rows: Sequence[Sequence[str | None]], schema: pa.Schema) -> None:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)] if rows else [[] for _ in schema]
    with tempfile.NamedTemporaryFile() as file:
        pq.write_table(pa.table(columns, schema=schema), file.name, compression="zstd")
        path.put(Path(file.name))
