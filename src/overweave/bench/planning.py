"""``overweave bench planning``: from Parquet to a plan, and its parts against plain numpy in the same run.

What is promised is the time from a directory of profiles in Parquet to a plan, Spark left out: profiles need none.

The plain versions are as one would write them: first fit over an array of rooms, and clustering by a matrix of all pairs of
distinct vectors, which only asks whether a cluster fits a broker and packs nothing. The matrix is quadratic, so both are
measured on `PLAIN` subscriptions, as the row says, next to ours on the same ones. Times are the best of several runs.
"""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.bench.planning_tables import plain_profiles, write_profile
from overweave.pipeline.plan_brokers import Network, read_brokers
from overweave.pipeline.planning import read_problem
from overweave.planning.allocate import ALLOCATORS
from overweave.planning.canonical import canonical
from overweave.planning.make import make_plan
from overweave.planning.model import make_model
from overweave.planning.problem import Goals, Pool, Problem, Publishers
from overweave.planning.profiles import Profiles, assemble, packed

#: Subscriptions that the plain version can do in seconds.
PLAIN = 2_000
PUBLISHERS, RATE_HZ, MESSAGE_BYTES, BITS = 40, 70 / 60, 220.0, 1_280
#: About what saturates MANUAL: enough for all deliveries at every size.
BANDWIDTH_BYTES_PER_S, PER_BROKER = 43_000.0, 100
#: Promised: seconds from profiles to a plan.
SECONDS_MAX = {8_000: 3.0, 100_000: 30.0}
TIMED = ("bin-packing", "cram-iou")


def run(progress: Progress, subscriptions: Sequence[int] = (8_000, 100_000)) -> list[Row]:
    """Plans at every size, then both versions at a size the plain one can do."""
    rows = []
    # Kernels are read from disk or compiled before anything is timed.
    for name in TIMED:
        make_plan(_problem(400), name)
    for count in subscriptions:
        progress(f"{count:,} subscriptions: profiles")
        problem = _problem(count)
        for name in TIMED:
            progress(f"{count:,} subscriptions: {name}")
            ours = _best(partial(make_plan, problem, name), 3 if count <= 20_000 else 1)
            rows.append(Row(f"{count:,} subscriptions: {name}", "s", ours))
        rows += _from_parquet(problem, count, progress)
    few = min(PLAIN, *subscriptions)
    progress(f"{few:,} subscriptions: plain numpy")
    problem = _problem(few)
    model, draw = make_model(canonical(problem)), np.random.default_rng(0)
    for name, plain in (("bin-packing", plain_packing), ("cram-iou", plain_clusters)):
        ours = _best(partial(ALLOCATORS[name], model, model.items, model.bins, draw), 3)
        theirs = _best(partial(plain, problem), 1)
        rows.append(Row(f"{few:,} subscriptions, allocation alone: {name}", "s", ours, theirs))
    return rows


def _from_parquet(problem: Problem, count: int, progress: Progress) -> list[Row]:
    """Reading alone, next to a plain reader, and all from tables to a plan, in seconds and in seconds of the processor."""
    progress(f"{count:,} subscriptions: from Parquet")
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "profile"
        write_profile(problem, directory)
        network = Network(read_brokers(directory / "brokers"))
        read = partial(read_problem, directory, network, problem.goals)
        ours, theirs = _best(read, 3), _best(partial(plain_profiles, directory), 1)
        began_s, busy_s = perf_counter(), process_time()
        make_plan(read(), "cram-iou")
        whole_s, busy_s = perf_counter() - began_s, process_time() - busy_s
    limit = f", at most {SECONDS_MAX[count]:g} s" if count in SECONDS_MAX else ""
    return [
        Row(f"{count:,} subscriptions: a checked problem from Parquet (plain: vectors alone)", "s", ours, theirs),
        Row(f"{count:,} subscriptions: from Parquet to a plan by cram-iou{limit}", "s", whole_s),
        Row(f"{count:,} subscriptions: the same in seconds of one processor", "s", busy_s),
    ]


