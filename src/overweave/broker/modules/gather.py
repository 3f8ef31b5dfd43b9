"""Convergecast: a module at one broker asks all brokers, and their answers are merged along the paths back.

Each broker forwards a request to its other neighbours, merges their answers with its own, and sends one answer back. So every
link of a tree carries one request and one answer. A broker answers a second copy of a request at once, with nothing: on overlays
with cycles each broker is counted once, in the tree of first arrivals.

Each level has a deadline, earlier than that of the level before by ``hop_s``. A broker without all answers by then sends a
partial one. It names the neighbours that did not answer; nothing is known of the brokers behind them.

A long answer travels in parts of `PART_BYTES`, in order. An answer that lacks a part counts as missing.

A module owns a `Gather`, passes its stimuli to `Gather.handle`, and yields the effects. TIR/TIA of GRAPE (THESIS ch 5) and
BIR/BIA of the planner (ch 6) are of this kind.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from overweave.contract.effects import SetTimer
from overweave.contract.modules import (
    ModuleEffect,
    ModuleStimulus,
    NeighbourMessage,
    NeighboursChanged,
    SendToNeighbour,
    Started,
)
from overweave.contract.stimuli import TimerFired
from overweave.errors import InvalidInput

#: The kinds of messages: an answer ends with ANSWER, after any number of PART.
REQUEST, PART, ANSWER = "gather-request", "gather-part", "gather-answer"
#: The longest piece of an answer in one message.
PART_BYTES = 1 << 20
#: Requests that a broker remembers, so that it ignores further copies.
_REQUESTS_MAX = 4096
_T = TypeVar("_T")


class GatherId(msgspec.Struct, frozen=True, array_like=True):
    """The identity of one request: the asking broker, the time there, and a number."""

    broker: str
    at_s: float
    number: int


class Gathered(msgspec.Struct, Generic[_T], frozen=True):
    """The outcome of a request at the broker that asked."""

    id: GatherId
    #: The merged answers; None if no broker had one.
    value: _T | None
    #: The number of brokers whose answers are merged.
    brokers: int
    #: The brokers that did not answer their neighbour in time, or were out of its reach. Nothing is known of those behind them.
    missing: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether all brokers within reach have answered."""
        return not self.missing


class _Request(msgspec.Struct, frozen=True):
    id: GatherId
    question: bytes
    hops_left: int | None
    deadline_s: float
    hop_s: float


class _Part(msgspec.Struct, frozen=True):
    """A piece of an encoded value; the last one is in the `_Answer`."""

    id: GatherId
    number: int
    piece: bytes


class _Answer(msgspec.Struct, frozen=True):
    id: GatherId
    #: The number of parts before this message.
    parts: int
    piece: bytes
    brokers: int
    missing: tuple[str, ...]


class _Open(msgspec.Struct):
    """A request that waits for answers of neighbours."""

    #: The neighbour that asked; None: this broker did.
    asked_by: str | None
    waits_for: set[str]
    value: Any
    brokers: int
    missing: list[str]
    on_gathered: Callable[[Gathered[Any]], Iterable[ModuleEffect]]
    #: The pieces so far of answers that are not complete, by neighbour.
    pieces: dict[str, list[bytes]] = msgspec.field(default_factory=dict)


_request_decoder = msgspec.msgpack.Decoder(_Request)
_part_decoder, _answer_decoder = msgspec.msgpack.Decoder(_Part), msgspec.msgpack.Decoder(_Answer)


