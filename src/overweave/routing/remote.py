"""What other brokers have said, by broker: the remote tables of destination-based routing (R-SRT and R-PRT, DEST III-A).

Statements are numbered by who makes them, and may overtake each other when their ways change. A statement holds unless a
later one about the same thing is known; what was withdrawn is remembered for a while, for an earlier statement may still come.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from overweave.language.predicates import Filter
from overweave.language.relations import intersects

_WITHDRAWN_MAX = 65_536

Origin = tuple[str, int]
#: What a statement says of something: its filter, the clusters it has passed, whether it is spare, its origin.
Entry = tuple[str, Filter, tuple[str, ...], bool, Origin | None]


class RouteEntry(NamedTuple):
    """A filter that somebody stands for, the clusters that it has passed before (DEST IV), and the statement's number.

    A subscription is spare for whom it is told if what it wants comes another way, as long as that is there. The origin is the
    broker of the client, with a number that tells what it says later from what it said before.
    """

    filter: Filter
    path: tuple[str, ...] = ()
    backup: bool = False
    origin: Origin | None = None
    number: int = 0

    def intersects(self, other: "RouteEntry") -> bool:
        """Whether an advertisement and a subscription have anything to do with each other; not where one came from the other."""
        return set(self.path).isdisjoint(other.path) and intersects(self.filter, other.filter)


class RemoteTable:
    """The statements of each broker by their ids; ``changed`` hears of each change by broker and id, with what held before.

    >>> from overweave.language.syntax import parse_filter
    >>> table, stated = RemoteTable(lambda *_: None), RouteEntry(parse_filter("[x,>,1]"), number=5)
    >>> table.add("B2", "s1", stated), table.remove("B2", "s1", 6), table.add("B2", "s1", stated)
    (True, True, False)
    """

    def __init__(self, changed: Callable[[str, str, RouteEntry | None], None]) -> None:
        self._changed = changed
        self._entries: dict[str, dict[str, RouteEntry]] = {}
        #: The same by what they are about.
        self._about: dict[str, dict[str, RouteEntry]] = {}
        self._withdrawn: dict[tuple[str, str], int] = {}
        #: Up to which number a broker has told all that holds of it.
        self._told: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def add(self, broker: str, id: str, stated: RouteEntry) -> bool:
        """A statement; False when a later one is known."""
        known = self._entries.get(broker, {}).get(id)
        later = max(self._withdrawn.get((broker, id), -1), self._told.get(broker, -1), -1 if known is None else known.number)
        if later >= stated.number:
            return False
        self._entries.setdefault(broker, {})[id] = stated
        self._about.setdefault(id, {})[broker] = stated
        self._changed(broker, id, known)
        return True

    def remove(self, broker: str, id: str, number: int) -> bool:
        """A withdrawal; False when there is nothing to withdraw."""
        self._withdrawn[broker, id] = max(number, self._withdrawn.get((broker, id), -1))
        if len(self._withdrawn) > _WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]
        known = self._entries.get(broker, {}).get(id)
        if known is None or known.number > number:
            return False
        self.drop(broker, id)
        return True

    def replace(
        self,
        broker: str,
        entries: Iterable[Entry],
        number: int,
        among: Callable[[RouteEntry], bool] | None = None,
    ) -> None:
        """All that a broker has to say up to a number, among some; what it says later stays."""
        told = {entry[0]: RouteEntry(*entry[1:], number) for entry in entries}
        for id, stated in list(self.by_broker(broker).items()):
            if stated.number <= number and id not in told and (among is None or among(stated)):
                self.drop(broker, id)
        for id, stated in told.items():
            self.add(broker, id, stated)
        if among is None:
            self._told[broker] = max(number, self._told.get(broker, -1))

    def drop(self, broker: str, id: str) -> None:
        """Forget one statement, as if it had not been made."""
        before = self._entries[broker][id]
        for table, key, other in ((self._entries, broker, id), (self._about, id, broker)):
            del table[key][other]
            if not table[key]:
                del table[key]
        self._changed(broker, id, before)

    def forget(self, broker: str) -> None:
        """Forget all statements of a broker."""
        for id in list(self.by_broker(broker)):
            self.drop(broker, id)

    def validate(self) -> None:
        """Check what must always hold."""
        by_broker = {(broker, id): stated for broker, entries in self._entries.items() for id, stated in entries.items()}
        assert by_broker == {(broker, id): stated for id, about in self._about.items() for broker, stated in about.items()}
        assert all(self._entries.values())
        assert all(self._about.values())

    def by_broker(self, broker: str) -> Mapping[str, RouteEntry]:
        """All that holds of one broker."""
        return self._entries.get(broker, {})

    def brokers(self) -> list[str]:
        """All who have said something that holds."""
        return list(self._entries)

    def by_id(self, id: str) -> Mapping[str, RouteEntry]:
        """What holds about one thing, by broker."""
        return self._about.get(id, {})

    def ids(self) -> Iterable[str]:
        """All that something is said about."""
        return self._about.keys()


class Tombstones:
    """What clients have withdrawn, by id and origin: whatever is still told of it on other ways means nothing.

    >>> from overweave.language.syntax import parse_filter
    >>> withdrawn, stated = Tombstones(), RouteEntry(parse_filter("[x,>,1]"), origin=("B1", 7))
    >>> withdrawn.add("s", ("B1", 7)), withdrawn.add("s", ("B1", 7))
    (True, False)
    >>> withdrawn.covers("s", stated), withdrawn.covers("s", stated._replace(origin=("B1", 8)))
    (True, False)
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def add(self, id: str, origin: Origin) -> bool:
        """A withdrawal; whether it is news."""
        key = id, origin[0]
        if self._last.get(key, -1) >= origin[1]:
            return False
        self._last[key] = origin[1]
        if len(self._last) > _WITHDRAWN_MAX:
            del self._last[next(iter(self._last))]
        return True

    def covers(self, id: str, stated: RouteEntry) -> bool:
        """Whether a statement has been withdrawn."""
        return stated.origin is not None and self._last.get((id, stated.origin[0]), -1) >= stated.origin[1]

    def purge(self, table: RemoteTable, id: str) -> None:
        """Have a table forget all that is told of something and has been withdrawn."""
        for broker, stated in list(table.by_id(id).items()):
            if self.covers(id, stated):
                table.drop(broker, id)

    def of(self, id: str, stated: RouteEntry) -> Origin | None:
        """With which origin to pass on that a statement does not hold any more; None: only this way to it has ended."""
        return stated.origin if self.covers(id, stated) else None
