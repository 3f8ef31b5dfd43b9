"""From tables to a planning problem: brokers on offer, the profile of a trace or of a workload, and the network as it is.

A workload is profiled by the same steps as a trace (matches are its deliveries), so that both ways have one meaning. Profiles
are read on the driver: a vector is 160 bytes, so a million of them are as large as one task of Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.drivers.overlay_file import read_overlay
from overweave.errors import InvalidInput, ParseError
from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.pipeline.columns import check_once, positions, texts, words_of
from overweave.pipeline.index_file import build_index
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.schemas import EARLIER_NAMES
from overweave.pipeline.steps.match import matched
from overweave.pipeline.steps.profiles import BITS, profiled, windows_of
from overweave.pipeline.streaming.versions import current
from overweave.pipeline.tables import files_of, read_table, write_tables
from overweave.planning.box_tables import with_boxes
from overweave.planning.evidence import Evidence, evidence_of
from overweave.planning.problem import Goals, Pool, Problem, Publishers, Reals, TextSet, Whole, counted
from overweave.planning.profiles import Profiles, assemble

#: What makes a directory a profile, and a workload.
PROFILE_TABLES, WORKLOAD_TABLES = ("profiles", "publisher_profiles"), ("publishers", "subscriptions", "publications")
_WINDOW, _ENDS = "window_publications", ("first_sequence", "last_sequence")
_BROKER_COLUMNS = (
    "broker",
    "output_bandwidth_bytes_per_s",
    "matching_delay_base_s",
    "matching_delay_per_subscription_s",
)


@dataclass(frozen=True)
class Network:
    """The brokers on offer, and the links of today's network (none: nobody knows them)."""

    pool: Pool
    links: tuple[tuple[str, str], ...] = ()
    #: Where this was read, for errors.
    source: str = "brokers"
    #: Whether a table says what brokers can carry, and the brokers that are not there yet.
    by_table: bool = False
    added: tuple[str, ...] = ()

    def with_more(self, more: Pool) -> "Network":
        """With brokers that are not there yet."""
        bandwidth, base_s, slope_s, capacity = (
            np.concatenate(part) for part in zip(_columns(self.pool), _columns(more), strict=True)
        )
        known = self.pool.cost is not None or more.cost is not None
        cost = np.concatenate([self.pool.costs, more.costs]) if known else None
        pool = Pool(self.pool.ids + more.ids, bandwidth, base_s, slope_s, capacity, cost)
        return replace(self, pool=pool, added=self.added + more.ids)


def kind_of(source: LocationLike) -> str:
    """Whether a directory is a profile or a workload."""
    for kind, names in (("profile", PROFILE_TABLES), ("workload", WORKLOAD_TABLES)):
        if all(table_path(source, name) is not None for name in names):
            return kind
    there = Location.of(source).status()
    found = "nothing" if there is None else "other files" if there.is_dir else "a file"
    expected = " and ".join(f"{', '.join(names)}" for names in (PROFILE_TABLES, WORKLOAD_TABLES))
    raise InvalidInput(f"{source}: expected a directory with the tables of a profile or a workload ({expected}), found {found}")


def table_path(source: LocationLike, name: str) -> Location | None:
    """Where a table of a directory is: a folder of Parquet files, or a file with the table's name, or its earlier name."""
    directory = current(source)
    for table in dict.fromkeys((name, EARLIER_NAMES.get(name, name))):
        for each in (table, *(f"{table}.{suffix}" for suffix in ("parquet", "csv", "jsonl"))):
            there = (directory / each).status()
            if there is not None and there.is_dir == (each == table):
                return directory / each
    return None


def read_brokers(table: LocationLike) -> Pool:
    """The brokers of a table ``brokers``."""
    path = Location.of(table)
    rows = _read(path, _BROKER_COLUMNS)
    count = len(rows["broker"])
    capacity = rows.get("capacity_hz") or [None] * count
    ids = tuple(str(id) for id in rows["broker"])
    bandwidth, base_s, slope_s = (_numbers(path, name, rows[name]) for name in _BROKER_COLUMNS[1:])
    if not count:
        raise InvalidInput(f"{path}: brokers: expected at least one, found none")
    limits = np.array([np.inf if each is None else float(each) for each in capacity])
    cost = _numbers(path, "cost", rows["cost"]) if rows.get("cost") else None
    return Pool(ids, bandwidth, base_s, slope_s, limits, cost)