def _problem(subscriptions: int) -> Problem:
    """As the thesis's (7.3.2): prices that wander, 40 % want all of a publisher's, 60 % those below one of them."""
    draw, count = np.random.default_rng(1), min(PUBLISHERS, subscriptions)
    each = subscriptions // count
    words = []
    for _ in range(count):
        price = np.cumsum(draw.normal(size=BITS))
        limit = np.where(np.arange(each) < 0.4 * each, np.inf, price[draw.integers(BITS, size=each)])
        words.append(packed((price[None, :] < limit[:, None]).astype(np.uint8)))
    rate = np.full(count, RATE_HZ)
    window, unit = np.full(count, BITS), np.full(count, -1)
    publishers = Publishers(tuple(f"P{i + 1}" for i in range(count)), rate, rate * MESSAGE_BYTES, window, unit)
    total = count * each
    profiles = Profiles(np.arange(total), np.repeat(np.arange(count), each), np.concatenate(words))
    pool = Pool.equal(max(8, subscriptions // PER_BROKER), BANDWIDTH_BYTES_PER_S)
    return assemble(pool, publishers, profiles, [f"s{i + 1}" for i in range(total)], goals=Goals(headroom=0.0))


def plain_packing(problem: Problem) -> int:
    """First fit, descending, of all subscriptions with the unions of their vectors: how many brokers (THESIS 6.2.2)."""
    units, vectors, publishers = problem.units, problem.vectors, len(problem.publishers)
    room = problem.pool.bandwidth_bytes_per_s.copy()
    unions = np.zeros((len(room), publishers, vectors.words.shape[1]), np.uint64)
    for unit in np.argsort(-units.output_bytes_per_s, kind="stable").tolist():
        bin = int(np.flatnonzero(room > units.output_bytes_per_s[unit])[0])
        room[bin] -= units.output_bytes_per_s[unit]
        for row in units.rows[units.row_start[unit] : units.row_start[unit + 1]].tolist():
            unions[bin, vectors.publisher[row]] |= vectors.words[row]
    return int(np.count_nonzero(room < problem.pool.bandwidth_bytes_per_s))


def plain_clusters(problem: Problem) -> int:
    """Clusters by IOU: the closest two become one while they fit a broker; all pairs of distinct vectors are compared once."""
    units, vectors = problem.units, problem.vectors
    words, publisher = vectors.words.copy(), vectors.publisher
    load = np.bincount(units.rows, weights=_row_loads(problem), minlength=len(vectors))
    room = float(problem.pool.bandwidth_bytes_per_s.max())
    alive = np.ones(len(words), bool)
    close = np.full((len(words), len(words)), -1.0)
    for one in range(len(words)):
        close[one] = _closeness(words, publisher, alive, one)
    while float(close.max()) > 0:
        one, other = divmod(int(close.argmax()), len(words))
        if not load[one] + load[other] < room:
            close[one, other] = close[other, one] = -1.0
            continue
        words[one] |= words[other]
        load[one] += load[other]
        alive[other] = False
        close[other] = close[:, other] = -1.0
        close[one] = close[:, one] = _closeness(words, publisher, alive, one)
    return int(alive.sum())


def _owners(problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.repeat(np.arange(len(problem.units)), np.diff(problem.units.row_start))


def _row_loads(problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes per second of each unit's row; in these scenarios a unit has one."""
    return problem.units.output_bytes_per_s[_owners(problem)]


def _closeness(
    words: np.ndarray[tuple[int, int], np.dtype[np.uint64]],
    publisher: np.ndarray[tuple[int], np.dtype[np.int64]],
    alive: np.ndarray[tuple[int], np.dtype[np.bool_]],
    one: int,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """IOU of one vector with all: |A and B|^2 / |A or B|; -1 with itself, strangers and the dead."""
    both = np.bitwise_count(words & words[one]).sum(axis=1).astype(np.float64)
    either = np.bitwise_count(words | words[one]).sum(axis=1)
    found = np.where(alive & (publisher == publisher[one]), both * both / np.maximum(either, 1), -1.0)
    found[one] = -1.0
    return found


def _best(action: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        start = perf_counter()
        action()
        best = min(best, perf_counter() - start)
    return best
