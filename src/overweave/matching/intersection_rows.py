"""The rows of an intersection index: the outer bounds of its filters in arrays, and their partitions as chains of slots.

Slots are given in order and used once, so that their order is that of the filters; when most of them are gone the rest is packed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overweave.language.values import Value
from overweave.matching.intersection_blocks import BLOCK, Blocks, Constraints
from overweave.matching.kernels.intersect import ABSENT, GONE
from overweave.matching.outer_bounds import OuterBound

#: The tokens of constraints whose intervals say all, and of those where they do not. Words have the numbers after these.
_DOUBTFUL, _EXACT, _WORDS = 0, 1, 2
#: The partition of filters without equalities.
_UNIVERSAL = 0
#: A query that has to enter more partitions than this, or this share of all slots, goes by blocks instead.
_PARTITIONS_MAX, _SHARE = 256, 32
#: Fewer slots than this are looked at in order, and no more than this or half of the others stay outside of blocks.
_FEW = 1024
_IN_ORDER = np.empty(0, np.int32)


class Rows:
    """Arrays for the kernels of `overweave.matching.kernels.intersect`."""

    def __init__(self) -> None:
        #: How many slots and constraints the arrays have, and what is to follow: bounds and link.
        self._count = self._constraints = 0
        self._appended: list[tuple[Sequence[OuterBound], int]] = []
        self.links = np.empty(4, np.int32)
        self._starts = np.zeros(5, np.int64)
        self._partition_of, self._following = np.empty(4, np.int32), np.empty(4, np.int32)
        self._columns, self._tokens = np.empty(8, np.int32), np.empty(8, np.int32)
        self._lows, self._highs = np.empty(8), np.empty(8)
        self._column_numbers: dict[tuple[str, bool], int] = {}
        self._words: dict[Value, int] = {}
        #: By column and value the partition; and of each the last slot, with how many are not gone.
        self._keyed: dict[int, dict[Value, int]] = {}
        self._last, self._sizes = [-1], [0]
        #: The first slots in blocks, if that helps, and how many these are.
        self._blocks: Blocks | None = None
        self._blocked = 0
        #: A place for every column; none is mentioned between queries.
        self._low, self._high, self._token = np.empty(4), np.empty(4), np.full(4, ABSENT, np.int32)

    def __len__(self) -> int:
        return self._count + len(self._appended)

    def append(self, bounds: Sequence[OuterBound], link: int) -> None:
        """Give the next slot to a filter."""
        self._appended.append((bounds, link))

    def _enter(self) -> None:
        """Have what was appended in the arrays: many at a time, because most comes in floods that ask nothing."""
        appended, self._appended = self._appended, []
        slot, start = self._count, self._constraints
        flat = [bound for bounds, _ in appended for bound in bounds]
        count, end = slot + len(appended), start + len(flat)
        self._make_room(count, end)
        columns = self._columns[start:end] = [self._column(bound.name) for bound in flat]
        self._lows[start:end] = [bound.low for bound in flat]
        self._highs[start:end] = [bound.high for bound in flat]
        self._tokens[start:end] = [self._token_of(bound) for bound in flat]
        self.links[slot:count] = [link for _, link in appended]
        self._starts[slot + 1 : count + 1] = np.cumsum([len(bounds) for bounds, _ in appended]) + start
        partitions, following, at = [], [], 0
        for number, (bounds, _) in enumerate(appended, slot):
            partition = self._choose_partition(columns[at : at + len(bounds)], bounds)
            at += len(bounds)
            partitions.append(partition)
            following.append(self._last[partition])
            self._last[partition] = number
            self._sizes[partition] += 1
        self._partition_of[slot:count], self._following[slot:count] = partitions, following
        self._count, self._constraints = count, end

    def remove(self, slot: int) -> int:
        """Give up a slot; the link it was for."""
        if slot >= self._count:
            self._enter()
        link = int(self.links[slot])
        self.links[slot] = GONE
        self._sizes[self._partition_of[slot]] -= 1
        return link

    def compare(self, kernel: Callable[..., int], bounds: Sequence[OuterBound], all_of_query: bool, answers: NDArray[Any]) -> int:
        """Ask a kernel which slots a filter can intersect: those with all its columns, or those with no others."""
        if self._appended:
            self._enter()
        numbers = [self._column_numbers.get(bound.name) for bound in bounds]
        if all_of_query and None in numbers:
            return 0
        heads, following = self._chains(dict(zip(numbers, bounds, strict=True)), all_of_query)
        if heads is None:
            return 0
        for column, bound in zip(numbers, bounds, strict=True):
            if column is not None:
                self._low[column], self._high[column] = bound.low, bound.high
                self._token[column] = self._token_asked(bound)
        found = kernel(
            self.links[: self._count], self._starts, self._columns, self._lows, self._highs, self._tokens, following, heads,
            self._low, self._high, self._token, len(bounds) if all_of_query else -1, answers,
        )  # fmt: skip
        for column in numbers:
            if column is not None:
                self._token[column] = ABSENT
        return found

    def pack(self) -> NDArray[np.int64]:
        """Drop the slots that are gone, with columns, words and partitions that nobody has any more; the slots that stay."""
        if self._appended:
            self._enter()
        stay = np.flatnonzero(self.links[: self._count] != GONE)
        lengths = np.diff(self._starts[: self._count + 1])[stay]
        at, ends = _joined(self._starts[stay], lengths), np.cumsum(lengths)
        self._lows, self._highs, self._tokens = self._lows[at], self._highs[at], self._tokens[at]
        self._columns, columns = _renumbered(self._columns[at], len(self._column_numbers), first=0)
        self._tokens, tokens = _renumbered(self._tokens, len(self._words) + _WORDS, first=_WORDS)
        self._partition_of, partitions = _renumbered(self._partition_of[stay], len(self._last), first=1)
        self.links, self._starts = self.links[stay], np.concatenate([[0], ends])
        self._count, self._constraints = len(stay), len(at)
        self._column_numbers = {name: columns[old] for name, old in self._column_numbers.items() if columns[old] >= 0}
        self._words = {word: tokens[old] for word, old in self._words.items() if tokens[old] >= 0}
        self._keyed = {
            columns[column]: {value: partitions[old] for value, old in keyed.items() if partitions[old] >= 0}
            for column, keyed in self._keyed.items()
            if any(partitions[old] >= 0 for old in keyed.values())
        }
        self._blocks, self._blocked = None, 0
        self._chain(1 + sum(map(len, self._keyed.values())))
        self._make_room(self._count + 1, self._constraints + 1)
        return stay

    def _chain(self, partitions: int) -> None:
        """Join the slots of each partition, the last first."""
        order = np.argsort(self._partition_of, kind="stable")
        grouped = self._partition_of[order]
        same = grouped[1:] == grouped[:-1]
        self._following = np.full(self._count, -1, np.int32)
        self._following[order[1:][same]] = order[:-1][same]
        last = np.full(partitions, -1, np.int64)
        last[grouped] = order
        self._last, self._sizes = last.tolist(), np.bincount(grouped, minlength=partitions).tolist()

    def _chains(
        self, asked: dict[int | None, OuterBound], all_of_query: bool
    ) -> tuple[NDArray[np.int32] | None, NDArray[np.int32]]:
        """The first slots of chains with all filters that a query may intersect, and what follows each slot.

        None: there are no such filters. No chains: all slots have to be looked at.
        """
        partitions = self._partitions(asked, all_of_query)
        if partitions is not None:
            size = sum([self._sizes[partition] for partition in partitions])
            if not size:
                return None, self._following
            if _SHARE * size <= self._count:
                return np.array([self._last[partition] for partition in partitions], np.int32), self._following
        blocks = self._make_blocks()
        heads = _IN_ORDER if blocks is None else blocks.heads(asked)
        if blocks is None or 2 * BLOCK * len(heads) > self._count:
            return _IN_ORDER, self._following
        if len(blocks.following) < self._count:
            blocks.following = _larger(blocks.following, self._count, fill=-1)
        heads = np.concatenate([heads, np.arange(self._blocked, self._count, dtype=np.int32)])
        return (heads if len(heads) else None), blocks.following

    def _partitions(self, asked: dict[int | None, OuterBound], all_of_query: bool) -> list[int] | None:
        """The partitions with filters that a query may intersect; None: too many."""
        partitions = [_UNIVERSAL]
        for column, keyed in self._keyed.items():
            bound = asked.get(column)
            if bound is not None and bound.fixed is not None:
                found = keyed.get(bound.fixed)
                if found is not None:
                    partitions.append(found)
            elif bound is not None or all_of_query:
                if len(keyed) > _PARTITIONS_MAX:
                    return None
                partitions += keyed.values()
        return partitions

    def _make_blocks(self) -> Blocks | None:
        """The blocks, rebuilt when many slots are outside; None: there are too few, or no column tells them apart."""
        if self._count - self._blocked > max(_FEW, self._blocked // 2):
            there = np.flatnonzero(self.links[: self._count] != GONE)
            lengths = np.diff(self._starts[: self._count + 1])[there]
            at = _joined(self._starts[there], lengths)
            places = np.repeat(np.arange(len(there)), lengths)
            blocks = Blocks(there, self._count, Constraints(places, self._columns[at], self._lows[at], self._highs[at]))
            self._blocks, self._blocked = blocks if blocks.useful else None, self._count
        return self._blocks

    def _choose_partition(self, columns: list[int], bounds: Sequence[OuterBound]) -> int:
        """The smallest of the partitions of a filter's equalities."""
        fixed = [(column, bound.fixed) for column, bound in zip(columns, bounds, strict=True) if bound.fixed is not None]
        if not fixed:
            return _UNIVERSAL
        keyed, value = min(((self._keyed.setdefault(column, {}), value) for column, value in fixed), key=self._size)
        partition = keyed.get(value)
        if partition is None:
            partition = keyed[value] = len(self._last)
            self._last.append(-1)
            self._sizes.append(0)
        return partition

    def _size(self, place: tuple[dict[Value, int], Value]) -> int:
        keyed, value = place
        return self._sizes[keyed[value]] if value in keyed else 0

    def _column(self, name: tuple[str, bool]) -> int:
        number = self._column_numbers.get(name)
        if number is None:
            number = self._column_numbers[name] = len(self._column_numbers)
            if number == len(self._token):
                self._low, self._high = _larger(self._low, number + 1), _larger(self._high, number + 1)
                self._token = _larger(self._token, number + 1, fill=ABSENT)
        return number

    def _token_of(self, bound: OuterBound) -> int:
        if isinstance(bound.fixed, str):
            return self._words.setdefault(bound.fixed, len(self._words) + _WORDS)
        return _EXACT if bound.exact else _DOUBTFUL

    def _token_asked(self, bound: OuterBound) -> int:
        if isinstance(bound.fixed, str):
            return self._words.get(bound.fixed, _UNKNOWN)
        return _EXACT if bound.exact else _DOUBTFUL

    def _make_room(self, slots: int, constraints: int) -> None:
        if slots > len(self.links):
            self.links, self._starts = _larger(self.links, slots), _larger(self._starts, slots + 1)
            self._partition_of, self._following = _larger(self._partition_of, slots), _larger(self._following, slots)
        if constraints > len(self._lows):
            self._lows, self._highs = _larger(self._lows, constraints), _larger(self._highs, constraints)
            self._columns, self._tokens = _larger(self._columns, constraints), _larger(self._tokens, constraints)


#: The token of a word that no filter has.
_UNKNOWN = -1


def _larger(array: NDArray[Any], size: int, fill: int = 0) -> NDArray[Any]:
    grown = np.full(max(size, 2 * len(array)), fill, array.dtype)
    grown[: len(array)] = array
    return grown


def _joined(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of several stretches, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))


def _renumbered(numbers: NDArray[np.int32], count: int, first: int) -> tuple[NDArray[np.int32], list[int]]:
    """Numbers without gaps, in order, and the new one of each old one (-1: nobody has it); those before ``first`` stay."""
    used = np.zeros(count, np.bool_)
    used[numbers] = True
    used[:first] = True
    renumbered = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
    return renumbered[numbers], renumbered.tolist()
