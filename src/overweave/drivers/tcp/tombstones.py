"""Tombstones of sessions: why a broker ended a client's session, until the client reconnects."""

from collections import OrderedDict
from typing import NamedTuple

from overweave.contract.wire import Gap

#: The oldest are removed when there are more.
TOMBSTONES_MAX = 10_000


class _Tombstone(NamedTuple):
    code: str
    text: str
    at_s: float
    rows: int


class Tombstones:
    """The tombstones of one broker, by client name and secret session key.

    >>> tombstones = Tombstones()
    >>> tombstones.add("c", "key", "session-expired", "it was away for 30 s", at_s=100.0, rows=7)
    >>> tombstones.pop("c", "another", 103.0), tombstones.pop("c", "key", 103.0)
    (None, Gap(code='session-expired', text='it was away for 30 s', ago_s=3.0, rows=7))
    >>> tombstones.pop("c", "key", 104.0)
    """

    def __init__(self, count_max: int = TOMBSTONES_MAX) -> None:
        self._tombstones: OrderedDict[tuple[str, str | None], _Tombstone] = OrderedDict()
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._tombstones)

    def add(self, client: str, key: str | None, code: str, text: str, at_s: float, rows: int) -> None:
        """Record that the broker ended a session, with ``rows`` that were not delivered."""
        self._tombstones[client, key] = _Tombstone(code, text, at_s, rows)
        self._tombstones.move_to_end((client, key))
        if len(self._tombstones) > self._count_max:
            self._tombstones.popitem(last=False)

    def pop(self, client: str, key: str | None, now_s: float) -> Gap | None:
        """The gap for a client that connects, once."""
        found = self._tombstones.pop((client, key), None)
        return None if found is None else Gap(found.code, found.text, max(now_s - found.at_s, 0.0), found.rows)
