"""``overweave bench matching``: the index against a numpy brute force over the same filters, in the same run.

Publications go in as they come from a socket, in their wire form and in batches; the brute force has its values in an array.
Both answer with an array of positions, for next hops with a truth value per link. The promised ratios are against the brute
force as one would write it, filters in the rows of a table; the same tuned by hand, by columns, stands below it. Times are
the best of several runs.
"""

import gc
import resource
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from overweave.bench.base import Progress, Row
from overweave.bench.workloads import Intervals, brute_force, brute_force_by_columns, publications, w1, w1_values, w2, w2_values
from overweave.language.predicates import Filter
from overweave.matching.index import Index
from overweave.matching.kernels.match import ALL, ANY, SKIP
from overweave.matching.search import PublicationView, view_of

Array = NDArray[np.float64]
LINKS = 4
WORKLOADS = {"W1": (w1, w1_values), "W2": (w2, w2_values)}
#: Promised ratios by workload, size and query.
RATIOS = {("W1", 100_000, "ids"): 25.0, ("W1", 100_000, "next hops"): 500.0, ("W2", 100_000, "ids"): 100.0}
BATCH = 1024
#: Enough that a pool which happens to grow meanwhile counts for what it costs on average.
CHANGES = 20_000


def run(progress: Progress, subscriptions: Sequence[int] = (10_000, 100_000, 1_000_000)) -> list[Row]:
    """Measure both workloads at every size."""
    rows: list[Row] = []
    for name, (make, make_values) in WORKLOADS.items():
        for count in subscriptions:
            progress(f"{name}, {count:,} filters: loading")
            intervals = make(count)
            title = f"{name}, {count:,} filters"
            gc.collect()
            before = _resident_bytes()
            index, seconds = _load(intervals)
            rows.append(Row(f"{title}: bulk load", "s", seconds))
            rows.append(Row(f"{title}: resident", "MB", (_resident_bytes() - before) / 1e6))
            progress(f"{name}, {count:,} filters: matching")
            rows += _matching(name, title, count, intervals, make_values(BATCH), index)
            progress(f"{name}, {count:,} filters: adding and removing")
            rows += _changes(title, make(CHANGES, 9), index)
            del index, intervals
            gc.collect()
    return rows


def _load(intervals: Intervals) -> tuple[Index, float]:
    """An index of all filters, and how long it took to take them in (not to make them)."""
    index, taken = Index(), 0.0
    for chunk in _chunks(intervals.filters()):
        entries = [(id, filter, f"B{id % LINKS}") for id, filter in chunk]
        start = perf_counter()
        index.add_many(entries)
        taken += perf_counter() - start
    return index, taken


def _matching(name: str, title: str, count: int, intervals: Intervals, values: Array, index: Index) -> Iterator[Row]:
    batch = view_of(publications(intervals, values))
    few = values[: max(3, min(100, 10_000_000 // count))]
    low, high = np.ascontiguousarray(intervals.low.T), np.ascontiguousarray(intervals.high.T)
    brute_forces: dict[str, Callable[[Array], NDArray[np.bool_]]] = {
        "": lambda row: brute_force(intervals, row),
        ", against columns": lambda row: brute_force_by_columns(low, high, row),
    }
    answers: dict[str, tuple[int, Callable[[NDArray[np.bool_]], object]]] = {
        "ids": (ALL, np.flatnonzero),
        "next hops": (ANY, lambda matching: [matching[link::LINKS].any() for link in range(LINKS)]),
    }
    for question, (want, answer) in answers.items():
        wanted = np.full(LINKS + 1, want, np.int8)
        wanted[0] = SKIP
        ours = _best(partial(index.search, batch, wanted), 5) / len(values)
        for how, brute in brute_forces.items():
            theirs = _best(partial(_answer_all, brute, answer, few), 3) / len(few)
            promised = RATIOS.get((name, count, question)) if how == "" else None
            yield Row(f"{title}: {question}{how}", "µs per publication", ours * 1e6, theirs * 1e6, ratio_min=promised)
        alone = _best(partial(_one_by_one, index, batch, wanted), 3) / 100
        yield Row(f"{title}: {question}, one at a time", "µs per publication", alone * 1e6)


def _answer_all(
    brute: Callable[[Array], NDArray[np.bool_]], answer: Callable[[NDArray[np.bool_]], object], values: Array
) -> None:
    for row in values:
        answer(brute(row))


def _one_by_one(index: Index, batch: PublicationView, wanted: NDArray[np.int8]) -> None:
    data, starts, ends = batch
    for row in range(100):
        index.search(PublicationView(data, starts[row : row + 1], ends[row : row + 1]), wanted)


def _changes(title: str, intervals: Intervals, index: Index) -> Iterator[Row]:
    entries = [(("new", i), filter) for i, filter in enumerate(intervals.filters())]
    index.add(*entries[0])
    index.remove(entries[0][0])  # code that is used for the first time has to be read from disk
    start = perf_counter()
    for id, filter in entries:
        index.add(id, filter, "B1")
    middle = perf_counter()
    for id, _ in entries:
        index.remove(id)
    end = perf_counter()
    yield Row(f"{title}: add one", "µs", (middle - start) / len(entries) * 1e6)
    yield Row(f"{title}: remove one", "µs", (end - middle) / len(entries) * 1e6)


def _chunks(filters: Iterator[Filter]) -> Iterator[list[tuple[int, Filter]]]:
    chunk: list[tuple[int, Filter]] = []
    for numbered in enumerate(filters):
        chunk.append(numbered)
        if len(chunk) == 8192:
            yield chunk
            chunk = []
    yield chunk


def _best(action: Callable[[], object], times: int) -> float:
    best = float("inf")
    action()
    for _ in range(times):
        start = perf_counter()
        action()
        best = min(best, perf_counter() - start)
    return best


def _resident_bytes() -> int:
    """What the process holds now, not at its peak: making a workload takes more for a moment than the index does permanently."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
