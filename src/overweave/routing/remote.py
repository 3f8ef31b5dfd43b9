"""What other brokers have said, by broker: the remote tables of destination-based routing (R-SRT and R-PRT, DEST III-A).

Statements are numbered by who makes them, and may overtake each other when their ways change. A statement holds unless a
later one about the same thing is known; what was withdrawn is remembered for a while, for an earlier statement may still come.
"""

from collections.abc import Callable, Iterable

from overweave.language.predicates import Filter

_WITHDRAWN_MAX = 65_536


class RemoteTable:
    """The filters of each broker with their ids; ``added`` and ``removed`` hear of changes by broker and id.

    >>> table = RemoteTable()
    >>> table.add("B2", "s1", Filter(()), 5), table.remove("B2", "s1", 6), table.add("B2", "s1", Filter(()), 5)
    (True, True, False)
    """

    def __init__(
        self,
        added: Callable[[str, str, Filter], None] = lambda *_: None,
        removed: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._added, self._removed = added, removed
        self._entries: dict[str, dict[str, tuple[Filter, int]]] = {}
        self._withdrawn: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def add(self, broker: str, id: str, filter: Filter, number: int) -> bool:
        """A statement; False when a later one is known."""
        known = self._entries.get(broker, {}).get(id)
        if max(-1 if known is None else known[1], self._withdrawn.get((broker, id), -1)) >= number:
            return False
        if known is not None:
            self._removed(broker, id)
        self._entries.setdefault(broker, {})[id] = (filter, number)
        self._added(broker, id, filter)
        return True

    def remove(self, broker: str, id: str, number: int) -> bool:
        """A withdrawal; False when there is nothing to withdraw."""
        self._withdrawn[broker, id] = max(number, self._withdrawn.get((broker, id), -1))
        if len(self._withdrawn) > _WITHDRAWN_MAX:
            del self._withdrawn[next(iter(self._withdrawn))]
        known = self._entries.get(broker, {}).get(id)
        if known is None or known[1] > number:
            return False
        self.drop(broker, id)
        return True

    def replace(self, broker: str, entries: Iterable[tuple[str, Filter]], number: int) -> None:
        """All that a broker has to say up to a number; what it says later stays."""
        told = dict(entries)
        for id in [id for id, (_, at) in self._entries.get(broker, {}).items() if at <= number and id not in told]:
            self.drop(broker, id)
        for id, filter in told.items():
            self.add(broker, id, filter, number)

    def forget(self, broker: str) -> None:
        """All that a broker said holds no more."""
        for id in list(self._entries.get(broker, ())):
            self.drop(broker, id)

    def of(self, broker: str) -> dict[str, Filter]:
        """All that holds of one broker."""
        return {id: filter for id, (filter, _) in self._entries.get(broker, {}).items()}

    def brokers(self) -> list[str]:
        """All who have said something that holds."""
        return list(self._entries)

    def drop(self, broker: str, id: str) -> None:
        """Forget one statement, as if it had not been made."""
        entries = self._entries[broker]
        del entries[id]
        if not entries:
            del self._entries[broker]
        self._removed(broker, id)
