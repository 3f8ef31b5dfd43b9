"""Leaving: clients that are gone, with their messages that are not withdrawn yet.

They are withdrawn in slices: a client with very many subscriptions does not block the broker when it leaves.
"""

from collections.abc import Sequence

from overweave.language.messages import Control, Unadvertise, Unsubscribe

#: The timer of the next slice, and how many messages are withdrawn in one.
LEAVE, SLICE = "leave", 64
#: What a client said: its kind and id (`overweave.broker.registry`).
Key = tuple[str, str]


class Leaving:
    """Withdrawals that are due, by client, oldest client first."""

    def __init__(self) -> None:
        #: The next ones last: the first of a dict are the further away the more were taken.
        self._due: dict[str, dict[Key, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, client: str, keys: Sequence[Key]) -> None:
        """All this of a client is to be withdrawn, in this order."""
        self._due.setdefault(client, {}).update(dict.fromkeys(reversed(keys)))

    def keep(self, client: str, key: Key) -> None:
        """The client is back and speaks of this itself."""
        self._due.get(client, {}).pop(key, None)

    def cancel(self, client: str) -> None:
        """Nothing of a client is due any more."""
        self._due.pop(client, None)

    def next_slice(self) -> tuple[list[tuple[str, Control]], list[str]]:
        """Some withdrawals, which are no longer due, and the clients of whom none is left."""
        withdrawals: list[tuple[str, Control]] = []
        done = []
        for client, due in self._due.items():
            while due and len(withdrawals) < SLICE:
                (kind, id), _ = due.popitem()
                withdrawals.append((client, Unadvertise(id) if kind == "advertisement" else Unsubscribe(id)))
            if due:
                break
            done.append(client)
        for client in done:
            del self._due[client]
        return withdrawals, done
