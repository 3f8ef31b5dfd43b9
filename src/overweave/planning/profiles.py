"""Profiles: the load from bit vectors, the corrections for short ones, and problems made of them (THESIS 6.1.2, 7.3.8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.problem import BitWords, Goals, Pool, Problem, Publishers, Today, Units, Vectors, Whole, counted

WORD = 64


@dataclass(frozen=True, eq=False)
class Profiles:
    """One bit vector per subscription and publisher, by their positions; vectors of one publisher are aligned."""

    subscription: Whole
    publisher: Whole
    words: BitWords


class Window:
    """A bounded bit vector as THESIS 6.1.2 describes it: it shifts just enough to record a publication in its last bit.

    >>> window = Window(10, first=100)
    >>> window.record(119)
    >>> window.first, window.bits.tolist()
    (110, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """

    def __init__(self, length: int, first: int = 0) -> None:
        self.first = first
        self.bits = np.zeros(length, np.uint8)

    def record(self, sequence: int) -> None:
        """Set the bit of a publication; one from before the window is forgotten."""
        index = sequence - self.first
        if (shift := index - len(self.bits) + 1) > 0:
            kept = self.bits[shift:]
            self.bits = np.concatenate([kept, np.zeros(len(self.bits) - len(kept), np.uint8)])
            self.first += shift
            index -= shift
        if index >= 0:
            self.bits[index] = 1

    def aligned(self, last: int) -> BitWords:
        """The words of the window that ends at the publisher's ``last`` publication, which makes all vectors comparable.

        >>> window = Window(64)
        >>> window.record(3)
        >>> window.aligned(last=64).tolist()  # the window 1..64
        [4]
        """
        moved = Window(len(self.bits), last - len(self.bits) + 1)
        for index in np.flatnonzero(self.bits).tolist():
            moved.record(self.first + index)
        words: BitWords = packed(moved.bits[None, :])[0]
        return words


def packed(bits: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> BitWords:
    """Rows of single bits as words; short rows are filled up with zeros.

    >>> packed(np.array([[1, 1, 0, 1]], np.uint8)).tolist()
    [[11]]
    """
    width = -(-bits.shape[1] // WORD) * WORD
    filled = np.zeros((len(bits), width), np.uint8)
    filled[:, : bits.shape[1]] = bits
    words: BitWords = np.packbits(filled, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    return words


def share(ones: int, window: int, total: float) -> float:
    """What a subscription takes of a publisher's rate or bandwidth (THESIS 6.1.2).

    >>> share(10, 100, 50.0)  # 10 of 100 bits of 50 msg/s; likewise of 50 kB/s
    5.0
    """
    return total * ones / window if window else 0.0


def corrected(ones: Whole, bits: int) -> Whole:
    """Bit counts raised for vectors too short to be trusted (THESIS 7.3.8), never above ``bits``.

    1,024 bits: at least 20 %, below 40 % a quarter more. At most 512: at least 35 %, below 25 % 30 % more, below 40 % 45 % more.
    The text is silent on 513..1,023, where we take the rule of 512, and above 1,024, where we take none. Subscriptions that
    received nothing are exempt: with half of them idle, each would otherwise count as a fifth of its publisher.

    >>> corrected(np.array([0, 10, 300, 500]), 1024).tolist()
    [0, 205, 375, 500]
    >>> corrected(np.array([0, 10, 120, 190, 300]), 512).tolist()
    [0, 180, 180, 276, 300]
    """
    if bits > 1024:
        return ones
    density = ones / max(bits, 1)
    if bits == 1024:
        least, factor = 0.2, np.where(density < 0.4, 1.25, 1.0)
    else:
        least, factor = 0.35, np.where(density < 0.25, 1.3, np.where(density < 0.4, 1.45, 1.0))
    raised = np.minimum(np.maximum(np.ceil(ones * factor), np.ceil(least * bits)), bits)
    return np.where(ones > 0, raised, 0).astype(np.int64)


def assemble(
    pool: Pool,
    publishers: Publishers,
    profiles: Profiles,
    subscriptions: Sequence[str],
    clients: Sequence[str] | None = None,
    *,
    clients_at: Sequence[str | None] | None = None,
    publishers_at: Sequence[str | None] | None = None,
    publishing: Sequence[str | None] | None = None,
    links: tuple[tuple[str, str], ...] = (),
    copies: Literal["subscription", "client"] = "subscription",
    correct: bool = False,
    goals: Goals | None = None,
) -> Problem:
    """A validated problem. Without ``clients`` every subscription is a unit of its own (the thesis's scenarios).

    ``clients`` and ``clients_at`` are given per subscription, ``publishers_at`` and ``publishing`` (the client that publishes)
    per publisher. ``copies`` says whether a client gets a publication once per matching subscription, or once.
    """
    owners = list(subscriptions) if clients is None else list(clients)
    ids = list(dict.fromkeys([*owners, *(client for client in publishing or () if client is not None)]))
    position = {id: i for i, id in enumerate(ids)}
    unit_of = np.array([position[owner] for owner in owners], np.int64)
    side = np.array([position[each] if each is not None else -1 for each in publishing or [None] * len(publishers)], np.int64)
    publishers = Publishers(publishers.ids, publishers.rate_hz, publishers.bytes_per_s, publishers.window, side)
    _check_profiles(profiles, publishers, len(owners))
    vectors, units = _grouped(publishers, profiles, tuple(ids), tuple(subscriptions), unit_of, copies, correct)
    today = None
    if clients_at is not None or publishers_at is not None:
        today = _today(pool, units, publishers, clients_at, publishers_at, links)
    problem = Problem(pool, publishers, vectors, units, today, goals or Goals())
    problem.validate()
    return problem


def _check_profiles(profiles: Profiles, publishers: Publishers, subscriptions: int) -> None:
    for kind, values, count in (
        ("publisher", profiles.publisher, len(publishers)),
        ("subscription", profiles.subscription, subscriptions),
    ):
        for i in np.flatnonzero((values < 0) | (values >= count))[:1].tolist():
            raise PlanningError(f"profile {i}: expected a known {kind}, found number {values[i]} of {count}")


def _grouped(
    publishers: Publishers,
    profiles: Profiles,
    ids: tuple[str, ...],
    subscriptions: tuple[str, ...],
    unit_of: Whole,
    copies: str,
    correct: bool,
) -> tuple[Vectors, Units]:
    """Vectors united per unit and publisher, equal ones as one row."""
    width = profiles.words.shape[1]
    unit, publisher = unit_of[profiles.subscription], profiles.publisher
    order = np.lexsort((profiles.subscription, publisher, unit))
    key = unit[order] * len(publishers) + publisher[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    words = np.bitwise_or.reduceat(profiles.words[order], first, axis=0) if len(first) else np.zeros((0, width), np.uint64)
    ones = counted(profiles.words)
    united_ones, owner, source = counted(words), unit[order][first], publisher[order][first]
    window = np.maximum(publishers.window, 1)
    if copies == "subscription":
        delivered = np.add.reduceat(ones[order], first) if len(first) else np.zeros(0, np.int64)
        counts = _corrected(ones, publishers.window[publisher]) if correct else ones
        loads, at, by = counts, unit, publisher
    else:
        delivered = united_ones
        loads, at, by = (_corrected(united_ones, publishers.window[source]) if correct else united_ones), owner, source
    output = np.zeros(len(ids))
    np.add.at(output, at, loads / window[by] * publishers.bytes_per_s[by])
    kept = np.flatnonzero(united_ones)
    rows, vectors = _distinct(source[kept], words[kept], united_ones[kept])
    row_start = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(np.bincount(owner[kept], minlength=len(ids)), out=row_start[1:])
    filters = np.bincount(unit_of, minlength=len(ids)).astype(np.int64)
    return vectors, Units(ids, row_start, rows, delivered[kept].astype(np.int64), output, filters, subscriptions, unit_of)


def _corrected(ones: Whole, windows: Whole) -> Whole:
    out = np.zeros_like(ones)
    for bits in np.unique(windows).tolist():
        chosen = windows == bits
        out[chosen] = corrected(ones[chosen], bits)
    return out


def _distinct(publisher: Whole, words: BitWords, ones: Whole) -> tuple[Whole, Vectors]:
    """For every row the number of its vector, and the distinct vectors in the order of publishers."""
    if not len(publisher):
        return np.zeros(0, np.int64), Vectors(publisher, words, ones)
    table = np.concatenate([publisher[:, None].astype(">u8").view(np.uint64), words], axis=1)
    whole = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1] * 8))).ravel()
    _, example, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return inverse.astype(np.int64), Vectors(publisher[example], np.ascontiguousarray(words[example]), ones[example])


def _today(
    pool: Pool,
    units: Units,
    publishers: Publishers,
    clients_at: Sequence[str | None] | None,
    publishers_at: Sequence[str | None] | None,
    links: tuple[tuple[str, str], ...],
) -> Today:
    position = {id: i for i, id in enumerate(pool.ids)}
    at = np.full(len(units), -1, np.int64)
    for unit, broker in zip(units.subscription_unit.tolist(), clients_at or (), strict=False):
        at[unit] = position.get(broker, -1) if broker is not None else -1
    sources = np.full(len(publishers), -1, np.int64)
    for i, broker in enumerate(publishers_at or ()):
        sources[i] = position.get(broker, -1) if broker is not None else -1
    for i, unit in enumerate(publishers.unit.tolist()):
        if unit >= 0 and at[unit] < 0:
            at[unit] = sources[i]
    return Today(at, sources, links)
