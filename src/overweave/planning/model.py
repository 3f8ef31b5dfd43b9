"""The model that allocators work on: items and bins in whole numbers.

Loads are counted in ticks, small parts of the largest broker, so that sums are exact in any order and a plan is the same for
rates and bandwidths in any unit. Output of a cluster adds up, its input is the union of vectors (THESIS 6.1.2, 6.2.3).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overweave.errors import DoesNotFit
from overweave.planning.problem import BitWords, Problem, Reals, Whole, counted
from overweave.planning.table import ProfileTable

#: Ticks of the largest broker's output, and of the heaviest bit's input.
_OUTPUT_TICKS, _INPUT_TICKS = 2.0**42, 2.0**28


@dataclass(frozen=True, eq=False)
class Items:
    """Items of an allocation: units, clusters of them, or the brokers of the layer below."""

    profile: Whole
    #: Output in ticks, and filters to match against.
    output: Whole
    entries: Whole
    #: The broker (position in the pool) to which an item is pinned, or -1.
    fixed: Whole

    def __len__(self) -> int:
        return len(self.profile)

    def take(self, chosen: Whole) -> "Items":
        """Some of them."""
        return Items(self.profile[chosen], self.output[chosen], self.entries[chosen], self.fixed[chosen])


@dataclass(frozen=True, eq=False)
class Bins:
    """Brokers on offer, in the order in which they are tried: pinned ones first, then by bandwidth, descending (6.2.1)."""

    broker: Whole
    #: The largest output that may be used; some has to remain (6.2.1: greater than 0).
    room: Whole
    base_s: Reals
    slope_s: Reals
    #: Input x matching delay may come to this; and input alone to that.
    busy_max: Reals
    input_max: Reals

    def __len__(self) -> int:
        return len(self.broker)

    def take(self, chosen: Whole) -> "Bins":
        """Some of them, in the order given."""
        limits = (column[chosen] for column in (self.base_s, self.slope_s, self.busy_max, self.input_max))
        return Bins(self.broker[chosen], self.room[chosen], *limits)

    def holds(self, bin: int, output: int, input: int, entries: int) -> bool:
        """The capacity test of THESIS 6.2.1: output remains, and input is at most the inverse of the matching delay."""
        if output > self.room[bin] or input > self.input_max[bin]:
            return False
        return bool(float(input) * (self.base_s[bin] + self.slope_s[bin] * entries) <= self.busy_max[bin])

    def holding(self, bins: Whole, output: int, input: int, entries: int) -> NDArray[np.bool_]:
        """Which of some bins hold that."""
        busy = float(input) * (self.base_s[bins] + self.slope_s[bins] * entries)
        return np.asarray((output <= self.room[bins]) & (input <= self.input_max[bins]) & (busy <= self.busy_max[bins]))


def shrunk(bins: Bins, share: Reals) -> Bins:
    """Bins of which only a share may be used, given for each."""
    room = np.floor(bins.room * share).astype(np.int64)
    return replace(bins, room=room, busy_max=bins.busy_max * share, input_max=bins.input_max * share)


@dataclass(frozen=True, eq=False)
class Model:
    """A problem in ticks. Items are the units, then one for each pinned publisher that is no client's side."""

    problem: Problem
    table: ProfileTable
    items: Items
    bins: Bins
    #: Ticks per bit of each publisher.
    input_weight: Whole
    output_weight: Whole
    tick_bytes_per_s: float
    tick_hz: float
    #: The item that publishes, or -1, per publisher.
    host: Whole
    item_ids: tuple[str, ...]

    def may_bind(self, bins: Bins, entries: int) -> bool:
        """Whether input could ever be what a broker has not enough of: if not, unions need not be looked at."""
        total = float(self.input_weight @ np.maximum(self.problem.publishers.window, 0))
        busy = total * (bins.base_s + bins.slope_s * entries)
        return bool(np.any(busy > bins.busy_max) or np.any(total > bins.input_max))

    def stream(self, profile: int) -> int:
        """The output that one copy of a profile takes: what a broker sends to the one below it."""
        return self.table.weighed(profile, self.output_weight)

    def input(self, profile: int) -> int:
        """The input that a profile is."""
        return self.table.weighed(profile, self.input_weight)


def make_model(problem: Problem) -> Model:
    """The model of a problem in canonical order."""
    publishers, goals = problem.publishers, problem.goals
    free = 1 - goals.headroom
    window = np.maximum(publishers.window, 1)
    tick_bytes = float(problem.pool.bandwidth_bytes_per_s.max()) / _OUTPUT_TICKS
    per_bit = publishers.rate_hz / window
    tick_hz = float(per_bit.max(initial=0.0)) / _INPUT_TICKS or 1.0
    output_weight = np.rint(publishers.bytes_per_s / window / tick_bytes).astype(np.int64)
    input_weight = np.rint(per_bit / tick_hz).astype(np.int64)
    _check_total(problem, free)
    table = ProfileTable(problem.vectors.words.shape[1])
    items, host, ids = _items(problem, table, tick_bytes)
    bins = _bins(problem, items, free, tick_bytes, tick_hz)
    return Model(problem, table, items, bins, input_weight, output_weight, tick_bytes, tick_hz, host, ids)


