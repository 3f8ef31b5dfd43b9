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
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.pipeline.index_file import build_index
from overweave.pipeline.steps.match import matched
from overweave.pipeline.steps.profiles import BITS, profiled, windows_of
from overweave.pipeline.tables import files_of, read_table, write_tables
from overweave.planning.evidence import Evidence, evidence_of
from overweave.planning.problem import Goals, Pool, Problem, Publishers, Reals, Whole, Words, counted
from overweave.planning.profiles import Profiles, assemble

#: What makes a directory a profile, and a workload.
PROFILE_TABLES, WORKLOAD_TABLES = ("profiles", "publishers"), ("publishers", "subscriptions", "publications")
_WINDOW = "window_publications"
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

    def with_more(self, more: Pool) -> "Network":
        """With brokers that are not there yet."""
        parts = zip(_columns(self.pool), _columns(more), strict=True)
        pool = Pool(self.pool.ids + more.ids, *(np.concatenate(part) for part in parts))
        return replace(self, pool=pool)


def kind_of(source: Path) -> str:
    """Whether a directory is a profile or a workload."""
    for kind, names in (("profile", PROFILE_TABLES), ("workload", WORKLOAD_TABLES)):
        if source.is_dir() and all((source / name).exists() or _file(source, name) for name in names):
            return kind
    found = "a file" if source.is_file() else "other files" if source.is_dir() else "nothing"
    expected = " and ".join(f"{', '.join(names)}" for names in (PROFILE_TABLES, WORKLOAD_TABLES))
    raise InvalidInput(f"{source}: expected a directory with the tables of a profile or a workload ({expected}), found {found}")


def table_path(source: Path, name: str) -> Path | None:
    """Where a table of a directory is: a folder of Parquet files, or a file with the table's name."""
    return source / name if (source / name).is_dir() else _file(source, name)


def _file(source: Path, name: str) -> Path | None:
    return next((path for suffix in ("parquet", "csv", "jsonl") if (path := source / f"{name}.{suffix}").is_file()), None)


def read_brokers(path: Path) -> Pool:
    """The brokers of a table ``brokers``."""
    rows = _read(path, _BROKER_COLUMNS)
    count = len(rows["broker"])
    capacity = rows.get("capacity_hz") or [None] * count
    ids = tuple(str(id) for id in rows["broker"])
    bandwidth, base_s, slope_s = (_numbers(path, name, rows[name]) for name in _BROKER_COLUMNS[1:])
    if not count:
        raise InvalidInput(f"{path}: brokers: expected at least one, found none")
    return Pool(ids, bandwidth, base_s, slope_s, np.array([np.inf if each is None else float(each) for each in capacity]))


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


def profile_workload(spark: SparkSession, source: Path, out: Path, bits: int = BITS) -> None:
    """Write the tables profiles, publishers and subscriptions of a workload, as if all of it had been traced."""
    tables = {name: read_table(spark, _there(source, name), name) for name in WORKLOAD_TABLES}
    publications, subscriptions = tables["publications"], tables["subscriptions"]
    build_index(subscriptions, out / "index")
    sent = publications.select("publisher", "sequence").distinct()
    _check_known(sent, tables["publishers"], source)
    # As in a trace, what nobody wants is there without a subscription: windows end at the last publication, wanted or not.
    unwanted = sent.withColumn("subscription", F.lit(None).cast("string"))
    deliveries = matched(publications, out / "index").unionByName(unwanted)
    counted = windows_of(sent, bits).select("publisher", F.col("window_publications").alias(_WINDOW))
    publishers = (
        tables["publishers"]
        .join(counted, "publisher", "left")
        .select(
            "publisher",
            "broker",
            "rate_hz",
            (F.col("rate_hz") * F.col("message_bytes")).alias("bytes_per_s"),
            F.coalesce(_WINDOW, F.lit(0)).cast("bigint").alias(_WINDOW),
        )
    )
    found = profiled(deliveries, bits) if not sent.isEmpty() else profiled(deliveries.limit(0), bits)
    write_tables({out / "profiles": found, out / "publishers": publishers, out / "subscriptions": subscriptions})


def _check_known(sent: DataFrame, publishers: DataFrame, source: Path) -> None:
    for row in sent.select("publisher").distinct().join(publishers, "publisher", "left_anti").orderBy("publisher").take(1):
        raise InvalidInput(f"{source}: publications: publisher {row.publisher!r}: expected one of the table publishers")


