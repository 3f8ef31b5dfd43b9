"""The planning problem: brokers on offer, what publishers send, what every unit receives, and the goals.

A *unit* is what is placed as one: a client with all its subscriptions and its publishing side, or a single subscription. Its
profile is a set of bit vectors, one per publisher (THESIS 6.1.2); equal vectors are one row of `Vectors`. All vectors of a
publisher are aligned: a bit stands for the same publication in each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.errors import DoesNotFit, GoalNotMet, PlanningError
from overweave.planning.boxes import FilterBoxes
from overweave.planning.contradictions import check_contradictions

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]
BitWords = NDArray[np.uint64]

#: The default spare capacity of every broker.
HEADROOM = 0.2


@dataclass(frozen=True, eq=False)
class Pool:
    """The brokers on offer: total output bandwidth, and the line of the matching delay over the number of filters (6.1.1)."""

    ids: tuple[str, ...]
    bandwidth_bytes_per_s: Reals
    base_s: Reals
    slope_s: Reals
    #: Publications per second that it can take at most; infinite where the matching delay is the only limit.
    capacity_hz: Reals
    #: What using each broker costs, in any unit; None: all cost the same.
    cost: Reals | None = None

    @classmethod
    def equal(cls, count: int, bandwidth_bytes_per_s: float, base_s: float = 1e-5, slope_s: float = 1e-7) -> "Pool":
        """``B1`` … ``Bcount``, all alike.

        >>> Pool.equal(2, 1e6).ids
        ('B1', 'B2')
        """
        ids = tuple(f"B{i + 1}" for i in range(count))
        values = (np.full(count, value, np.float64) for value in (bandwidth_bytes_per_s, base_s, slope_s, np.inf))
        return cls(ids, *values)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, order: Whole) -> "Pool":
        """The brokers at some positions."""
        bandwidth, base_s, slope_s, capacity_hz = (
            column[order] for column in (self.bandwidth_bytes_per_s, self.base_s, self.slope_s, self.capacity_hz)
        )
        cost = None if self.cost is None else self.cost[order]
        return Pool(tuple(self.ids[i] for i in order.tolist()), bandwidth, base_s, slope_s, capacity_hz, cost)

    @property
    def costs(self) -> Reals:
        """The cost of each broker; 1 by default."""
        return np.ones(len(self)) if self.cost is None else self.cost


@dataclass(frozen=True, eq=False)
class Publishers:
    """What publishers send (6.1.2); one with a unit is the publishing side of that client, the others are placed freely."""

    ids: tuple[str, ...]
    rate_hz: Reals
    bytes_per_s: Reals
    #: Publications that the profiles really hold, at most as many as a vector has bits.
    window: Whole
    #: The unit that publishes, or -1.
    unit: Whole

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Distinct bit vectors, one row each."""

    publisher: Whole
    words: BitWords
    ones: Whole

    def __len__(self) -> int:
        return len(self.publisher)


@dataclass(frozen=True, eq=False)
class Units:
    """Units of placement. The vectors of unit i are ``rows[row_start[i]:row_start[i + 1]]``, at most one per publisher."""

    ids: tuple[str, ...]
    row_start: Whole
    rows: Whole
    #: Publications delivered in the window, per row: more than the vector's ones where several subscriptions match.
    row_deliveries: Whole
    output_bytes_per_s: Reals
    filters: Whole
    #: Subscriptions and the unit of each.
    subscriptions: tuple[str, ...]
    subscription_unit: Whole

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Today:
    """The network as it is: the position in the pool of each unit's and each publisher's broker (-1: nowhere), and the links."""

    units: Whole
    publishers: Whole
    links: tuple[tuple[str, str], ...] = ()


class Goals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Constraints of a plan. One that cannot be met is an error that names it, never dropped."""

    #: The share of every broker's input and output that stays free.
    headroom: float = HEADROOM
    #: Mean predicted delay of a delivery.
    delay_s_max: float | None = None
    #: Clients and publishers to brokers.
    pins: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: Brokers that may not be used.
    exclude: tuple[str, ...] = ()
    #: Clients and publishers that may move, compared with today.
    moves_max: int | None = None
    #: Brokers that may be used at most.
    brokers_max: int | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a plan is made of."""

    pool: Pool
    publishers: Publishers
    vectors: Vectors
    units: Units
    today: Today | None = None
    goals: Goals = field(default_factory=Goals)
    #: Advertisements and subscriptions as boxes, for similarity by boxes (MINIMAL).
    boxes: FilterBoxes | None = None

    def validate(self) -> None:
        """Raise a `PlanningError` that names the defect."""
        _check_pool(self.pool)
        _check_publishers(self.publishers, len(self.units))
        _check_vectors(self.vectors, self.publishers)
        _check_units(self.units, self.vectors)
        _check_goals(self)
        check_contradictions(self)
        _check_sizes(self)


def _check_pool(pool: Pool) -> None:
    if not len(pool):
        raise PlanningError("brokers: expected at least one, found none")
    _check_ids("broker", pool.ids)
    _check_lengths("broker", len(pool), vars(pool))
    for name in ("bandwidth_bytes_per_s", "capacity_hz"):
        _check_numbers("broker", pool.ids, name, getattr(pool, name), above=True, finite=name != "capacity_hz")
    for name in ("base_s", "slope_s", "costs"):
        _check_numbers("broker", pool.ids, name.removesuffix("s") if name == "costs" else name, getattr(pool, name))