def _check_total(problem: Problem, free: float) -> None:
    usable = np.array([id not in problem.goals.exclude for id in problem.pool.ids])
    room = float(problem.pool.bandwidth_bytes_per_s[usable].sum()) * free
    needed = float(problem.units.output_bytes_per_s.sum())
    if needed > room:
        raise DoesNotFit(None, f"deliveries need {needed:.6g} bytes/s, all brokers together have {room:.6g}")


def _items(problem: Problem, table: ProfileTable, tick_bytes: float) -> tuple[Items, Whole, tuple[str, ...]]:
    units, publishers, pins = problem.units, problem.publishers, problem.goals.pins
    position = {id: i for i, id in enumerate(problem.pool.ids)}
    profile = _profiles(problem, table)
    output, entries = units.output_bytes_per_s.copy(), units.filters.copy()
    fixed = np.array([position[pins[id]] if id in pins else -1 for id in units.ids], np.int64)
    host, ids, extra = publishers.unit.copy(), list(units.ids), []
    wanting = _filters_wanting(problem)
    for p, id in enumerate(publishers.ids):
        if host[p] < 0 and id in pins:
            host[p] = len(ids)
            ids.append(id)
            extra.append((table.add(np.zeros(0, np.int64), table.words[:0]), position[pins[id]]))
        elif host[p] >= 0 and id in pins:
            fixed[host[p]] = position[pins[id]]
    profile = np.concatenate([profile, np.array([each for each, _ in extra], np.int64)])
    fixed = np.concatenate([fixed, np.array([each for _, each in extra], np.int64)])
    output = np.concatenate([output, np.zeros(len(extra))])
    entries = np.concatenate([entries, np.zeros(len(extra), np.int64)])
    for p in np.flatnonzero(host >= 0).tolist():
        # A publishing side brings all its publications in and sends each up once: then upper layers need no special case.
        whole = table.add(np.array([p], np.int64), whole_window(problem, p)[None, :])
        profile[host[p]] = table.unite([int(profile[host[p]]), whole])
        output[host[p]] += publishers.bytes_per_s[p]
        entries[host[p]] += wanting[p]
    ticks = np.rint(output / tick_bytes).astype(np.int64)
    return Items(profile, ticks, entries, fixed), host, tuple(ids)


def _profiles(problem: Problem, table: ProfileTable) -> Whole:
    """The profile of each unit; units with the same rows are found without looking at their words."""
    units, vectors = problem.units, problem.vectors
    starts, rows = units.row_start.tolist(), units.rows.tolist()
    known: dict[tuple[int, ...], int] = {}
    found = np.empty(len(units), np.int64)
    for unit in range(len(units)):
        key = tuple(rows[starts[unit] : starts[unit + 1]])
        number = known.get(key)
        if number is None:
            chosen = np.array(key, np.int64)
            number = known[key] = table.add(vectors.publisher[chosen], np.ascontiguousarray(vectors.words[chosen]))
        found[unit] = number
    return found


def _filters_wanting(problem: Problem) -> Whole:
    units, found = problem.units, np.zeros(len(problem.publishers), np.int64)
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    np.add.at(found, problem.vectors.publisher[units.rows], units.filters[owner])
    return found


def whole_window(problem: Problem, publisher: int) -> BitWords:
    """A vector of all publications of the window. Unset bits are alike, so any of them serve."""
    vectors, window = problem.vectors, int(problem.publishers.window[publisher])
    own = vectors.words[vectors.publisher == publisher]
    words = np.bitwise_or.reduce(own, axis=0) if len(own) else np.zeros(vectors.words.shape[1], np.uint64)
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
    missing = window - int(counted(words[None, :])[0])
    bits[np.flatnonzero(bits == 0)[: max(missing, 0)]] = 1
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)


def _bins(problem: Problem, items: Items, free: float, tick_bytes: float, tick_hz: float) -> Bins:
    pool = problem.pool
    usable = [i for i, id in enumerate(pool.ids) if id not in problem.goals.exclude]
    chosen = np.array(usable, np.int64)
    unpinned = ~np.isin(chosen, items.fixed)
    bandwidth = pool.bandwidth_bytes_per_s[chosen]
    order = np.lexsort((chosen, -pool.capacity_hz[chosen], pool.slope_s[chosen], pool.base_s[chosen], -bandwidth, unpinned))
    chosen = chosen[order]
    room = np.ceil(np.round(pool.bandwidth_bytes_per_s[chosen] * free / tick_bytes, 3)).astype(np.int64) - 1
    count = len(chosen)
    return Bins(
        chosen,
        room,
        pool.base_s[chosen],
        pool.slope_s[chosen],
        np.full(count, free / tick_hz),
        pool.capacity_hz[chosen] * free / tick_hz,
    )