def read_problem(source: Path, network: Network, goals: Goals, *, correct: bool = False) -> Problem:
    """The problem of a directory of profiles. A publisher with the id of a client is that client's publishing side."""
    publishers, at = read_publishers(source)
    position = {id: i for i, id in enumerate(publishers.ids)}
    rows = _read(_there(source, "profiles"), ("subscription", "publisher", "words"))
    ids, clients, brokers = _subscriptions(source, rows["subscription"])
    place = {id: i for i, id in enumerate(ids)}
    for kind, known, names in (("publisher", position, rows["publisher"]), ("subscription", place, rows["subscription"])):
        for name in names:
            if name not in known:
                raise InvalidInput(f"{source / 'profiles'}: {kind} {name!r}: expected one of the table {kind}s")
    words = np.array(rows["words"], np.int64).view(np.uint64) if rows["words"] else np.zeros((0, BITS // 64), np.uint64)
    profiles = Profiles(
        np.array([place[id] for id in rows["subscription"]], np.int64),
        np.array([position[id] for id in rows["publisher"]], np.int64),
        words,
    )
    publishers = replace(publishers, window=windows_of_vectors(publishers.window, profiles.publisher, profiles.words))
    owners = set(clients)
    known_places = any(broker is not None for broker in (*brokers, *at))
    _check_places(source, network, (("client", clients, brokers), ("publisher", publishers.ids, at)))
    return assemble(
        network.pool,
        publishers,
        profiles,
        ids,
        clients,
        clients_at=brokers if known_places else None,
        publishers_at=at if known_places else None,
        publishing=[id if id in owners else None for id in publishers.ids],
        links=network.links if known_places else (),
        correct=correct,
        goals=goals,
    )


def read_evidence(source: Path, problem: Problem) -> Evidence:
    """The evidence of profiles; how much the traffic swings is that of arrivals at all brokers, where ``load`` tells."""
    path = table_path(source, "load")
    return evidence_of(problem, _arrivals(path) if path is not None else None)


def _arrivals(path: Path) -> Reals:
    rows = _read(path, ("at_s", "input_hz"))
    at, rate = np.array(rows["at_s"], np.float64), np.array(rows["input_hz"], np.float64)
    _, bucket = np.unique(at, return_inverse=True)
    return np.bincount(bucket, rate).astype(np.float64)


def read_publishers(source: Path) -> tuple[Publishers, list[str | None]]:
    """What publishers send, and the broker of each."""
    path = _there(source, "publishers")
    rows = _read(path, ("publisher", "rate_hz", "bytes_per_s"))
    window = rows.get(_WINDOW) or rows.get("publications")
    if window is None:
        raise InvalidInput(f"{path}: expected a column {_WINDOW!r} or 'publications', found neither")
    rates = _numbers(path, "rate_hz", rows["rate_hz"]), _numbers(path, "bytes_per_s", rows["bytes_per_s"])
    none = np.full(len(window), -1, np.int64)
    return Publishers(tuple(rows["publisher"]), *rates, np.array(window, np.int64), none), list(
        rows.get("broker") or [None] * len(window)
    )


def windows_of_vectors(window: Whole, publisher: Whole, words: Words) -> Whole:
    """Publications that the vectors of publishers hold: no more than bits, no fewer than were delivered."""
    seen = np.zeros((len(window), words.shape[1]), np.uint64)
    np.bitwise_or.at(seen, publisher, words)
    delivered = counted(seen)
    return np.asarray(np.maximum(np.minimum(window, words.shape[1] * 64), delivered), np.int64)


def _subscriptions(source: Path, profiled_ids: Sequence[str]) -> tuple[list[str], list[str], list[str | None]]:
    """Subscriptions with their clients and brokers; where there is no table of them, each is a client of its own."""
    path = table_path(source, "subscriptions")
    if path is None:
        ids = list(dict.fromkeys(profiled_ids))
        return ids, ids, [None] * len(ids)
    rows = _read(path, ("subscription", "client"))
    return rows["subscription"], rows["client"], rows.get("broker") or [None] * len(rows["client"])


def _check_places(source: Path, network: Network, parts: Sequence[tuple[str, Sequence[str], Sequence[str | None]]]) -> None:
    known = set(network.pool.ids)
    for kind, ids, brokers in parts:
        for id, broker in zip(ids, brokers, strict=True):
            if broker is not None and broker not in known:
                raise InvalidInput(
                    f"{source}: {kind} {id!r} is at broker {broker!r}, which is not in {network.source}:"
                    " expected the network that was profiled, found another"
                )


def _there(source: Path, name: str) -> Path:
    path = table_path(source, name)
    if path is None:
        raise InvalidInput(f"{source}: expected a table {name!r}, found none")
    return path


def _read(path: Path, columns: Sequence[str]) -> Mapping[str, list[Any]]:
    """All columns of a small table; ``columns`` have to be there, without null."""
    files = files_of(path)
    try:
        if files.kind == "parquet":
            table = pa.concat_tables([pq.read_table(name) for name in files.names], promote_options="permissive")
        else:
            table = pyarrow.csv.read_csv(path) if files.kind == "csv" else pyarrow.json.read_json(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path}: expected a table, found: {str(error).splitlines()[0]}") from None
    for name in columns:
        if name not in table.column_names:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(table.column_names)}")
        if table[name].null_count:
            raise InvalidInput(f"{path}: column {name!r}: expected a value, found null")
    return {name: table[name].to_pylist() for name in table.column_names}


def _numbers(path: Path, name: str, values: Sequence[Any]) -> Reals:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{path}: column {name!r}: expected numbers") from None


def _columns(pool: Pool) -> tuple[Reals, ...]:
    return pool.bandwidth_bytes_per_s, pool.base_s, pool.slope_s, pool.capacity_hz