def network_of(overlay: Overlay, source: str) -> Network:
    """The pool and the links of an overlay."""
    brokers = [overlay.broker(id) for id in overlay.ids]
    pool = Pool(
        tuple(overlay.ids),
        np.array([each.output_bandwidth_bytes_per_s for each in brokers]),
        np.array([each.matching_delay_base_s for each in brokers]),
        np.array([each.matching_delay_per_subscription_s for each in brokers]),
        np.array([np.inf if each.capacity_hz is None else each.capacity_hz for each in brokers]),
    )
    return Network(pool, tuple(link.ends for link in overlay.links), source)


def read_offer(network: Path | None, brokers: LocationLike | None) -> Network | None:
    """Links from the network; what brokers can carry from a table, if there is one, else from the network. None: neither."""
    found = None if network is None else network_of(read_overlay(network), str(network))
    if brokers is None:
        return found
    pool = read_brokers(brokers)
    for id in () if found is None else found.pool.ids:
        if id not in pool.ids:
            raise InvalidInput(f"{network}: broker {id!r} is not in {brokers}: expected the same network, found another")
    return Network(pool, () if found is None else found.links, str(brokers), by_table=True)


def profile_workload(spark: SparkSession, source: LocationLike, out: Path, bits: int = BITS) -> None:
    """Write what plans need of the profile of a workload, as if all of it had been traced; subscriptions are as they were."""
    tables = {name: read_table(spark, table_of(source, name), name) for name in WORKLOAD_TABLES}
    publications, subscriptions = tables["publications"], tables["subscriptions"]
    build_index(subscriptions, out / "index")
    sent = publications.select("publisher", "sequence").distinct()
    _check_known(sent, tables["publishers"], source)
    # As in a trace, what nobody wants is there without a subscription: windows end at the last publication, wanted or not.
    unwanted = sent.withColumn("subscription", F.lit(None).cast("string"))
    deliveries = matched(publications, out / "index").unionByName(unwanted)
    counted = windows_of(sent, bits).select("publisher", *_ENDS, _WINDOW)
    publishers = (
        tables["publishers"]
        .join(counted, "publisher", "left")
        .select(
            "publisher",
            "broker",
            "rate_hz",
            (F.col("rate_hz") * F.col("message_bytes")).alias("bytes_per_s"),
            F.coalesce(_WINDOW, F.lit(0)).cast("bigint").alias(_WINDOW),
            *_ENDS,
        )
    )
    found = profiled(deliveries, bits) if not sent.isEmpty() else profiled(deliveries.limit(0), bits)
    write_tables({out / "profiles": found, out / "publisher_profiles": publishers, out / "subscriptions": subscriptions})


def _check_known(sent: DataFrame, publishers: DataFrame, source: LocationLike) -> None:
    for row in sent.select("publisher").distinct().join(publishers, "publisher", "left_anti").orderBy("publisher").take(1):
        raise InvalidInput(f"{source}: publications: publisher {row.publisher!r}: expected one of the table publishers")


def read_problem(source: LocationLike, network: Network, goals: Goals, *, correct: bool = False) -> Problem:
    """The problem of a directory of profiles. A publisher with the id of a client is that client's publishing side."""
    # All tables of one version.
    source = current(source)
    publishers, at = read_publishers(source)
    path = table_of(source, "profiles")
    table = _table(path, ("subscription", "publisher", "words"))
    gone = withdrawn(source)
    table = table.filter(without_ids(table["subscription"], gone)) if len(gone) else table
    ids, clients, brokers = read_subscribers(source, table["subscription"], gone)
    check_once(path, table, ("subscription", "publisher"))
    profiles = Profiles(
        positions(path, "subscription", table["subscription"], ids),
        positions(path, "publisher", table["publisher"], texts(publishers.ids)),
        words_of(path, table["words"], BITS),
    )
    publishers = replace(publishers, window=windows_of_vectors(publishers.window, profiles.publisher, profiles.words))
    known_places = brokers.null_count < len(brokers) or any(broker is not None for broker in at)
    check_places(source, network, (("client", clients, brokers), ("publisher", texts(publishers.ids), texts(at))))
    owners = clients.to_pylist()
    publishing = set(owners)
    return assemble(
        network.pool,
        publishers,
        profiles,
        ids.to_pylist(),
        owners,
        clients_at=brokers.to_pylist() if known_places else None,
        publishers_at=at if known_places else None,
        publishing=[id if id in publishing else None for id in publishers.ids],
        links=network.links if known_places else (),
        # A broker sends a client a publication once, however many of its subscriptions match.
        copies="client",
        correct=correct,
        goals=goals,
    )


