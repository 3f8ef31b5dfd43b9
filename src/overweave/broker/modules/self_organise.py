"""The self-organising overlay (DEST III-C): brokers that exchange much traffic get a link, and retire one with less.

In each period a broker counts what it addresses to every other (collection), finds the link that would shorten most of it
(evaluation), and agrees on it with the other end (execution). A broker with ``degree_max`` links retires the one whose loss
lengthens least. In the paper the worth of a link is what its two ends send each other. Here it is all traffic on it, or overlays
with traffic between all brokers would lose their busiest links.

The paper leaves open what happens when many brokers change links at once. Here changes are serial: a broker requests a grant of
the coordinator, the first broker of the overlay, which limits their number per period. A link is retired only when the new one
works and all brokers are reachable without it, so that the overlay stays connected. A new link has to win by a margin and stays
for two periods, so that links do not flap.
"""

import math
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from overweave.batches.destinations import destination_counts
from overweave.contract.effects import OpenLink, RetireLink, SetTimer
from overweave.contract.modules import (
    Decide,
    Delivered,
    Module,
    ModuleEffect,
    ModuleStimulus,
    PublishControl,
    Routed,
    SendControl,
    Started,
    TopologyView,
)
from overweave.contract.stimuli import TimerFired
from overweave.errors import InvalidInput
from overweave.language.headers import Priority
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication

CLASS = "OVERLAY_CHANGE"
PERIOD, CHECK, TIMEOUT = "period", "check", "timeout"
#: How often the progress of a change is checked, and how long it may take.
_CHECK_S, _TIMEOUT_S = 0.05, 5.0


class _Kind(StrEnum):
    """The messages; the values are on the wire."""

    CROSSED = "crossed"  # the traffic of the sender over the link to the receiver
    REQUEST = "ask"  # of a grant, at the coordinator
    GRANT = "go"
    DONE = "done"  # with the change, to the coordinator
    PROPOSE = "propose"  # a link between sender and receiver
    ANSWER = "answer"  # what that would save and cost at the other end
    CLOSE_LINK = "drop"  # because the new link works
    LINK_CLOSED = "dropped"


#: A proposal and its answer do not wait behind data, or a busy overlay could not change; if one is lost, the change times
#: out. All else stays behind the link states of its sender: a broker that closes a link or grants the next change must know them.
_URGENT = (_Kind.PROPOSE, _Kind.ANSWER)


class SelfOrganiseOptions(msgspec.Struct, frozen=True):
    """The period, and the limits on links and changes."""

    every_s: float = 60.0
    degree_max: int = 6
    #: A change must save so much more than it costs, as a share of what it costs.
    margin: float = 0.1
    #: Changes in the whole overlay in a period.
    changes_max: int = 20

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise InvalidInput(f"every_s: expected a time above 0, got {self.every_s:g}")
        if self.degree_max < 2:
            raise InvalidInput(f"degree_max: expected at least 2 links, got {self.degree_max}")
        if not self.margin >= 0:
            raise InvalidInput(f"margin: expected a share from 0 on, got {self.margin:g}")
        if self.changes_max < 1:
            raise InvalidInput(f"changes_max: expected at least 1, got {self.changes_max}")


class _Change(msgspec.Struct):
    """A change by this broker: a link to ``other``, in exchange for ``drop`` here and ``other_drop`` there, if not empty."""

    other: str
    drop: str = ""
    other_drop: str = ""
    #: The next step: an answer, the link, the retirement of ``drop``, or that the other end has closed ``other_drop``.
    awaits: str = _Kind.ANSWER


