"""The self-organising overlay (DEST III-C): brokers that have much to say to each other get a link, and give up a lesser one.

In each period a broker counts what it addresses to every other (collection), finds the link that would shorten most of it
(evaluation), and agrees on it with the other end (execution). Who has ``degree_max`` links gives up the one whose loss lengthens
least. What a link is worth is in the paper what its two ends send each other; here it is all that crosses it, or overlays on
which everybody talks to everybody would lose the links that carry most.

The paper leaves open what happens when many change links at once. Here it is one at a time: whoever wants to asks the first
broker of the overlay, which lets one go ahead, and so many in a period; a link is given up only when the new one works and
everybody can be reached without it, so that the overlay never falls apart. A new link has to win by a margin, and stays for
two periods, so that links do not come and go.
"""

import math
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

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
PERIOD, LOOK, LATE = "period", "look", "late"
#: How often to look whether a link works, and how long a change may take.
_LOOK_S, _LATE_S = 0.05, 5.0
#: A proposal and its answer do not wait behind data, or a busy overlay could not change; if one is lost, the change is late. All
#: else stays behind the link states of its sender: who gives up a link or lets the next one go ahead must know them.
_URGENT = ("propose", "answer")


class SelfOrganiseOptions(msgspec.Struct, frozen=True):
    """How often, how many links, and how eagerly."""

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


class _Deal(msgspec.Struct):
    """A change that this broker makes: a link to ``other``, for one of its own, and maybe one of the other's."""

    other: str
    drop: str = ""
    other_drop: str = ""
    #: What is waited for.
    waits: str = "answer"