class Gather(Generic[_T]):
    """Requests and answers of one module at one broker.

    ``answer`` is the broker's own answer to a question, or None. ``merge`` joins two answers; it is associative and commutative.
    ``on_gathered`` gets the outcome where the module has asked. ``select`` chooses, of the neighbours that could get a request,
    those that do.
    """

    def __init__(
        self,
        broker: str,
        type: type[_T],
        answer: Callable[[bytes], _T | None],
        merge: Callable[[_T, _T], _T],
        on_gathered: Callable[[Gathered[_T]], Iterable[ModuleEffect]],
        select: Callable[[bytes, tuple[str, ...]], Iterable[str]] = lambda _, neighbours: neighbours,
        urgent: bool = False,
    ) -> None:
        self._broker, self._urgent = broker, urgent
        #: No decoder: that cannot be copied, and simulated networks are.
        self._type = type
        self._answer, self._merge, self._on_gathered, self._select = answer, merge, on_gathered, select
        self._neighbours: tuple[str, ...] = ()
        self._number = 0
        self._open: dict[GatherId, _Open] = {}
        self._timers: dict[str, GatherId] = {}
        #: The requests seen so far, the oldest first.
        self._seen: dict[GatherId, None] = {}

    @property
    def open_count(self) -> int:
        """The number of requests that wait for answers here."""
        return len(self._open)

    def ask(
        self,
        question: bytes,
        now_s: float,
        deadline_s: float = 5.0,
        hop_s: float = 0.1,
        hops_max: int | None = None,
        neighbours: Iterable[str] | None = None,
        on_gathered: Callable[[Gathered[_T]], Iterable[ModuleEffect]] | None = None,
    ) -> Iterator[ModuleEffect]:
        """Ask all brokers, those within ``hops_max`` links, or those behind some neighbours, this broker included.

        The outcome is there after ``deadline_s`` at the latest. Each level of brokers has ``hop_s`` less than the one before:
        more than an answer takes over one link. ``on_gathered`` replaces that of the module for this request.
        """
        if not 0 < hop_s <= deadline_s:
            raise InvalidInput(f"hop_s: expected a time above 0 and up to deadline_s, which is {deadline_s:g}, got {hop_s:g}")
        self._number += 1
        id = GatherId(self._broker, now_s, self._number)
        request = _Request(id, question, hops_max, deadline_s, hop_s)
        yield from self._begin(request, None, neighbours, now_s, on_gathered or self._on_gathered)

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """Handle the stimuli that concern requests; others are ignored."""
        if isinstance(stimulus, Started | NeighboursChanged):
            yield from self._set_neighbours(stimulus.neighbours)
        elif isinstance(stimulus, NeighbourMessage) and stimulus.kind == REQUEST:
            yield from self._on_request(_request_decoder.decode(stimulus.body), stimulus.neighbour, now_s)
        elif isinstance(stimulus, NeighbourMessage) and stimulus.kind == ANSWER:
            yield from self._on_answer(_answer_decoder.decode(stimulus.body), stimulus.neighbour)
        elif isinstance(stimulus, NeighbourMessage) and stimulus.kind == PART:
            self._on_part(_part_decoder.decode(stimulus.body), stimulus.neighbour)
        elif isinstance(stimulus, TimerFired) and stimulus.name in self._timers:
            id = self._timers.pop(stimulus.name)
            if id in self._open:
                yield from self._end(id)

    def _set_neighbours(self, neighbours: tuple[str, ...]) -> Iterator[ModuleEffect]:
        """A neighbour that has left will not answer."""
        gone, self._neighbours = set(self._neighbours) - set(neighbours), neighbours
        for id, open in list(self._open.items()):
            lost = gone & open.waits_for
            open.waits_for -= lost
            open.missing += sorted(lost)
            if lost and not open.waits_for:
                yield from self._end(id)

    def _on_request(self, request: _Request, neighbour: str, now_s: float) -> Iterator[ModuleEffect]:
        if request.id in self._seen:
            yield from self._reply(neighbour, request.id, None, 0, ())
        else:
            yield from self._begin(request, neighbour, None, now_s, self._on_gathered)

    def _begin(
        self,
        request: _Request,
        asked_by: str | None,
        chosen: Iterable[str] | None,
        now_s: float,
        on_gathered: Callable[[Gathered[_T]], Iterable[ModuleEffect]],
    ) -> Iterator[ModuleEffect]:
        """Answer for this broker, and forward the request."""
        self._seen[request.id] = None
        if len(self._seen) > _REQUESTS_MAX:
            del self._seen[next(iter(self._seen))]
        value = self._answer(request.question)
        open = _Open(asked_by, set(), value, int(value is not None), [], on_gathered)
        self._open[request.id] = open
        targets = self._targets(request, asked_by, chosen)
        left_s = request.deadline_s - request.hop_s
        if left_s > 0:
            open.waits_for.update(targets)
            hops_left = None if request.hops_left is None else request.hops_left - 1
            body = msgspec.msgpack.encode(_Request(request.id, request.question, hops_left, left_s, request.hop_s))
            for neighbour in targets:
                yield SendToNeighbour(neighbour, REQUEST, body, self._urgent)
        else:
            open.missing += targets
        if open.waits_for:
            name = f"gather {request.id.broker} {request.id.at_s!r} {request.id.number}"
            self._timers[name] = request.id
            yield SetTimer(name, now_s + request.deadline_s)
        else:
            yield from self._end(request.id)

    def _targets(self, request: _Request, asked_by: str | None, chosen: Iterable[str] | None) -> list[str]:
        if request.hops_left == 0:
            return []
        others = tuple(each for each in self._neighbours if each != asked_by)
        selected = set(self._select(request.question, others) if chosen is None else chosen)
        return [each for each in others if each in selected]

    def _on_part(self, part: _Part, neighbour: str) -> None:
        open = self._open.get(part.id)
        if open is not None and neighbour in open.waits_for:
            pieces = open.pieces.setdefault(neighbour, [])
            if part.number == len(pieces):  # else one was lost, and the answer will be too short
                pieces.append(part.piece)

    def _on_answer(self, answer: _Answer, neighbour: str) -> Iterator[ModuleEffect]:
        open = self._open.get(answer.id)
        if open is None or neighbour not in open.waits_for:
            return  # it is late: a partial answer has been sent without it
        open.waits_for.remove(neighbour)
        pieces = open.pieces.pop(neighbour, [])
        if len(pieces) == answer.parts:
            value: _T | None = msgspec.msgpack.decode(b"".join((*pieces, answer.piece)), type=self._type | None)
            if value is not None:
                open.value = value if open.value is None else self._merge(open.value, value)
            open.brokers += answer.brokers
            open.missing += answer.missing
        else:
            open.missing.append(neighbour)
        if not open.waits_for:
            yield from self._end(answer.id)

    def _end(self, id: GatherId) -> Iterator[ModuleEffect]:
        """Send the answer, which is partial if neighbours have not answered."""
        open = self._open.pop(id)
        missing = tuple(sorted({*open.missing, *open.waits_for}))
        if open.asked_by is None:
            yield from open.on_gathered(Gathered(id, open.value, open.brokers, missing))
        else:
            yield from self._reply(open.asked_by, id, open.value, open.brokers, missing)

    def _reply(
        self, neighbour: str, id: GatherId, value: _T | None, brokers: int, missing: tuple[str, ...]
    ) -> Iterator[SendToNeighbour]:
        *pieces, last = in_parts(msgspec.msgpack.encode(value))
        for number, piece in enumerate(pieces):
            yield SendToNeighbour(neighbour, PART, msgspec.msgpack.encode(_Part(id, number, piece)), self._urgent)
        body = msgspec.msgpack.encode(_Answer(id, len(pieces), last, brokers, missing))
        yield SendToNeighbour(neighbour, ANSWER, body, self._urgent)


def in_parts(body: bytes) -> list[bytes]:
    """A message in pieces of at most `PART_BYTES`, one at least.

    >>> [len(piece) for piece in in_parts(bytes(PART_BYTES + 7))], in_parts(b"")
    ([1048576, 7], [b''])
    """
    return [body[at : at + PART_BYTES] for at in range(0, max(len(body), 1), PART_BYTES)]