def read_evidence(source: LocationLike, problem: Problem) -> Evidence:
    """The evidence of profiles; how much the traffic swings is that of arrivals at all brokers, where ``load`` tells."""
    path = table_path(source, "load")
    return evidence_of(problem, _arrivals(path) if path is not None else None)


def read_windows(source: LocationLike) -> dict[str, tuple[int, int]]:
    """The first and last publication of each publisher that the profiles hold; none where the table does not say."""
    rows = _read(table_of(source, "publisher_profiles"), ("publisher",))
    if not all(name in rows for name in _ENDS):
        return {}
    ends = zip(rows["publisher"], *(rows[name] for name in _ENDS), strict=True)
    return {id: (first, last) for id, first, last in ends if first is not None and last is not None}


def read_advertisements(source: LocationLike) -> dict[str, str]:
    """What publishers advertise, where a table ``publishers`` says so."""
    path = table_path(source, "publishers")
    rows = {} if path is None else _read(path, ("publisher",))
    stated = zip(rows.get("publisher", ()), rows.get("advertisement") or (), strict=False)
    return {id: filter for id, filter in stated if filter is not None}


def add_boxes(source: LocationLike, problem: Problem) -> Problem:
    """The problem with what publishers advertise and clients subscribe to as boxes, from the tables of SOURCE that say it."""
    said: list[dict[str, Filter]] = []
    # A workload has the same tables under the names that profiles had in the release before.
    for name, id, column in (
        ("publisher_profiles", "publisher", "advertisement"),
        ("subscription_lifetimes", "subscription", "filter"),
    ):
        path = table_of(source, name)
        rows = _read(path, (id, column))
        try:
            said.append({key: parse_filter(text) for key, text in zip(rows[id], rows[column], strict=True)})
        except ParseError as error:
            raise InvalidInput(f"{path}: column {column!r}: {error}") from None
    return with_boxes(problem, *said)


def _arrivals(path: Location) -> Reals:
    rows = _read(path, ("at_s", "input_hz"))
    at, rate = np.array(rows["at_s"], np.float64), np.array(rows["input_hz"], np.float64)
    _, bucket = np.unique(at, return_inverse=True)
    return np.bincount(bucket, rate).astype(np.float64)


def read_publishers(source: Location) -> tuple[Publishers, list[str | None]]:
    """What publishers send, and the broker of each."""
    path = table_of(source, "publisher_profiles")
    rows = _read(path, ("publisher", "rate_hz", "bytes_per_s"))
    window = rows.get(_WINDOW) or rows.get("publications")
    if window is None:
        raise InvalidInput(f"{path}: expected a column {_WINDOW!r} or 'publications', found neither")
    for id, count in zip(rows["publisher"], window, strict=True):
        if not isinstance(count, int) or count < 0:
            raise InvalidInput(f"{path}: publisher {id!r}: {_WINDOW}: expected a whole number from 0 on, found {count!r}")
    rates = _numbers(path, "rate_hz", rows["rate_hz"]), _numbers(path, "bytes_per_s", rows["bytes_per_s"])
    none = np.full(len(window), -1, np.int64)
    return Publishers(tuple(rows["publisher"]), *rates, np.array(window, np.int64), none), list(
        rows.get("broker") or [None] * len(window)
    )


