"""Similarity and load of clients by what they received: MINIMAL 4 on measured profiles instead of boxes (its 5.5).

The volume of a subscription is the rate at which it receives, so overlap (eq 1) compares what two clients received with what
both did, and interest (eq 3) is the share of a publisher's window that a client received. A client's subscriptions are one set
of bits here, as in the problem, but deliveries count once per subscription, as in the paper.
"""

import numpy as np

from overweave.planning.kernels.common import overlap_rows
from overweave.planning.problem import BitWords, Problem, Reals, Whole, counted
from overweave.planning.similarity import BrokerRow, Flags


class ProfileSimilarity:
    """The port `Similarity`; ``client`` is the client of each publisher. The first clients are the problem's units."""

    def __init__(self, problem: Problem, client: Whole, count: int) -> None:
        units, vectors, publishers = problem.units, problem.vectors, problem.publishers
        window = np.maximum(publishers.window, 1)
        self._client, self._count = client, count
        self._sources_of = _grouped(client, count)
        self._vectors, self._weight = vectors, publishers.rate_hz / window
        start = np.append(units.row_start, np.full(count - len(units), units.row_start[-1]))
        self._groups = _Groups(start, vectors.publisher[units.rows], units.rows, vectors.words, self._weight)
        #: Of each row of a unit: the share of its publisher's window, and the rate, that is delivered.
        self._share = units.row_deliveries / window[self._groups.publisher]
        self._rate = publishers.rate_hz[self._groups.publisher] * self._share
        self.publishes: Flags = np.isin(np.arange(count), client)
        self.subscribes: Flags = np.arange(count) < len(units)
        self.subscribes[: len(units)] &= units.filters > 0
        foreign = client[self._groups.publisher] != self._groups.owner
        self.impact_hz = _sums(client, publishers.rate_hz, count)
        self.impact_hz += _sums(self._groups.owner[foreign], self._rate[foreign], count)

    def interest(self, publisher: int) -> Reals:
        """As `Similarity.interest`."""
        rows = self._wanting(publisher)
        return _sums(self._groups.owner[rows], self._share[rows], self._count)

    def at_brokers(self, client: int, home: Whole, brokers: int) -> tuple[Reals, Reals]:
        """As `Similarity.at_brokers`."""
        similarity, local = np.zeros((2, brokers))
        if self.publishes[client]:
            rows = self._wanting(client)
            at = home[self._groups.owner[rows]]
            rows, at = rows[at >= 0], at[at >= 0]
            similarity += _sums(at, self._share[rows], brokers)
            local += _sums(at, self._rate[rows], brokers)
        if self.subscribes[client]:
            first, last = self._groups.start[client], self._groups.start[client + 1]
            at = home[self._client[self._groups.publisher[first:last]]]
            local += _sums(at[at >= 0], self._rate[first:last][at >= 0], brokers)
            self._groups.add_overlaps(client, home, similarity)
        return similarity, local

    def commonality(self, home: Whole, brokers: int) -> BrokerRow:
        """As `Similarity.commonality`."""
        members = _grouped(home, brokers)

        def row(broker: int) -> Reals:
            out = np.zeros(brokers)
            for client in members[broker].tolist():
                self._groups.add_overlaps(client, home, out)
            return out

        return row

    def zones(self, home: Whole, brokers: int) -> BrokerRow:
        """As `Similarity.zones`: the union of what a broker's clients received."""
        groups = self._groups
        order = np.lexsort((home[groups.owner], groups.publisher))
        order = order[home[groups.owner[order]] >= 0]
        at, publisher = home[groups.owner[order]], groups.publisher[order]
        first = np.flatnonzero((np.diff(at, prepend=-1) != 0) | (np.diff(publisher, prepend=-1) != 0))
        words = self._vectors.words[groups.row[order]]
        united = np.bitwise_or.reduceat(words, first, axis=0) if len(first) else words
        by_broker = np.argsort(at[first], kind="stable")
        start = np.searchsorted(at[first][by_broker], np.arange(brokers + 1))
        zones = _Groups(start, publisher[first][by_broker], by_broker, united, self._weight)
        places = np.arange(brokers)

        def row(broker: int) -> Reals:
            out = np.zeros(brokers)
            zones.add_overlaps(broker, places, out)
            return out

        return row

    def _wanting(self, client: int) -> Whole:
        """Rows of the vectors of a client's publications."""
        groups = self._groups
        parts = [groups.entries[groups.entry_start[p] : groups.entry_start[p + 1]] for p in self._sources_of[client].tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class _Groups:
    """Groups of vectors, at most one per publisher, in arrays for the kernel; vectors of a publisher are neighbours."""

    def __init__(self, start: Whole, publisher: Whole, row: Whole, words: BitWords, weight: Reals) -> None:
        self.start, self.publisher, self.row, self._weight = start, publisher, row, weight
        self.owner: Whole = np.repeat(np.arange(len(start) - 1), np.diff(start))
        self.entries: Whole = np.argsort(publisher, kind="stable")
        numbers = np.arange(len(weight) + 1)
        self.entry_start: Whole = np.searchsorted(publisher[self.entries], numbers)
        self._entry_group, self._entry_row = self.owner[self.entries], row[self.entries]
        source = np.zeros(len(words), np.int64)
        source[row] = publisher
        assert (np.diff(source) >= 0).all(), "vectors are in the order of their publishers"
        self._vector_start = np.searchsorted(source, numbers)
        # Windows shorter than the vectors leave columns empty.
        self._words = np.ascontiguousarray(words[:, words.any(axis=0)])
        ones = counted(words)[row] * weight[publisher]
        self._volume = np.bincount(self.owner, ones, len(start) - 1)
        self._both, self._common = np.zeros(len(words), np.int64), np.zeros(len(start) - 1)
        self._touched = np.zeros(len(start) - 1, np.int64)

    def add_overlaps(self, group: int, home: Whole, out: Reals) -> None:
        """Add, per broker, the overlap of a group with all groups there."""
        if self._volume[group] > 0:
            overlap_rows(
                self.start[group], self.start[group + 1], self.publisher, self.row, self._vector_start, self._words, self._weight,
                self.entry_start, self._entry_group, self._entry_row, self._volume, self._volume[group], home, self._both,
                self._common, self._touched, out,
            )  # fmt: skip


def _grouped(owner: Whole, count: int) -> list[Whole]:
    """The positions of each owner."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(count + 1)))[1:-1]


def _sums(number: Whole, values: Reals, count: int) -> Reals:
    """The sum of the values of each number."""
    return np.bincount(number, values, count).astype(np.float64)