def _check_publishers(publishers: Publishers, units: int) -> None:
    _check_ids("publisher", publishers.ids)
    _check_lengths("publisher", len(publishers), vars(publishers))
    for name in ("rate_hz", "bytes_per_s", "window"):
        _check_numbers("publisher", publishers.ids, name, getattr(publishers, name).astype(np.float64))
    for i in np.flatnonzero((publishers.unit < -1) | (publishers.unit >= units))[:1].tolist():
        raise PlanningError(f"publisher {publishers.ids[i]!r}: unit: expected one of {units}, found {publishers.unit[i]}")


def _check_vectors(vectors: Vectors, publishers: Publishers) -> None:
    for i in np.flatnonzero((vectors.publisher < 0) | (vectors.publisher >= len(publishers)))[:1].tolist():
        raise PlanningError(f"vector {i}: expected one of {len(publishers)} publishers, found number {vectors.publisher[i]}")
    for i in np.flatnonzero(vectors.ones != counted(vectors.words))[:1].tolist():
        raise PlanningError(f"vector {i}: ones: expected the number of set bits, found {vectors.ones[i]}")
    seen = np.zeros((len(publishers), vectors.words.shape[1]), np.uint64)
    np.bitwise_or.at(seen, vectors.publisher, vectors.words)
    for i in np.flatnonzero(counted(seen) > publishers.window)[:1].tolist():
        found = int(counted(seen[i : i + 1])[0])
        raise PlanningError(
            f"publisher {publishers.ids[i]!r}: window: expected at least the {found} publications that were delivered,"
            f" found {publishers.window[i]}"
        )


def _check_units(units: Units, vectors: Vectors) -> None:
    _check_ids("client", units.ids)
    for i in np.flatnonzero((units.rows < 0) | (units.rows >= len(vectors)))[:1].tolist():
        raise PlanningError(f"units: rows: expected one of {len(vectors)} vectors, found number {units.rows[i]}")
    _check_numbers("client", units.ids, "output_bytes_per_s", units.output_bytes_per_s)
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    pairs = owner * (int(vectors.publisher.max(initial=0)) + 1) + vectors.publisher[units.rows]
    if len(np.unique(pairs)) < len(pairs):
        raise PlanningError("units: rows: expected at most one vector per publisher in a unit")


def _check_goals(problem: Problem) -> None:
    goals, brokers = problem.goals, set(problem.pool.ids)
    if not 0 <= goals.headroom < 1:
        raise GoalNotMet("headroom", f"expected a share from 0 to below 1, found {goals.headroom:g}")
    for name, least in (("moves_max", 0), ("brokers_max", 1)):
        value = getattr(goals, name)
        if value is not None and value < least:
            raise GoalNotMet(name, f"expected a whole number from {least} on, found {value}")
    for id in goals.exclude:
        if id not in brokers:
            raise GoalNotMet("exclude", f"broker {id!r} is not in the pool")
    if len(set(goals.exclude)) == len(brokers):
        raise GoalNotMet("exclude", "expected at least one broker that may be used, found none")
    known = {*problem.units.ids, *problem.publishers.ids}
    for id, broker in goals.pins.items():
        if id not in known:
            raise GoalNotMet("pins", f"client or publisher {id!r} is not in the problem")
        if broker not in brokers:
            raise GoalNotMet("pins", f"{id!r}: broker {broker!r} is not in the pool")
        if broker in goals.exclude:
            raise GoalNotMet("pins", f"{id!r} is pinned to {broker!r}, which is excluded")
    for publisher, unit in zip(problem.publishers.ids, problem.publishers.unit.tolist(), strict=True):
        client = problem.units.ids[unit] if unit >= 0 else publisher
        pinned = {goals.pins[id] for id in (publisher, client) if id in goals.pins}
        if len(pinned) > 1:
            raise GoalNotMet("pins", f"publisher {publisher!r} and its client {client!r} are pinned to different brokers")
    if goals.moves_max is not None and problem.today is None:
        raise GoalNotMet("moves_max", "expected to know where clients are today")


def _check_sizes(problem: Problem) -> None:
    """A unit larger than every broker is named before any search."""
    room = problem.pool.bandwidth_bytes_per_s * (1 - problem.goals.headroom)
    usable = np.array([id not in problem.goals.exclude for id in problem.pool.ids])
    largest, output = float(room[usable].max()), problem.units.output_bytes_per_s
    for i in np.flatnonzero(output >= largest)[:1].tolist():
        raise DoesNotFit(
            problem.units.ids[i],
            f"client {problem.units.ids[i]!r}: needs {output[i]:.6g} bytes/s,"
            f" the largest broker has {largest:.6g} less than all of which can be used",
        )


def _check_ids(kind: str, ids: tuple[str, ...]) -> None:
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(id for id in ids if id in seen or seen.add(id))  # type: ignore[func-returns-value]
        raise PlanningError(f"{kind} {twice!r}: expected every id once")


def _check_lengths(kind: str, count: int, columns: Mapping[str, object]) -> None:
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and len(values) != count:
            raise PlanningError(f"{kind}: {name}: expected {count} values, found {len(values)}")


def _check_numbers(
    kind: str, ids: tuple[str, ...], name: str, values: Reals, *, above: bool = False, finite: bool = True
) -> None:
    wrong = ~(values > 0) if above else ~(values >= 0)
    if finite:
        wrong |= ~np.isfinite(values)
    for i in np.flatnonzero(wrong)[:1].tolist():
        wanted = "above 0" if above else "from 0 on"
        raise PlanningError(f"{kind} {ids[i]!r}: {name}: expected a number {wanted}, found {values[i]:g}")


def counted(words: BitWords) -> Whole:
    """How many bits of each row are set.

    >>> counted(np.array([[7, 1], [0, 0]], np.uint64)).tolist()
    [4, 0]
    """
    found: Whole = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return found
