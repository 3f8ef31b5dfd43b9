"""The registries of an index: ids by slot, and links by number."""

from collections.abc import Hashable, Sequence
from typing import cast

from overweave.errors import DuplicateId, UnknownId
from overweave.matching.base import Id, Link

#: The number of link sets that are cached by their mask.
_MASKS_MAX = 4096


class IdRegistry:
    """The id of each slot, and the slot of each id.

    >>> ids = IdRegistry()
    >>> ids.add("s1", slot=2)
    >>> ids.by_slot[2], ids.remove("s1"), "s1" in ids
    ('s1', 2, False)
    """

    __slots__ = ("by_slot", "slots")

    def __init__(self) -> None:
        self.slots: dict[Id, int] = {}
        self.by_slot: list[Id] = []

    def __contains__(self, id: object) -> bool:
        return isinstance(id, Hashable) and id in self.slots

    def check_unused(self, id: Id) -> None:
        """Refuse an id that is in use (`DuplicateId`)."""
        if id in self.slots:
            raise DuplicateId(f"id {id!r}: expected one that is not in use")

    def add(self, id: Id, slot: int) -> None:
        """Enter the id of a slot."""
        if slot >= len(self.by_slot):
            self.by_slot.extend([None] * (slot + 1 - len(self.by_slot)))
        self.slots[id] = slot
        self.by_slot[slot] = id

    def remove(self, id: Id) -> int:
        """The slot of an id that is in use no more; `UnknownId` if it was not."""
        slot = self.slots.pop(id, None)
        if slot is None:
            raise UnknownId(f"id {id!r}: expected one that was added")
        self.by_slot[slot] = None
        return slot

    def number_slots(self, slots: int) -> None:
        """Make the number of each slot its id, for an index without ids of its own."""
        self.by_slot = cast("list[Id]", range(slots))

    def copy(self) -> "IdRegistry":
        """A registry of the same ids."""
        made = IdRegistry()
        made.slots, made.by_slot = dict(self.slots), list(self.by_slot)
        return made


class LinkRegistry:
    """Links by number, reference-counted by their filters; number 0 is the broker itself.

    >>> links = LinkRegistry()
    >>> links.acquire("B2"), links.acquire("B3"), links.in_mask(0b110)
    (1, 2, ('B2', 'B3'))
    >>> links.release(1)
    >>> links.numbers
    {None: 0, 'B3': 2}
    """

    __slots__ = ("_counts", "_free", "by_mask", "links", "numbers")

    def __init__(self) -> None:
        self.links: list[Link] = [None]
        self.numbers: dict[Link, int] = {None: 0}
        self._counts: list[int] = [0]
        self._free: list[int] = []
        #: Sets of links by the mask of their numbers, valid until a link comes or goes.
        self.by_mask: dict[int, tuple[Link, ...]] = {}

    def acquire(self, link: Link) -> int:
        """The number of a link, with one more filter."""
        number = self.numbers.get(link)
        if number is None:
            number = self.numbers[link] = self._new_number(link)
            self.by_mask.clear()
        self._counts[number] += 1
        return number

    def release(self, number: int) -> None:
        """Count one filter less; a link without filters gives its number back."""
        self._counts[number] -= 1
        if self._counts[number] == 0 and number > 0:
            del self.numbers[self.links[number]]
            self.links[number] = None
            self._free.append(number)
            self.by_mask.clear()

    def in_mask(self, mask: int) -> tuple[Link, ...]:
        """The links whose numbers are bits of a mask."""
        if len(self.by_mask) >= _MASKS_MAX:
            self.by_mask.clear()
        found, rest = [], mask
        while rest:  # few links of many
            found.append(self.links[(rest & -rest).bit_length() - 1])
            rest &= rest - 1
        made = self.by_mask[mask] = tuple(found)
        return made

    def at(self, numbers: Sequence[int]) -> tuple[Link, ...]:
        """The links of some numbers."""
        return tuple([self.links[number] for number in numbers])

    def reserve(self, count: int) -> None:
        """Make room for ``count`` links without names."""
        self.links = [None] * count

    def copy(self) -> "LinkRegistry":
        """A registry of the same links."""
        made = LinkRegistry()
        made.links, made.numbers = list(self.links), dict(self.numbers)
        made._counts, made._free = list(self._counts), list(self._free)
        return made

    def _new_number(self, link: Link) -> int:
        if self._free:
            number = self._free.pop()
            self.links[number] = link
            return number
        self.links.append(link)
        self._counts.append(0)
        return len(self.links) - 1
