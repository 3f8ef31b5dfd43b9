"""Tombstones of sessions: why a broker ended a client's session, until that client comes back and is told."""

from collections import OrderedDict
from typing import NamedTuple

from overweave.contract.wire import Gap

#: The oldest are forgotten when there are more.
TOMBSTONES_MAX = 10_000


class _Tombstone(NamedTuple):
    code: str
    text: str
    at_s: float
    rows: int


class Tombstones:
    """Of the clients of one broker, by name and by the key of their session, which nobody else knows.

    >>> tombstones = Tombstones()
    >>> tombstones.add("c", "key", "session-expired", "it was away for 30 s", at_s=100.0, rows=7)
    >>> tombstones.take("c", "another", 103.0), tombstones.take("c", "key", 103.0)
    (None, Gap(code='session-expired', text='it was away for 30 s', ago_s=3.0, rows=7))
    >>> tombstones.take("c", "key", 104.0)
    """

    def __init__(self, count_max: int = TOMBSTONES_MAX) -> None:
        self._tombstones: OrderedDict[tuple[str, str | None], _Tombstone] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._tombstones)

    def add(self, client: str, key: str | None, code: str, text: str, at_s: float, rows: int) -> None:
        """A session was ended by the broker, with so many rows that its client has not got."""
        self._tombstones[client, key] = _Tombstone(code, text, at_s, rows)
        self._tombstones.move_to_end((client, key))
        if len(self._tombstones) > self._count_max:
            self._tombstones.popitem(last=False)

    def take(self, client: str, key: str | None, now_s: float) -> Gap | None:
        """What to tell a client that comes, once."""
        found = self._tombstones.pop((client, key), None)
        return None if found is None else Gap(found.code, found.text, max(now_s - found.at_s, 0.0), found.rows)
