"""The table of profiles: sets of bit vectors, one per publisher, each set under a number; it grows as clusters are made."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from overweave.planning.problem import BitWords, Whole, counted

_Array = TypeVar("_Array", bound=NDArray[Any])


class ProfileTable:
    """Profiles in arrays for kernels: the rows of profile i are ``start[i]`` … ``start[i] + count[i] - 1``, by publisher."""

    def __init__(self, width: int) -> None:
        self.size = self.rows = 0
        self.start: Whole = np.zeros(16, np.int64)
        self.count: Whole = np.zeros(16, np.int64)
        #: Set bits in all rows of a profile.
        self.ones: Whole = np.zeros(16, np.int64)
        self.publisher: Whole = np.zeros(16, np.int64)
        self.words: BitWords = np.zeros((16, width), np.uint64)
        self._known: dict[bytes, int] = {}

    def add(self, publisher: Whole, words: BitWords) -> int:
        """The number of a profile, an equal one's if there is one; publishers ascend."""
        key = publisher.tobytes() + words.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._append(publisher, words)
        return found

    def unite(self, profiles: Sequence[int]) -> int:
        """The profile of the union: what a cluster or a broker receives (THESIS 6.2.3, figure 6.1)."""
        distinct = list(dict.fromkeys(profiles))
        if len(distinct) == 1:
            return distinct[0]
        return self.add(*self.union(np.array(distinct, np.int64)))

    def union(self, profiles: Whole) -> tuple[Whole, BitWords]:
        """Publishers and words of the union of some profiles, which does not become one of the table."""
        count = self.count[profiles]
        ends = np.cumsum(count)
        rows = np.repeat(self.start[profiles] - (ends - count), count) + np.arange(count.sum())
        rows = rows[np.argsort(self.publisher[rows], kind="stable")]
        publisher = self.publisher[rows]
        first = np.flatnonzero(np.diff(publisher, prepend=-1))
        if not len(first):
            return np.zeros(0, np.int64), self.words[:0]
        return publisher[first], np.bitwise_or.reduceat(self.words[rows], first, axis=0)

    def without(self, profile: int, publishers: set[int]) -> int:
        """The profile without what some publishers send."""
        publisher, words = self.of(profile)
        kept = np.array([each not in publishers for each in publisher.tolist()], np.bool_)
        return self.add(publisher[kept], np.ascontiguousarray(words[kept]))

    def of(self, profile: int) -> tuple[Whole, BitWords]:
        """Publishers and words of one profile."""
        rows = slice(int(self.start[profile]), int(self.start[profile] + self.count[profile]))
        return self.publisher[rows], self.words[rows]

    def weighed(self, profile: int, weight: Whole) -> int:
        """The sum over all set bits of the weight of their publisher."""
        publisher, words = self.of(profile)
        return int(counted(words) @ weight[publisher]) if len(publisher) else 0

    def _append(self, publisher: Whole, words: BitWords) -> int:
        number, rows = self.size, len(publisher)
        if number == len(self.start):
            self.start, self.count, self.ones = (_doubled(each, number + 1) for each in (self.start, self.count, self.ones))
        if self.rows + rows > len(self.publisher):
            self.publisher = _doubled(self.publisher, self.rows + rows)
            self.words = _doubled(self.words, self.rows + rows)
        self.start[number], self.count[number], self.ones[number] = self.rows, rows, counted(words).sum()
        self.publisher[self.rows : self.rows + rows] = publisher
        self.words[self.rows : self.rows + rows] = words
        self.size, self.rows = number + 1, self.rows + rows
        return number


def _doubled(array: _Array, least: int) -> _Array:
    grown = np.zeros((max(2 * len(array), least), *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown  # type: ignore[return-value]
