"""What CRAM asks before it makes a cluster, and the answer where groups are too many: some broker must hold it alone.

That looks at nothing but the cluster, so components can be clustered apart, in any order and on any machine; the rule ``split``
breaks up what does not fit the pool in the end. Where brokers are equal and half of them would do, it answers as packing the
whole pool does: clusters larger than half a broker are then no more than brokers, so first fit finds room for each. One
departure: pairs that are too large together are not looked at, although one-to-many clustering might make do with less than
the pair. Near the end no two clusters fit one broker, and to try them all would take the square of their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from overweave.planning.filling import Filling
from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole, counted
from overweave.planning.table import ProfileTable


class Accepts(Protocol):
    """Whether a clustering is accepted, given the one before."""

    @property
    def pair_max(self) -> int:
        """Pairs of groups whose lightest units come to more output than this are not looked at."""
        ...

    def could_hold(self, output: int) -> bool:
        """Whether any broker is large enough: cheap to ask before a union is made."""
        ...

    def passes(self, removed: Sequence[int], profile: int, output: int, entries: int) -> bool:
        """Whether one unit instead of those removed is accepted."""
        ...

    def commit(self, removed: Sequence[int], number: int, profile: int, output: int, entries: int) -> None:
        """Make the change."""
        ...


@dataclass(frozen=True, eq=False)
class Limits:
    """What brokers hold at most: the largest room, and one broker of each kind where input could run out."""

    room: int
    kinds: Bins | None
    #: Ticks per bit of each publisher.
    input_weight: Whole

    @property
    def key(self) -> bytes:
        """Equal for limits with which equal clusters are made of equal items."""
        kinds = self.kinds
        columns = () if kinds is None else (kinds.room, kinds.base_s, kinds.slope_s, kinds.busy_max, kinds.input_max)
        return b"".join([self.room.to_bytes(8, "little"), *(column.tobytes() for column in columns)])

    @classmethod
    def of(cls, model: Model, bins: Bins, items: Items) -> "Limits":
        """Of some brokers with the pinned items in them."""
        filling = Filling(model, bins, items)
        filling.pin(items)
        kinds = bins.take(kinds_of(bins)) if filling.binding else None
        return cls(int(filling.rooms.max()), kinds, model.input_weight)


class HeldAlone:
    """Accepts what some broker holds alone."""

    def __init__(self, table: ProfileTable, limits: Limits) -> None:
        self._table, self._limits = table, limits
        self._inputs: dict[int, int] = {}

    @property
    def pair_max(self) -> int:
        """The largest room: no broker holds more."""
        return self._limits.room

    def could_hold(self, output: int) -> bool:
        """Whether any broker is large enough."""
        return output <= self._limits.room

    def passes(self, removed: Sequence[int], profile: int, output: int, entries: int) -> bool:  # noqa: ARG002
        """Whether some broker holds the cluster, with its input where that could run out."""
        if output > self._limits.room:
            return False
        kinds = self._limits.kinds
        if kinds is None:
            return True
        input = self._inputs.get(profile)
        if input is None:
            publisher, words = self._table.of(profile)
            input = self._inputs[profile] = int(counted(words) @ self._limits.input_weight[publisher]) if len(publisher) else 0
        return any(kinds.holds(bin, output, input, entries) for bin in range(len(kinds)))

    def commit(self, removed: Sequence[int], number: int, profile: int, output: int, entries: int) -> None:
        """The decision does not depend on earlier ones."""


def kinds_of(bins: Bins) -> Whole:
    """One bin of each kind."""
    limits = np.stack([bins.room.astype(np.float64), bins.base_s, bins.slope_s, bins.busy_max, bins.input_max], axis=1)
    return np.asarray(np.unique(limits, axis=0, return_index=True)[1], np.int64)
