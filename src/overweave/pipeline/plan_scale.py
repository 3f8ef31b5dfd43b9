"""Problems of profiles that are too many for one process: equal vectors are found by Spark.

The driver gets the distinct vectors, and a client and a number for each profile; vectors of single subscriptions never reach it.
So it takes memory in proportion to clients and distinct vectors, not to profiles x bits.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.planning import Network, read_publishers, table_path, windows_of_vectors
from overweave.pipeline.tables import files_of
from overweave.planning.problem import Goals, Problem, Publishers, Today, Units, Vectors, Whole, counted

#: Profiles of a directory up to which the driver reads them itself: about a quarter of them are distinct.
ROWS_ON_DRIVER = 150_000
#: What Java gets on this machine: it only groups and hands over, and the driver's memory is for the plan.
SESSION_MEMORY_MB = 2_048


@dataclass(frozen=True, eq=False)
class _Subscribers:
    """Subscriptions in the order of their table, the client of each by its number, and the broker of each (null: unknown)."""

    subscriptions: pa.Array
    clients: pa.Array
    client_of: Whole
    broker: pa.Array

    @property
    def one_to_one(self) -> bool:
        """Whether every client has one subscription."""
        return len(self.clients) == len(self.subscriptions)


def is_large(source: Path) -> bool:
    """Whether the profiles of a directory are for Spark: told by the footers of their files, without reading any."""
    path = table_path(source, "profiles")
    files = None if path is None else files_of(path)
    if files is None or files.kind != "parquet":
        return False
    try:
        return bool(sum(pq.read_metadata(name).num_rows for name in files.names) > ROWS_ON_DRIVER)
    except (pa.ArrowException, OSError):
        return False  # who reads it says what is wrong with it


def read_large_problem(spark: SparkSession, source: Path, network: Network, goals: Goals) -> Problem:
    """As `overweave.pipeline.planning.read_problem`, with the vectors of profiles grouped by Spark."""
    publishers, at = read_publishers(source)
    profiles = _profiles(spark, source)
    known = _subscribers(source, profiles)
    owners = _owners(spark, source, profiles, known)
    vectors, row_owner, rows, deliveries = _vectors(source, owners, publishers, known)
    windows = windows_of_vectors(publishers.window, vectors.publisher, vectors.words)
    side = _positions(pa.array(publishers.ids, pa.string()), known.clients)
    publishers = Publishers(publishers.ids, publishers.rate_hz, publishers.bytes_per_s, windows, side)
    units = _units(publishers, vectors, known, row_owner, rows, deliveries)
    today = _today(source, network, publishers, at, known)
    problem = Problem(network.pool, publishers, vectors, units, today, goals)
    problem.validate()
    return problem


def _profiles(spark: SparkSession, source: Path) -> DataFrame:
    path = table_path(source, "profiles")
    assert path is not None, "is_large has seen it"
    found = spark.read.parquet(*files_of(path).names)
    for name in ("subscription", "publisher", "words"):
        if name not in found.columns:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(found.columns)}")
    return found.select("subscription", "publisher", "words")


def _subscribers(source: Path, profiles: DataFrame) -> _Subscribers:
    """Who subscribes; where there is no table of subscriptions, each that has a profile is a client of its own."""
    path = table_path(source, "subscriptions")
    if path is None:
        ids = profiles.select("subscription").distinct().sort("subscription").toArrow()["subscription"].combine_chunks()
        return _Subscribers(ids, ids, np.arange(len(ids)), pa.nulls(len(ids), pa.string()))
    table = pa.concat_tables(
        [pq.read_table(name, columns=_columns(name, ("subscription", "client", "broker"))) for name in files_of(path).names]
    )
    for name in ("subscription", "client"):
        if name not in table.column_names:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(table.column_names)}")
        if table[name].null_count:
            raise InvalidInput(f"{path}: column {name!r}: expected a value, found null")
    owner = table["client"].combine_chunks().dictionary_encode()
    broker = table["broker"].combine_chunks() if "broker" in table.column_names else pa.nulls(len(table), pa.string())
    return _Subscribers(
        table["subscription"].combine_chunks(), owner.dictionary, owner.indices.to_numpy().astype(np.int64), broker
    )


def _columns(name: str, wanted: tuple[str, ...]) -> list[str]:
    there = pq.read_schema(name).names
    return [each for each in wanted if each in there]


def _owners(spark: SparkSession, source: Path, profiles: DataFrame, known: _Subscribers) -> DataFrame:
    """The vectors of owners: the profiles themselves where every client has one subscription, else united by client.

    ``owner`` is a subscription or a client, null where nobody knows the subscription; ``deliveries`` counts those of all its
    subscriptions (null: as many as bits).
    """
    if known.one_to_one:
        return profiles.select(
            F.col("subscription").alias("owner"), "publisher", "words", F.lit(None).cast("long").alias("deliveries")
        )
    path = table_path(source, "subscriptions")
    assert path is not None, "several subscriptions of a client are only known from the table"
    clients = spark.read.parquet(*files_of(path).names).select("subscription", F.col("client").alias("owner"))
    width = len(profiles.select("words").head()[0])  # type: ignore[index]
    ones = F.expr(" + ".join(f"bit_count(words[{i}])" for i in range(width))).cast("long")
    union = F.expr(f"array({', '.join(f'bit_or(words[{i}])' for i in range(width))})")
    joined = profiles.join(clients, "subscription", "left").withColumn("ones", ones)
    return joined.groupBy("owner", "publisher").agg(union.alias("words"), F.sum("ones").alias("deliveries"))


def _vectors(source: Path, owners: DataFrame, publishers: Publishers, known: _Subscribers) -> tuple[Vectors, Whole, Whole, Whole]:
    """The distinct vectors; the client, the vector and the deliveries of every row, by client and publisher."""
    distinct, rows = _keyed(owners)
    place = f"{source / 'profiles'}"
    publisher = _positions(distinct["publisher"].combine_chunks(), pa.array(publishers.ids, pa.string()))
    for i in np.flatnonzero(publisher < 0)[:1].tolist():
        raise InvalidInput(f"{place}: publisher {distinct['publisher'][i].as_py()!r}: expected one of the table publishers")
    lists = distinct["words"].combine_chunks()
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(lengths) > 1:
        raise InvalidInput(f"{place}: words: expected vectors of one length, found {', '.join(map(str, sorted(lengths)))}")
    words = lists.flatten().to_numpy().view(np.uint64).reshape(len(lists), -1)
    order = np.lexsort((distinct["key"].to_numpy(), publisher))
    vectors = Vectors(publisher[order], np.ascontiguousarray(words[order]), counted(words[order]))
    keys = distinct["key"].to_numpy()[order]
    by_key = np.argsort(keys, kind="stable")
    row = by_key[np.searchsorted(keys[by_key], rows["key"].to_numpy())]
    owner = _positions(rows["owner"].combine_chunks(), known.subscriptions if known.one_to_one else known.clients)
    for i in np.flatnonzero(owner < 0)[:1].tolist():
        raise InvalidInput(f"{place}: subscription {rows['owner'][i].as_py()!r}: expected one of the table subscriptions")
    if known.one_to_one:
        owner = known.client_of[owner]
    deliveries = pc.fill_null(rows["deliveries"].combine_chunks(), -1).to_numpy()
    deliveries = np.where(deliveries < 0, vectors.ones[row], deliveries)
    # Who received nothing of a publisher has no row.
    kept = np.flatnonzero(vectors.ones[row])
    kept = kept[np.lexsort((row[kept], owner[kept]))]
    return vectors, owner[kept], row[kept], deliveries[kept]


def _keyed(owners: DataFrame) -> tuple[pa.Table, pa.Table]:
    """Distinct vectors with a key for each, and the key of every row: a hash, taken again should two vectors share one."""
    salt = 0
    while True:
        keyed = owners.withColumn("key", F.xxhash64(F.lit(salt), "publisher", "words"))
        distinct = keyed.select("key", "publisher", "words").distinct().toArrow()
        if len(pc.unique(distinct["key"])) == len(distinct):
            return distinct, keyed.select("owner", "key", "deliveries").toArrow()
        salt += 1


def _units(publishers: Publishers, vectors: Vectors, known: _Subscribers, owner: Whole, rows: Whole, deliveries: Whole) -> Units:
    count = len(known.clients)
    row_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=count))])
    by = vectors.publisher[rows]
    load = deliveries / np.maximum(publishers.window, 1)[by] * publishers.bytes_per_s[by]
    return Units(
        tuple(known.clients.to_pylist()),
        row_start.astype(np.int64),
        rows,
        deliveries,
        np.bincount(owner, load, minlength=count).astype(np.float64),
        np.bincount(known.client_of, minlength=count).astype(np.int64),
        tuple(known.subscriptions.to_pylist()),
        known.client_of,
    )


def _today(source: Path, network: Network, publishers: Publishers, at: list[str | None], known: _Subscribers) -> Today | None:
    """Where clients and publishers are, unless nobody knows of any."""
    pool = pa.array(network.pool.ids, pa.string())
    sources = pa.array(at, pa.string())
    if known.broker.null_count == len(known.broker) and sources.null_count == len(sources):
        return None
    for kind, ids, brokers in (
        ("client", known.clients.take(pa.array(known.client_of)), known.broker),
        ("publisher", pa.array(publishers.ids, pa.string()), sources),
    ):
        strange = pc.and_(pc.is_valid(brokers), pc.invert(pc.is_in(brokers, pool)))
        for i in np.flatnonzero(strange.to_numpy(zero_copy_only=False))[:1].tolist():
            raise InvalidInput(
                f"{source}: {kind} {ids[i].as_py()!r} is at broker {brokers[i].as_py()!r}, which is not in {network.source}:"
                " expected the network that was profiled, found another"
            )
    units = np.full(len(known.clients), -1, np.int64)
    units[known.client_of] = _positions(known.broker, pool)
    of_publisher = _positions(sources, pool)
    sides = np.flatnonzero(publishers.unit >= 0)
    alone = sides[units[publishers.unit[sides]] < 0]
    units[publishers.unit[alone]] = of_publisher[alone]
    return Today(units, of_publisher, network.links)


def _positions(values: pa.Array, known: pa.Array) -> Whole:
    """Where values are among those that are known, -1 for others and for null."""
    found = pc.index_in(values, value_set=known, skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)
