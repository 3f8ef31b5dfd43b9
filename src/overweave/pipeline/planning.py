"""The planning problem of a directory of profiles.

Profiles are read on the driver: a vector has 160 bytes, so a million of them are as large as one task of Spark.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from overweave.errors import InvalidInput, ParseError
from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter
from overweave.pipeline.columns import check_once, positions, texts, words_of
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.plan_brokers import Network
from overweave.pipeline.plan_tables import WINDOW_ENDS, WINDOW_SIZE, arrow_table, column_lists, numbers, table_of, table_path
from overweave.pipeline.steps.profiles import BITS
from overweave.pipeline.streaming.versions import current
from overweave.planning.box_tables import with_boxes
from overweave.planning.evidence import Evidence, evidence_of
from overweave.planning.problem import BitWords, Goals, Problem, Publishers, Reals, Whole, counted
from overweave.planning.profiles import Profiles, assemble


def read_problem(source: LocationLike, network: Network, goals: Goals, *, correct: bool = False) -> Problem:
    """The problem of a directory of profiles. A publisher with the id of a client is placed with that client."""
    # One version of all tables.
    source = current(source)
    publishers, at = read_publishers(source)
    path = table_of(source, "profiles")
    table = arrow_table(path, ("subscription", "publisher", "words"))
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
    """The evidence of profiles; the peak over mean is that of arrivals in the table ``load``, if present."""
    path = table_path(source, "load")
    return evidence_of(problem, _arrivals(path) if path is not None else None)


def read_windows(source: LocationLike) -> dict[str, tuple[int, int]]:
    """The window of each publisher in sequence numbers; empty if the table has none."""
    rows = column_lists(table_of(source, "publisher_profiles"), ("publisher",))
    if not all(name in rows for name in WINDOW_ENDS):
        return {}
    ends = zip(rows["publisher"], *(rows[name] for name in WINDOW_ENDS), strict=True)
    return {id: (first, last) for id, first, last in ends if first is not None and last is not None}


def read_advertisements(source: LocationLike) -> dict[str, str]:
    """The advertisements of the table ``publishers``."""
    path = table_path(source, "publishers")
    rows = {} if path is None else column_lists(path, ("publisher",))
    stated = zip(rows.get("publisher", ()), rows.get("advertisement") or (), strict=False)
    return {id: filter for id, filter in stated if filter is not None}


def add_boxes(source: LocationLike, problem: Problem) -> Problem:
    """The problem with advertisements and subscriptions as boxes, from the tables of SOURCE."""
    stated: list[dict[str, Filter]] = []
    # A workload has these tables under the earlier names of a profile.
    for name, id, column in (
        ("publisher_profiles", "publisher", "advertisement"),
        ("subscription_lifetimes", "subscription", "filter"),
    ):
        path = table_of(source, name)
        rows = column_lists(path, (id, column))
        try:
            stated.append({key: parse_filter(text) for key, text in zip(rows[id], rows[column], strict=True)})
        except ParseError as error:
            raise InvalidInput(f"{path}: column {column!r}: {error}") from None
    return with_boxes(problem, *stated)


def _arrivals(path: Location) -> Reals:
    rows = column_lists(path, ("at_s", "input_hz"))
    at, rate = np.array(rows["at_s"], np.float64), np.array(rows["input_hz"], np.float64)
    _, bucket = np.unique(at, return_inverse=True)
    return np.bincount(bucket, rate).astype(np.float64)


def read_publishers(source: Location) -> tuple[Publishers, list[str | None]]:
    """The publishers and their brokers."""
    path = table_of(source, "publisher_profiles")
    rows = column_lists(path, ("publisher", "rate_hz", "bytes_per_s"))
    window = rows.get(WINDOW_SIZE) or rows.get("publications")
    if window is None:
        raise InvalidInput(f"{path}: expected a column {WINDOW_SIZE!r} or 'publications', found neither")
    for id, count in zip(rows["publisher"], window, strict=True):
        if not isinstance(count, int) or count < 0:
            raise InvalidInput(f"{path}: publisher {id!r}: {WINDOW_SIZE}: expected a whole number from 0 on, found {count!r}")
    rates = numbers(path, "rate_hz", rows["rate_hz"]), numbers(path, "bytes_per_s", rows["bytes_per_s"])
    none = np.full(len(window), -1, np.int64)
    return Publishers(tuple(rows["publisher"]), *rates, np.array(window, np.int64), none), list(
        rows.get("broker") or [None] * len(window)
    )


def windows_of_vectors(window: Whole, publisher: Whole, words: BitWords) -> Whole:
    """Window sizes of publishers: at most the bits of a vector, at least the delivered publications."""
    seen = np.zeros((len(window), words.shape[1]), np.uint64)
    np.bitwise_or.at(seen, publisher, words)
    return np.asarray(np.maximum(np.minimum(window, words.shape[1] * 64), counted(seen)), np.int64)


def withdrawn(source: Location) -> pa.Array:
    """Subscriptions that were withdrawn during the run, and so need no broker.

    A subscription withdrawn at or after the last traffic (``load``) only ended with the run.
    """
    none, path, load = texts([]), table_path(source, "subscription_lifetimes"), table_path(source, "load")
    if path is None or load is None or "withdrawn_at_s" not in (table := arrow_table(path, ("subscription",))).column_names:
        return none
    last_s = pc.max(arrow_table(load, ("at_s",))["at_s"])
    gone = pc.fill_null(pc.less(table["withdrawn_at_s"].cast(pa.float64()), last_s.cast(pa.float64())), False)
    return texts(table["subscription"].filter(gone)) if last_s.is_valid else none


def without_ids(ids: pa.ChunkedArray, without: pa.Array) -> pa.ChunkedArray:
    """A mask of the ids that are not in ``without``."""
    return pc.invert(pc.is_in(ids.cast(pa.large_string()), value_set=without))


def read_subscribers(source: Location, profiled_ids: pa.ChunkedArray, without: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Subscriptions with their clients and brokers; without a table, each is its own client."""
    path = table_path(source, "subscription_lifetimes")
    if path is None:
        ids = texts(pc.unique(profiled_ids))
        return ids, ids, pa.nulls(len(ids), pa.large_string())
    table = arrow_table(path, ("subscription", "client"))
    table = table.filter(without_ids(table["subscription"], without)) if len(without) else table
    check_once(path, table, ("subscription",))
    nowhere = pa.nulls(table.num_rows, pa.large_string())
    brokers = texts(table["broker"]) if "broker" in table.column_names else nowhere
    return texts(table["subscription"]), texts(table["client"]), brokers


def check_places(source: Location, network: Network, parts: Sequence[tuple[str, pa.Array, pa.Array]]) -> None:
    """Raise an error that names a client or publisher at an unknown broker."""
    known = texts(network.pool.ids)
    for kind, ids, brokers in parts:
        lost = pc.and_(pc.is_valid(brokers), pc.invert(pc.is_in(brokers, value_set=known)))
        if pc.any(lost).as_py():
            at = pc.index(lost, True).as_py()
            raise InvalidInput(
                f"{source}: {kind} {ids[at].as_py()!r} is at broker {brokers[at].as_py()!r}, which is not in {network.source}:"
                " expected the network that was profiled, found another"
            )
