"""Problems of profiles that are too many for one process: equal vectors are found by Spark.

The driver gets the distinct vectors, and a client and a number for each profile; vectors of single subscriptions never reach it.
So it takes memory in proportion to clients and distinct vectors, not to profiles x bits.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.columns import positions, texts, words_of
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.plan_brokers import Network
from overweave.pipeline.plan_tables import table_of, table_path
from overweave.pipeline.planning import check_places, read_publishers, read_subscribers, windows_of_vectors, withdrawn
from overweave.pipeline.steps.profiles import BITS
from overweave.pipeline.streaming.versions import current
from overweave.pipeline.tables import Files, files_of
from overweave.planning.problem import Goals, Problem, Publishers, Today, Units, Vectors, Whole, counted

#: Profiles of a directory up to which the driver reads them itself: about a quarter of them are distinct.
ROWS_ON_DRIVER = 150_000
#: What Java gets on this machine: it only groups and hands over, and the driver's memory is for the plan.
SESSION_MEMORY_MB = 2_048
#: The estimated bytes of a profile in remote files, whose footers are far.
_BYTES_PER_ROW = 64


@dataclass(frozen=True, eq=False)
class _Subscribers:
    """Subscriptions in the order of their table, the client of each by its number, and the broker of each (null: unknown)."""

    subscriptions: pa.Array
    clients: pa.Array
    client_of: Whole
    broker: pa.Array

    @classmethod
    def of(cls, subscriptions: pa.Array, clients: pa.Array, broker: pa.Array) -> "_Subscribers":
        """Of the client of each subscription."""
        owner = clients.dictionary_encode()
        return cls(subscriptions, owner.dictionary, owner.indices.to_numpy().astype(np.int64), broker)

    @property
    def one_to_one(self) -> bool:
        """Whether every client has one subscription."""
        return len(self.clients) == len(self.subscriptions)


def is_large(source: LocationLike) -> bool:
    """Whether the profiles of a directory are large enough for Spark, by the footers of their files."""
    path = table_path(source, "profiles")
    files = None if path is None else files_of(path)
    if files is None or files.kind != "parquet":
        return False
    try:
        return _rows(files) > ROWS_ON_DRIVER
    except (pa.ArrowException, OSError):
        return False  # the reader reports the error


def _rows(files: Files) -> int:
    if files.path.is_remote:
        return sum(size for _, size in files.path.walk()) // _BYTES_PER_ROW
    return int(sum(pq.read_metadata(name).num_rows for name in files.names))


def read_large_problem(spark: SparkSession, source: LocationLike, network: Network, goals: Goals) -> Problem:
    """As `overweave.pipeline.planning.read_problem`, with the vectors of profiles grouped by Spark."""
    source = current(source)
    path = table_of(source, "profiles")
    publishers, at = read_publishers(source)
    gone = withdrawn(source)
    profiles = _profiles(spark, path, gone)
    known = _subscribers(source, profiles, gone)
    vectors, owner, rows = _vectors(path, _owners(spark, profiles, known), publishers, known)
    windows = windows_of_vectors(publishers.window, vectors.publisher, vectors.words)
    side = _positions(texts(publishers.ids), known.clients)
    publishers = Publishers(publishers.ids, publishers.rate_hz, publishers.bytes_per_s, windows, side)
    problem = Problem(
        network.pool,
        publishers,
        vectors,
        _units(publishers, vectors, known, owner, rows),
        _today(source, network, publishers, texts(at), known),
        goals,
    )
    problem.validate()
    return problem


def _profiles(spark: SparkSession, path: Location, gone: pa.Array) -> DataFrame:
    found = spark.read.parquet(*files_of(path).patterns)
    for name in ("subscription", "publisher", "words"):
        if name not in found.columns:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(found.columns)}")
    found = found.select("subscription", "publisher", "words")
    if not len(gone):
        return found
    left = spark.createDataFrame(pa.table({"subscription": gone.cast(pa.string())}))
    return found.join(left, "subscription", "left_anti")


def _subscribers(source: Location, profiles: DataFrame, gone: pa.Array) -> _Subscribers:
    """Who subscribes; where there is no table of subscriptions, each that has a profile is a client of its own."""
    if table_path(source, "subscription_lifetimes") is None:
        ids = texts(profiles.select("subscription").distinct().sort("subscription").toArrow()["subscription"])
        return _Subscribers.of(ids, ids, pa.nulls(len(ids), pa.large_string()))
    return _Subscribers.of(*read_subscribers(source, pa.chunked_array([texts([])]), gone))


def _owners(spark: SparkSession, profiles: DataFrame, known: _Subscribers) -> DataFrame:
    """The vectors of owners: the profiles themselves where every client has one subscription, else united by client.

    ``owner`` is a subscription or a client; a subscription that nobody knows is its own.
    """
    if known.one_to_one:
        return profiles.withColumnRenamed("subscription", "owner")
    of = {"subscription": known.subscriptions, "client": known.clients.take(pa.array(known.client_of))}
    clients = spark.createDataFrame(pa.table({name: column.cast(pa.string()) for name, column in of.items()}))
    first = profiles.select("words").head()
    union = ", ".join(f"bit_or(words[{i}])" for i in range(0 if first is None else len(first[0])))
    owner = F.coalesce("client", F.concat(F.lit("?"), "subscription"))
    joined = profiles.join(clients, "subscription", "left").withColumn("owner", owner)
    return joined.groupBy("owner", "publisher").agg(F.expr(f"array({union})").alias("words"))


def _vectors(path: Location, owners: DataFrame, publishers: Publishers, known: _Subscribers) -> tuple[Vectors, Whole, Whole]:
    """The distinct vectors; the client and the vector of every row, by client and publisher."""
    distinct, rows = _keyed(owners)
    publisher = positions(path, "publisher", distinct["publisher"], texts(publishers.ids))
    words, key = words_of(path, distinct["words"], BITS), distinct["key"].to_numpy()
    order = np.lexsort((key, publisher))
    vectors = Vectors(publisher[order], np.ascontiguousarray(words[order]), counted(words[order]))
    by_key = np.argsort(key[order], kind="stable")
    row = by_key[np.searchsorted(key[order][by_key], rows["key"].to_numpy())]
    if known.one_to_one:
        owner = known.client_of[positions(path, "subscription", rows["owner"], known.subscriptions)]
    else:
        owner = _positions(texts(rows["owner"]), known.clients)
        for i in np.flatnonzero(owner < 0)[:1].tolist():
            positions(path, "subscription", texts([rows["owner"][i].as_py()[1:]]), known.subscriptions)
    # Who received nothing of a publisher has no row.
    kept = np.flatnonzero(vectors.ones[row])
    kept = kept[np.lexsort((row[kept], owner[kept]))]
    return vectors, owner[kept], row[kept]


def _keyed(owners: DataFrame) -> tuple[pa.Table, pa.Table]:
    """Distinct vectors with a key for each, and the key of every row: a hash, taken again should two vectors share one."""
    salt = 0
    while True:
        keyed = owners.withColumn("key", F.xxhash64(F.lit(salt), "publisher", "words"))
        distinct = keyed.select("key", "publisher", "words").distinct().toArrow()
        if len(pc.unique(distinct["key"])) == len(distinct):
            return distinct, keyed.select("owner", "key").toArrow()
        salt += 1


def _units(publishers: Publishers, vectors: Vectors, known: _Subscribers, owner: Whole, rows: Whole) -> Units:
    """A broker sends a client a publication once, however many of its subscriptions match."""
    count, deliveries, by = len(known.clients), vectors.ones[rows], vectors.publisher[rows]
    row_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=count))])
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


def _today(source: Location, network: Network, publishers: Publishers, at: pa.Array, known: _Subscribers) -> Today | None:
    """The places of clients and publishers, or None if all are unknown."""
    if known.broker.null_count == len(known.broker) and at.null_count == len(at):
        return None
    clients = known.clients.take(pa.array(known.client_of))
    check_places(source, network, (("client", clients, known.broker), ("publisher", texts(publishers.ids), at)))
    pool = texts(network.pool.ids)
    units, sources = np.full(len(known.clients), -1, np.int64), _positions(at, pool)
    units[known.client_of] = _positions(known.broker, pool)
    sides = np.flatnonzero(publishers.unit >= 0)
    alone = sides[units[publishers.unit[sides]] < 0]
    units[publishers.unit[alone]] = sources[alone]
    return Today(units, sources, network.links)


def _positions(values: pa.Array, known: pa.Array) -> Whole:
    """Where values are among those that are known, -1 for others and for null."""
    found = pc.index_in(values, value_set=known, skip_nulls=True)
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)
