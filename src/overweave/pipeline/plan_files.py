"""Plans in files: ``plan.json``, and the placements as Parquet beside it where clients are too many for JSON."""

import tempfile
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from overweave.errors import InvalidInput, PlanningError
from overweave.overlay.parts import link_ends
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.planning import read_offer
from overweave.planning.plan import Plan
from overweave.planning.planned_for import PlannedFor, capacities, check_network

#: More clients than this are written as Parquet.
CLIENTS_MAX = 100_000
_KINDS = ("clients", "subscribers", "publishers")
_SCHEMA = pa.schema([("kind", pa.string()), ("id", pa.string()), ("broker", pa.string())])


def write_plan(plan: Plan, out: LocationLike) -> list[Location]:
    """Write a plan; answers with the files, the plan itself last, which is there when all is complete."""
    path, written = Location.of(out), []
    if len(plan.clients) > CLIENTS_MAX:
        beside = path.with_name(f"{path.name.removesuffix(path.suffix)}.placements.parquet")
        rows = [(kind, id, broker) for kind in _KINDS for id, broker in getattr(plan, kind).items()]
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        with tempfile.NamedTemporaryFile() as file:
            pq.write_table(pa.table(columns, schema=_SCHEMA), file.name, compression="zstd")
            beside.put(Path(file.name))
        plan = msgspec.structs.replace(plan, clients={}, subscribers={}, publishers={}, placements=beside.name)
        written.append(beside)
    path.write_bytes(plan.encode())
    return [*written, path]


def read_plan(file: LocationLike) -> Plan:
    """The plan of a file, with its placements wherever they are."""
    path = Location.of(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: expected a plan, found: {(error.strerror or str(error)).lower()}") from None
    try:
        plan = Plan.decode(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if plan.placements is None:
        return plan
    beside = path.with_name(Path(plan.placements).name)
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
