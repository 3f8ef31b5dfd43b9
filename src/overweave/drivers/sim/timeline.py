"""The timeline of a scenario: joins, leaves, moves and rate changes at given times. A kind is a struct and a line in `KINDS`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from overweave.errors import InvalidInput
from overweave.overlay.checks import nearest


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """Clients of ``[[join]]``, which come at a time or evenly over a period. Until their first join they are not there."""

    #: Ids, or patterns with ``*`` and ``?``.
    clients: tuple[str, ...]
    at_s: float = 0.0
    over_s: float = 0.0


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """Clients of ``[[leave]]``, which go at a time or evenly over a period. Publishers settle their publications first."""

    clients: tuple[str, ...]
    at_s: float
    over_s: float = 0.0


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Publishers of ``[[rate]]``, which change their rate: to ``rate_hz``, or to ``factor`` times the rate of the workload."""

    at_s: float
    publishers: tuple[str, ...] = ("*",)
    factor: float | None = None
    rate_hz: float | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Clients of ``[[move]]``, which their brokers order to move ``to`` another one at a time or evenly over a period."""

    clients: tuple[str, ...]
    to: str
    at_s: float
    over_s: float = 0.0
    #: Whether the subscriptions move, and the publishing side.
    subscriptions: bool = True
    publishing: bool = True


Entry = Join | Leave | Rate | Move
#: Every kind by the name of its array of tables.
KINDS: Mapping[str, type[Entry]] = {"join": Join, "leave": Leave, "rate": Rate, "move": Move}


class TimedAction(NamedTuple):
    """One action of one client; ``path`` names its table."""

    at_s: float
    kind: str
    client: str
    entry: Entry
    path: str


class Clients(NamedTuple):
    """The ids of a workload."""

    publishers: Sequence[str]
    subscribers: Sequence[str]


class Timeline:
    """The actions of all tables, in order of time.

    >>> timeline = Timeline({"join": [Join(clients=("P1.*",), at_s=1, over_s=4)]}, Clients(["P1"], ["P1.1", "P1.2"]), 10)
    >>> [(each.at_s, each.kind, each.client) for each in timeline.actions], sorted(timeline.absent)
    ([(1.0, 'join', 'P1.1'), (3.0, 'join', 'P1.2')], ['P1.1', 'P1.2'])
    """

    def __init__(self, tables: Mapping[str, Sequence[Entry]], clients: Clients, duration_s: float) -> None:
        self._clients, self._duration_s = clients, duration_s
        found = [each for kind, rows in tables.items() for number, row in enumerate(rows) for each in self._of(kind, number, row)]
        self.actions: tuple[TimedAction, ...] = tuple(sorted(found, key=lambda each: each.at_s))
        #: Clients that join first.
        self.absent = frozenset(_absent(self.actions))

    def _of(self, kind: str, number: int, entry: Entry) -> Iterator[TimedAction]:
        path = f"{kind}[{number}]"
        over_s = 0.0 if isinstance(entry, Rate) else entry.over_s
        if not 0 <= entry.at_s < self._duration_s:
            raise InvalidInput(f"{path}.at_s: expected a time below duration_s, {self._duration_s:g}, got {entry.at_s:g}")
        if not 0 <= over_s <= self._duration_s - entry.at_s:
            raise InvalidInput(f"{path}.over_s: expected a time that ends by duration_s, {self._duration_s:g}, got {over_s:g}")
        if isinstance(entry, Rate):
            _check_rate(path, entry)
            chosen = _chosen(f"{path}.publishers", entry.publishers, self._clients.publishers)
        else:
            if isinstance(entry, Move) and not entry.subscriptions and not entry.publishing:
                raise InvalidInput(f"{path}.subscriptions: expected true if publishing is false, got false")
            chosen = _chosen(f"{path}.clients", entry.clients, [*self._clients.publishers, *self._clients.subscribers])
        for place, client in enumerate(chosen):
            yield TimedAction(entry.at_s + over_s * place / len(chosen), kind, client, entry, path)


def _chosen(path: str, patterns: Sequence[str], ids: Sequence[str]) -> list[str]:
    if not patterns:
        raise InvalidInput(f"{path}: expected at least one id or pattern, got []")
    for pattern in patterns:
        if not any(fnmatchcase(id, pattern) for id in ids):
            raise InvalidInput(f"{path}: expected ids of the workload, got {pattern!r}, {nearest(pattern, ids)}")
    return [id for id in ids if any(fnmatchcase(id, pattern) for pattern in patterns)]


def _check_rate(path: str, entry: Rate) -> None:
    if (entry.factor is None) == (entry.rate_hz is None):
        raise InvalidInput(f"{path}.factor: expected either this or rate_hz, got {'none' if entry.factor is None else 'both'}")
    for name in ("factor", "rate_hz"):
        value = getattr(entry, name)
        if value is not None and not value > 0:
            raise InvalidInput(f"{path}.{name}: expected a number above 0, got {value:g}")


def _absent(actions: Iterable[TimedAction]) -> Iterator[str]:
    """The clients whose first action is a join; joins and leaves of a client have to alternate."""
    last: dict[str, TimedAction] = {}
    for action in actions:
        if action.kind not in ("join", "leave"):
            continue
        before = last.get(action.client)
        if before is not None and before.kind == action.kind:
            raise InvalidInput(f"{action.path}.clients: expected joins and leaves in turn, got a second one of {action.client!r}")
        if before is None and action.kind == "join":
            yield action.client
        last[action.client] = action