class SelfOrganise(Module):
    """The module at one broker."""

    watches = (Routed,)

    def __init__(self, broker: str, options: SelfOrganiseOptions) -> None:
        self._broker, self._options = broker, options
        self._overlay: TopologyView | None = None
        self._counts: Counter[int] = Counter()
        self._crossing: Counter[str] = Counter()
        #: Of the last period: traffic to each broker, over each link, and over each link by the count of its other end.
        self._sent: Mapping[str, int] = {}
        self._crossed: Mapping[str, int] = {}
        self._neighbour_crossed: dict[str, int] = {}
        self._periods = 0
        #: The period in which each link was made.
        self._made: dict[str, int] = {}
        self._change: _Change | None = None
        #: At the coordinator: the broker with the grant and its deadline, and the number of grants in this period.
        self._granted: tuple[str, float] | None = None
        self._grants = 0

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, Routed):
            self._count(stimulus)
        elif isinstance(stimulus, Started):
            self._overlay = stimulus.overlay
            if stimulus.overlay is not None:
                yield from self._start(now_s)
        elif isinstance(stimulus, TimerFired):
            yield from self._on_timer(stimulus.name, now_s)
        elif isinstance(stimulus, Delivered):
            yield from self._on_message(stimulus.publish.publication, now_s)

    def status(self) -> Mapping[str, object]:
        """See `Module.status`."""
        links = [] if self._overlay is None else self._overlay.up()
        change = None if self._change is None else f"{self._change.other}: {self._change.awaits}"
        return {"periods": self._periods, "links": len(links), "degree_max": self._options.degree_max, "change": change}

    def _start(self, now_s: float) -> Iterator[ModuleEffect]:
        names = (_is("class", CLASS), _is("sender", self._broker))
        texts = (Predicate(name, Operator.PRESENT, "") for name in ("to", "what", "drop"))
        numbers = (Predicate(name, Operator.PRESENT, 0) for name in ("count", "lose"))
        yield SendControl(Advertise(f"{self._broker}/organise", Filter((*names, *texts, *numbers))))
        yield SendControl(Subscribe(f"{self._broker}/organise", Filter((_is("class", CLASS), _is("to", self._broker)))))
        # Not all at the same time.
        phase = zlib.crc32(self._broker.encode()) / (1 << 32)
        yield SetTimer(PERIOD, now_s + self._options.every_s * (0.5 + phase))

    def _on_timer(self, name: str, now_s: float) -> Iterator[ModuleEffect]:
        if name == PERIOD:
            yield SetTimer(PERIOD, now_s + self._options.every_s)
            yield from self._evaluate()
        elif name == TIMEOUT:
            self._change = None
        elif name == CHECK and self._change is not None:
            yield SetTimer(CHECK, now_s + _CHECK_S)
            yield from self._advance(self._change)

    # ---- collection

    def _count(self, passed: Routed) -> None:
        """Count the traffic of each link, and that of clients of this broker by destination."""
        overlay = self._overlay
        if overlay is None or passed.batch.priority() is Priority.CONTROL:
            return
        own = passed.arrived is not None and not overlay.is_neighbour(passed.peer)
        for to, batch in passed.to:
            if to is not None and batch.has_destinations():
                self._crossing[to] += batch.count
                if own:
                    self._counts.update(destination_counts(batch))

    # ---- evaluation

    def _evaluate(self) -> Iterator[ModuleEffect]:
        overlay = self._view()
        self._periods += 1
        self._grants = 0
        numbers = {overlay.number_of(broker): broker for broker in overlay.distances}
        self._sent = {numbers[number]: count for number, count in self._counts.items() if number in numbers}
        self._crossed = self._crossing
        self._counts, self._crossing = Counter(), Counter()
        for neighbour in overlay.up():
            yield self._message(neighbour, _Kind.CROSSED, count=self._crossed.get(neighbour, 0))
        if self._change is None and (self._has_too_many() or self._candidate() is not None):
            yield self._message(self._coordinator(), _Kind.REQUEST)

    def _candidate(self) -> str | None:
        """The broker to which a link saves most, if that is more than its cost here."""
        distances, near = self._view().distances, set(self._view().up())
        gains = {
            broker: count * (distances[broker] - 1)
            for broker, count in self._sent.items()
            if broker in distances and broker not in near and broker != self._broker
        }
        best = max(sorted(gains), key=lambda broker: gains[broker], default=None)
        return best if best is not None and gains[best] > self._least_loss()[0] else None

    def _least_loss(self) -> tuple[float, str]:
        """The cost of one more link here, and the link to retire for it; empty if none has to be."""
        near = self._view().up()
        if len(near) < self._options.degree_max:
            return 0.0, ""
        return min(((self._loss(neighbour), neighbour) for neighbour in near), default=(math.inf, ""))

    def _loss(self, neighbour: str) -> float:
        if self._periods - self._made.get(neighbour, -2) < 2:
            return math.inf
        distances = _distances(self._view().adjacency(), self._broker, without=neighbour)
        if len(distances) < len(self._view().distances):
            return math.inf
        return (self._crossed.get(neighbour, 0) + self._neighbour_crossed.get(neighbour, 0)) * (distances[neighbour] - 1)

    def _has_too_many(self) -> bool:
        return len(self._view().up()) > self._options.degree_max

    # ---- execution

    def _on_message(self, message: Publication, now_s: float) -> Iterator[ModuleEffect]:
        sender, kind, change = str(message["sender"]), message["what"], self._change
        if kind == _Kind.CROSSED:
            self._neighbour_crossed[sender] = int(message["count"])
        elif kind == _Kind.REQUEST:
            yield from self._grant(sender, now_s)
        elif kind == _Kind.DONE and self._granted is not None and self._granted[0] == sender:
            self._granted = None
        elif kind == _Kind.GRANT:
            yield from self._on_grant(now_s)
        elif kind == _Kind.PROPOSE:
            cost, drop = (math.inf, "") if sender in self._view().up() else self._least_loss()
            yield self._message(sender, _Kind.ANSWER, count=self._sent.get(sender, 0), lose=cost, drop=drop)
        elif kind == _Kind.CLOSE_LINK:
            self._made[sender] = self._periods
            yield from self._close_link(str(message["drop"]))
            yield self._message(sender, _Kind.LINK_CLOSED)
        elif change is not None and change.other == sender and change.awaits == kind:
            if kind == _Kind.ANSWER:
                yield from self._on_answer(change, int(message["count"]), float(message["lose"]), str(message["drop"]), now_s)
            else:
                yield from self._finish()

    def _grant(self, broker: str, now_s: float) -> Iterator[ModuleEffect]:
        """At the coordinator: one grant at a time, and at most ``changes_max`` in a period."""
        if (self._granted is None or self._granted[1] < now_s) and self._grants < self._options.changes_max:
            self._granted = (broker, now_s + 2 * _TIMEOUT_S)
            self._grants += 1
            yield self._message(broker, _Kind.GRANT)

    def _on_grant(self, now_s: float) -> Iterator[ModuleEffect]:
        other = self._candidate()
        if self._has_too_many():
            loss, drop = self._least_loss()
            if loss < math.inf:
                yield from self._close_link(drop)
            yield from self._finish()
        elif other is None:
            yield from self._finish()
        else:
            self._change = _Change(other)
            yield SetTimer(TIMEOUT, now_s + _TIMEOUT_S)
            yield self._message(other, _Kind.PROPOSE)

    def _on_answer(self, change: _Change, count: int, lose: float, drop: str, now_s: float) -> Iterator[ModuleEffect]:
        distance = self._view().distances.get(change.other, 1)
        own_loss, change.drop = self._least_loss()
        change.other_drop, change.awaits = drop, "link"
        gain = (self._sent.get(change.other, 0) + count) * (distance - 1)
        if gain > (1 + self._options.margin) * (own_loss + lose):
            self._made[change.other] = self._periods
            figures = {"gain": float(gain), "own_loss": own_loss, "other_loss": lose, "distance": float(distance)}
            yield Decide("open-link", change.other, "the link shortens more traffic than the links retired for it", figures)
            yield OpenLink(change.other)
            yield SetTimer(CHECK, now_s + _CHECK_S)
        else:
            yield from self._finish()

    def _advance(self, change: _Change) -> Iterator[ModuleEffect]:
        """First the new link works, then this end retires its link, then the other end."""
        overlay = self._view()
        if change.awaits == "link" and overlay.distances.get(change.other) == 1:
            change.awaits = "retired"
            yield from self._close_link(change.drop)
        elif change.awaits == "retired" and change.drop not in overlay.up():
            change.awaits = _Kind.LINK_CLOSED
            yield self._message(change.other, _Kind.CLOSE_LINK, drop=change.other_drop)

    def _close_link(self, neighbour: str) -> Iterator[ModuleEffect]:
        """Retire a link, unless some broker would be unreachable without it."""
        loss = self._loss(neighbour) if neighbour in self._view().up() else math.inf
        if loss < math.inf:
            figures = {"loss": loss, "links": float(len(self._view().up())), "links_max": float(self._options.degree_max)}
            yield Decide("retire-link", neighbour, "the loss of this link lengthens the least traffic", figures)
            yield RetireLink(neighbour)
        elif self._change is not None and self._change.drop == neighbour:
            self._change.drop = ""

    def _finish(self) -> Iterator[ModuleEffect]:
        self._change = None
        yield self._message(self._coordinator(), _Kind.DONE)

    def _view(self) -> TopologyView:
        assert self._overlay is not None
        return self._overlay

    def _coordinator(self) -> str:
        """The broker that grants changes one at a time."""
        return min(self._view().distances)

    def _message(self, to: str, kind: _Kind, count: int = 0, lose: float = 0.0, drop: str = "") -> PublishControl:
        # No publication has an infinite value.
        cost = min(lose, 1e300)
        data = {"class": CLASS, "sender": self._broker, "to": to, "what": kind.value, "count": count, "lose": cost, "drop": drop}
        return PublishControl(Publication(data), urgent=kind in _URGENT)


def _is(name: str, value: str) -> Predicate:
    return Predicate(name, Operator.EQ, value)


def _distances(joined: Mapping[str, Iterable[str]], start: str, without: str) -> dict[str, int]:
    """The distance to every broker without the link from ``start`` to ``without``."""
    found, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for next in joined[at]:
            if next not in found and {at, next} != {start, without}:
                found[next] = found[at] + 1
                queue.append(next)
    return found
