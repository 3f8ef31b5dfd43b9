"""The allocation test of CRAM (THESIS 6.2.3, step 2): can the pool be packed with this cluster in it?

The text packs everything for every pair. Three facts make most of that unnecessary and change no answer:

* Where input can never run out (`Model.may_bind`), outputs alone decide.
* Clustering does not change the sum of outputs. First fit fails with an item of size s only if every bin is filled
  to more than its room less s. So an item always fits if all the others together are less than that; those up to
  a size that is the same for the whole run need not be packed at all.
* If a cluster is that small and nothing larger was taken into it, then the larger ones are packed as before.

Where input can run out, all is packed with unions for every pair, which is slow. With ``whole_pool`` off (the rule ``split``,
which breaks up what does not fit) outputs are packed, and the cluster alone must fit some broker with its input.
"""

from collections.abc import Sequence

import numpy as np

from overweave.planning.allocate.cram.accept import kinds_of
from overweave.planning.closest_pairs import ANY_PAIR
from overweave.planning.filling import Filling, tree_of
from overweave.planning.kernels.packing import pack_outputs
from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole


class Allocatable:
    """The units of the pool at any time, and whether a change of them can be packed."""

    def __init__(self, model: Model, bins: Bins, pinned: Items, free: Items, *, no_worse: bool, whole_pool: bool = True) -> None:
        self._model, self._bins, self._pinned = model, bins, pinned
        filling = Filling(model, bins, _joined(pinned, free))
        filling.pin(pinned)
        self._binding, self._no_worse = filling.binding and whole_pool, no_worse
        self._alone = filling.binding and not whole_pool
        self._kinds = kinds_of(bins).tolist()
        self._inputs: dict[int, int] = {}
        self._rooms, self._tree = filling.rooms, tree_of(filling.rooms)
        self._opened = np.isin(bins.broker, pinned.fixed)
        self._largest_room = int(filling.rooms.max())
        self._always = _always_fits(filling.rooms, int(free.output.sum()))
        #: Outputs that have to be packed, descending.
        self._loads = np.sort(free.output[free.output > self._skipped])[::-1].astype(np.int64)
        #: All units by number, for packing with inputs: profile, output, entries.
        self._units = {i: (int(free.profile[i]), int(free.output[i]), int(free.entries[i])) for i in range(len(free))}
        self._tried: tuple[tuple[int, ...], int, Whole, int] | None = None
        #: Packings that were really done.
        self.packings = 0
        self._brokers = self._packed(self._loads, self._units) if no_worse or self._binding else 0

    @property
    def pair_max(self) -> int:
        """All pairs are considered: a pair that is too large may fit with fewer of the groups that one of them covers."""
        return ANY_PAIR

    @property
    def _skipped(self) -> int:
        return -1 if self._no_worse else self._always

    def could_hold(self, output: int) -> bool:
        """Whether any broker is large enough: cheap to ask before a union is made."""
        return output <= self._largest_room

    def passes(self, removed: Sequence[int], profile: int, output: int, entries: int) -> bool:
        """Whether the pool can be packed with one unit instead of those removed."""
        if output > self._largest_room or (self._alone and not self._holds_alone(profile, output, entries)):
            return False
        if self._binding:
            units = self._changed(removed, (profile, output, entries))
            brokers = self._packed(self._loads, units)
        else:
            gone = [size for i in removed if (size := self._units[i][1]) > self._skipped]
            if output <= self._skipped and not gone:
                return True
            loads = self._changed_loads(gone, output)
            brokers = self._packed(loads, {})
            # What `commit` would compute again.
            self._tried = tuple(removed), output, loads, brokers
        return brokers >= 0 and not (self._no_worse and brokers > self._brokers)

    def commit(self, removed: Sequence[int], number: int, profile: int, output: int, entries: int) -> None:
        """Make the change; the new unit has a number that is larger than all others."""
        tried = self._tried if self._tried is not None and self._tried[:2] == (tuple(removed), output) else None
        if tried is not None:
            self._loads = tried[2]
        elif not self._binding:
            gone = [size for i in removed if (size := self._units[i][1]) > self._skipped]
            if gone or output > self._skipped:
                self._loads = self._changed_loads(gone, output)
        for i in removed:
            del self._units[i]
        self._units[number] = (profile, output, entries)
        if self._no_worse:
            self._brokers = self._packed(self._loads, self._units) if tried is None else tried[3]
        self._tried = None

    def _holds_alone(self, profile: int, output: int, entries: int) -> bool:
        input = self._inputs.get(profile)
        if input is None:
            input = self._inputs[profile] = self._model.input(profile)
        return any(self._bins.holds(bin, output, input, entries) for bin in self._kinds)

    def _changed(self, removed: Sequence[int], added: tuple[int, int, int]) -> dict[int, tuple[int, int, int]]:
        left = set(removed)
        units = {i: unit for i, unit in self._units.items() if i not in left}
        units[1 << 62] = added  # behind all others of the same output, as it will be
        return units

    def _changed_loads(self, gone: Sequence[int], added: int) -> Whole:
        loads = self._loads
        if gone:
            sizes, counts = np.unique(np.array(gone, np.int64), return_counts=True)
            first = len(loads) - np.searchsorted(loads[::-1], sizes, side="right")
            drop = np.concatenate([np.arange(at, at + count) for at, count in zip(first.tolist(), counts.tolist(), strict=True)])
            loads = np.delete(loads, drop)
        if added > self._skipped:
            at = len(loads) - int(np.searchsorted(loads[::-1], added, side="left"))
            loads = np.insert(loads, at, added)
        return loads

    def _packed(self, loads: Whole, units: dict[int, tuple[int, int, int]]) -> int:
        """The number of brokers used, or -1 if something does not fit."""
        self.packings += 1
        if self._binding:
            return self._packed_with_inputs(units)
        placed = np.full(len(loads), -1, np.int64)
        if pack_outputs(loads, self._tree.copy(), self._skipped, placed) >= 0:
            return -1
        return self._brokers_of(placed)

    def _packed_with_inputs(self, units: dict[int, tuple[int, int, int]]) -> int:
        ordered = sorted(units.items(), key=lambda each: (-each[1][1], each[0]))
        columns = np.array([unit for _, unit in ordered], np.int64).reshape(-1, 3)
        items = Items(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy(), np.full(len(columns), -1, np.int64))
        filling = Filling(self._model, self._bins, _joined(self._pinned, items))
        filling.pin(self._pinned)
        placed = np.full(len(items), -1, np.int64)
        if filling.first_fit(items, np.arange(len(items)), placed) >= 0:
            return -1
        return self._brokers_of(placed)

    def _brokers_of(self, placed: Whole) -> int:
        if not self._no_worse:
            return 0
        used = self._opened.copy()
        used[placed[placed >= 0]] = True
        return int(np.count_nonzero(used))


def _always_fits(rooms: Whole, total: int) -> int:
    """The largest size of which an item always fits: total - s < sum of (room - s + 1) over bins with as much room."""

    def fits(size: int) -> bool:
        return total - size < int(np.maximum(rooms - size + 1, 0).sum())

    low, high = -1, int(rooms.max())
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _joined(one: Items, other: Items) -> Items:
    columns = zip(
        (one.profile, one.output, one.entries, one.fixed), (other.profile, other.output, other.entries, other.fixed), strict=True
    )
    return Items(*(np.concatenate(pair) for pair in columns))