class SelfOrganise(Module):
    """The module at one broker."""

    watches = (Routed,)

    def __init__(self, broker: str, options: SelfOrganiseOptions) -> None:
        self._broker, self._options = broker, options
        self._overlay: TopologyView | None = None
        self._counts: Counter[int] = Counter()
        self._crossing: Counter[str] = Counter()
        #: Of the last period: what was sent to others, what went over each link, and what came over it as its other end says.
        self._sent: Mapping[str, int] = {}
        self._crossed: Mapping[str, int] = {}
        self._told: dict[str, int] = {}
        self._periods = 0
        #: In which period links were made.
        self._made: dict[str, int] = {}
        self._deal: _Deal | None = None
        #: At the first broker: who is making a change, until when at the latest, and how many there were in this period.
        self._busy: tuple[str, float] | None = None
        self._changes = 0

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, Routed):
            self._count(stimulus)
        elif isinstance(stimulus, Started):
            self._overlay = stimulus.overlay
            if stimulus.overlay is not None:
                yield from self._start(now_s)
        elif isinstance(stimulus, TimerFired):
            yield from self._timer(stimulus.name, now_s)
        elif isinstance(stimulus, Delivered):
            yield from self._hear(stimulus.publish.publication, now_s)

    def status(self) -> Mapping[str, object]:
        """See `Module.status`."""
        links = [] if self._overlay is None else self._overlay.up()
        change = None if self._deal is None else f"{self._deal.other}: {self._deal.waits}"
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

    def _timer(self, name: str, now_s: float) -> Iterator[ModuleEffect]:
        if name == PERIOD:
            yield SetTimer(PERIOD, now_s + self._options.every_s)
            yield from self._evaluate()
        elif name == LATE:
            self._deal = None
        elif name == LOOK and self._deal is not None:
            yield SetTimer(LOOK, now_s + _LOOK_S)
            yield from self._go_on()

    # ---- collection

    def _count(self, passed: Routed) -> None:
        """Count what goes over each link, and what clients of this broker send, by destination."""
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
        overlay = self._known()
        self._periods += 1
        self._changes = 0
        numbers = {overlay.number_of(broker): broker for broker in overlay.distances}
        self._sent = {numbers[number]: count for number, count in self._counts.items() if number in numbers}
        self._crossed = self._crossing
        self._counts, self._crossing = Counter(), Counter()
        for neighbour in overlay.up():
            yield self._say(neighbour, "crossed", count=self._crossed.get(neighbour, 0))
        if self._deal is None and (self._has_too_many() or self._candidate() is not None):
            yield self._say(self._first(), "ask")

    def _candidate(self) -> str | None:
        """The broker a link to which saves most, if that is more than the link costs here."""
        distances, near = self._known().distances, set(self._known().up())
        gains = {
            broker: count * (distances[broker] - 1)
            for broker, count in self._sent.items()
            if broker in distances and broker not in near and broker != self._broker
        }
        best = max(sorted(gains), key=lambda broker: gains[broker], default=None)
        return best if best is not None and gains[best] > self._least_loss()[0] else None

    def _least_loss(self) -> tuple[float, str]:
        """What it costs here to have one more link, and the link that has to go for it, if one has to."""
        near = self._known().up()
        if len(near) < self._options.degree_max:
            return 0.0, ""
        return min(((self._loss(neighbour), neighbour) for neighbour in near), default=(math.inf, ""))

    def _loss(self, neighbour: str) -> float:
        if self._periods - self._made.get(neighbour, -2) < 2:
            return math.inf
        distances = _distances(self._known().adjacency(), self._broker, without=neighbour)
        if len(distances) < len(self._known().distances):
            return math.inf
        return (self._crossed.get(neighbour, 0) + self._told.get(neighbour, 0)) * (distances[neighbour] - 1)

    def _has_too_many(self) -> bool:
        return len(self._known().up()) > self._options.degree_max

    # ---- execution

    def _hear(self, said: Publication, now_s: float) -> Iterator[ModuleEffect]:
        sender, what, deal = str(said["sender"]), said["what"], self._deal
        if what == "crossed":
            self._told[sender] = int(said["count"])
        elif what == "ask":
            yield from self._let_one_go(sender, now_s)
        elif what == "done":
            if self._busy is not None and self._busy[0] == sender:
                self._busy = None
        elif what == "go":
            yield from self._begin(now_s)
        elif what == "propose":
            cost, drop = (math.inf, "") if sender in self._known().up() else self._least_loss()
            yield self._say(sender, "answer", count=self._sent.get(sender, 0), lose=cost, drop=drop)
        elif what == "drop":
            self._made[sender] = self._periods
            yield from self._give_up(str(said["drop"]))
            yield self._say(sender, "dropped")
        elif deal is not None and deal.other == sender and deal.waits == what:
            if what == "answer":
                yield from self._decide(deal, int(said["count"]), float(said["lose"]), str(said["drop"]), now_s)
            else:
                yield from self._end()

    def _let_one_go(self, broker: str, now_s: float) -> Iterator[ModuleEffect]:
        """At the first broker: one at a time, and so many in a period."""
        if (self._busy is None or self._busy[1] < now_s) and self._changes < self._options.changes_max:
            self._busy = (broker, now_s + 2 * _LATE_S)
            self._changes += 1
            yield self._say(broker, "go")

    def _begin(self, now_s: float) -> Iterator[ModuleEffect]:
        other = self._candidate()
        if self._has_too_many():
            loss, drop = self._least_loss()
            if loss < math.inf:
                yield from self._give_up(drop)
            yield from self._end()
        elif other is None:
            yield from self._end()
        else:
            self._deal = _Deal(other)
            yield SetTimer(LATE, now_s + _LATE_S)
            yield self._say(other, "propose")

    def _decide(self, deal: _Deal, count: int, lose: float, drop: str, now_s: float) -> Iterator[ModuleEffect]:
        distance = self._known().distances.get(deal.other, 1)
        own_loss, deal.drop = self._least_loss()
        deal.other_drop, deal.waits = drop, "link"
        gain = (self._sent.get(deal.other, 0) + count) * (distance - 1)
        if gain > (1 + self._options.margin) * (own_loss + lose):
            self._made[deal.other] = self._periods
            figures = {"gain": float(gain), "own_loss": own_loss, "other_loss": lose, "distance": float(distance)}
            yield Decide("open-link", deal.other, "the link shortens more traffic than the links given up for it", figures)
            yield OpenLink(deal.other)
            yield SetTimer(LOOK, now_s + _LOOK_S)
        else:
            yield from self._end()

    def _go_on(self) -> Iterator[ModuleEffect]:
        """The new link comes first, then the own one goes, then the other's."""
        deal, overlay = self._deal, self._known()
        if deal is None:
            return
        if deal.waits == "link" and overlay.distances.get(deal.other) == 1:
            deal.waits = "gone"
            yield from self._give_up(deal.drop)
        elif deal.waits == "gone" and deal.drop not in overlay.up():
            deal.waits = "dropped"
            yield self._say(deal.other, "drop", drop=deal.other_drop)

    def _give_up(self, neighbour: str) -> Iterator[ModuleEffect]:
        """Retire a link, unless some broker would be unreachable without it."""
        loss = self._loss(neighbour) if neighbour in self._known().up() else math.inf
        if loss < math.inf:
            figures = {"loss": loss, "links": float(len(self._known().up())), "links_max": float(self._options.degree_max)}
            yield Decide("retire-link", neighbour, "the loss of this link lengthens the least traffic", figures)
            yield RetireLink(neighbour)
        elif self._deal is not None and self._deal.drop == neighbour:
            self._deal.drop = ""

    def _end(self) -> Iterator[ModuleEffect]:
        self._deal = None
        yield self._say(self._first(), "done")

    # ---- helpers

    def _known(self) -> TopologyView:
        assert self._overlay is not None
        return self._overlay

    def _first(self) -> str:
        """Who keeps changes apart."""
        return min(self._known().distances)

    def _say(self, to: str, what: str, count: int = 0, lose: float = 0.0, drop: str = "") -> PublishControl:
        # No publication has an infinite value.
        cost = min(lose, 1e300)
        said = {"class": CLASS, "sender": self._broker, "to": to, "what": what, "count": count, "lose": cost, "drop": drop}
        return PublishControl(Publication(said), urgent=what in _URGENT)


def _is(name: str, value: str) -> Predicate:
    return Predicate(name, Operator.EQ, value)


def _distances(joined: Mapping[str, Iterable[str]], start: str, without: str) -> dict[str, int]:
    """How far it is to everybody when the link from ``start`` to ``without`` is gone."""
    found, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for next in joined[at]:
            if next not in found and {at, next} != {start, without}:
                found[next] = found[at] + 1
                queue.append(next)
    return found