def windows_of_vectors(window: Whole, publisher: Whole, words: TextSet) -> Whole:
    """Publications that the vectors of publishers hold: no more than bits, no fewer than were delivered."""
    seen = np.zeros((len(window), words.shape[1]), np.uint64)
    np.bitwise_or.at(seen, publisher, words)
    return np.asarray(np.maximum(np.minimum(window, words.shape[1] * 64), counted(seen)), np.int64)


def withdrawn(source: Location) -> pa.Array:
    """Subscriptions that were withdrawn while the network still carried traffic: nobody needs a broker for them any more.

    Those that were withdrawn with or after the last traffic (``load``) ended with the run, as all do when a network is stopped.
    """
    none, path, load = texts([]), table_path(source, "subscription_lifetimes"), table_path(source, "load")
    if path is None or load is None or "withdrawn_at_s" not in (table := _table(path, ("subscription",))).column_names:
        return none
    last_s = pc.max(_table(load, ("at_s",))["at_s"])
    gone = pc.fill_null(pc.less(table["withdrawn_at_s"].cast(pa.float64()), last_s.cast(pa.float64())), False)
    return texts(table["subscription"].filter(gone)) if last_s.is_valid else none


def without_ids(ids: pa.ChunkedArray, without: pa.Array) -> pa.ChunkedArray:
    """Which ids are none of those."""
    return pc.invert(pc.is_in(ids.cast(pa.large_string()), value_set=without))


def read_subscribers(source: Location, profiled_ids: pa.ChunkedArray, without: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Subscriptions with their clients and brokers; where there is no table of them, each is a client of its own."""
    path = table_path(source, "subscription_lifetimes")
    if path is None:
        ids = texts(pc.unique(profiled_ids))
        return ids, ids, pa.nulls(len(ids), pa.large_string())
    table = _table(path, ("subscription", "client"))
    table = table.filter(without_ids(table["subscription"], without)) if len(without) else table
    check_once(path, table, ("subscription",))
    nowhere = pa.nulls(table.num_rows, pa.large_string())
    brokers = texts(table["broker"]) if "broker" in table.column_names else nowhere
    return texts(table["subscription"]), texts(table["client"]), brokers


def check_places(source: Location, network: Network, parts: Sequence[tuple[str, pa.Array, pa.Array]]) -> None:
    """Raise an error that names who is at a broker that is not in the network."""
    known = texts(network.pool.ids)
    for kind, ids, brokers in parts:
        lost = pc.and_(pc.is_valid(brokers), pc.invert(pc.is_in(brokers, value_set=known)))
        if pc.any(lost).as_py():
            at = pc.index(lost, True).as_py()
            raise InvalidInput(
                f"{source}: {kind} {ids[at].as_py()!r} is at broker {brokers[at].as_py()!r}, which is not in {network.source}:"
                " expected the network that was profiled, found another"
            )


def table_of(source: LocationLike, name: str) -> Location:
    """Where a table of a directory is; that there is none is an error."""
    path = table_path(source, name)
    if path is None:
        raise InvalidInput(f"{source}: expected a table {name!r}, found none")
    return path


def _read(path: Location, columns: Sequence[str]) -> Mapping[str, list[Any]]:
    """All columns of a small table as lists."""
    table = _table(path, columns)
    return {name: table[name].to_pylist() for name in table.column_names}


def _table(path: Location, columns: Sequence[str]) -> pa.Table:
    """A table; ``columns`` have to be there, without null."""
    files = files_of(path)
    try:
        parts = []
        for name in files.names:
            with Location.of(name).fetched() as file:
                parts.append(_READERS[files.kind](file))
        table = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path}: expected a table, found: {str(error).splitlines()[0]}") from None
    for name in columns:
        if name not in table.column_names:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(table.column_names)}")
        if table[name].null_count:
            raise InvalidInput(f"{path}: column {name!r}: expected a value, found null")
    return table


def _numbers(path: Location, name: str, values: Sequence[Any]) -> Reals:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{path}: column {name!r}: expected numbers") from None


_READERS = {"parquet": pq.read_table, "csv": pyarrow.csv.read_csv, "json": pyarrow.json.read_json}


def _columns(pool: Pool) -> tuple[Reals, ...]:
    return pool.bandwidth_bytes_per_s, pool.base_s, pool.slope_s, pool.capacity_hz
