"""Clients that have left, with registrations that are not withdrawn yet.

They are withdrawn in slices, so that a client with very many subscriptions does not block the broker when it leaves.
"""

from collections.abc import Sequence

from overweave.language.messages import Control, Unadvertise, Unsubscribe

#: The timer of the next slice, and its size.
LEAVE, SLICE = "leave", 64
#: Kind and id of a registration (`overweave.broker.registry`).
Key = tuple[str, str]


class Leaving:
    """Withdrawals that are due, by client, oldest client first."""

    def __init__(self) -> None:
        #: In reverse: removal from the front of a dict becomes slow.
        self._due: dict[str, dict[Key, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, client: str, keys: Sequence[Key]) -> None:
        """Withdraw registrations of a client, in this order."""
        self._due.setdefault(client, {}).update(dict.fromkeys(reversed(keys)))

    def keep(self, client: str, key: Key) -> None:
        """Do not withdraw a registration: its client has returned and sent a message about it."""
        self._due.get(client, {}).pop(key, None)

    def cancel(self, client: str) -> None:
        """Withdraw nothing of a client."""
        self._due.pop(client, None)

    def next_slice(self) -> tuple[list[tuple[str, Control]], list[str]]:
        """The next withdrawals, and the clients without further ones."""
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
