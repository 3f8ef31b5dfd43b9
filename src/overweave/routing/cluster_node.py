"""A broker among others who route to each other by destination: the matching layer over the multicasting layer (DEST III).

Everything that goes from one broker to others carries the list of those it is meant for, and is split where ways part.
Advertisements go to everybody, subscriptions to those with advertisements that they intersect. Two brokers who come to know
of each other tell each other all that stands (`StateSnapshot`), and from then on what changes.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from overweave.batches.destinations import NextHops, bits_of, numbers_of
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Send
from overweave.routing.messages import LinkState, StateSnapshot
from overweave.routing.remote import Entry, Origin, RemoteTable, RouteEntry, Tombstones
from overweave.routing.topology import UP, Topology

#: A life of a broker has at most so many statements.
STATEMENTS_MAX = 1 << 20
#: So many statements of brokers are kept of whose links nothing is known yet.
_EARLY_MAX = 10_000


class ClusterNode:
    """One broker's part in a cluster, or in the whole overlay where there is only one.

    ``changed`` hears which subscriptions of others have changed, ``offered`` which advertisements, by broker and id. In a
    cluster every advertisement is answered with what is wanted of it, when ``knows`` says that this is known. All clusters of a
    broker share what clients have ``withdrawn``.
    """

    def __init__(
        self,
        broker: str,
        number: int,
        changed: Callable[[str, str, RouteEntry | None], None],
        cluster: str | None = None,
        offered: Callable[[str, str, RouteEntry | None], None] = lambda _, __, ___: None,
        knows: Callable[[str, RouteEntry], bool] = lambda _, __: True,
        withdrawn: tuple[Tombstones, Tombstones] | None = None,
    ) -> None:
        #: What clients have withdrawn, advertisements and subscriptions.
        self._ended, self._unwanted = withdrawn or (Tombstones(), Tombstones())
        self.cluster = cluster
        self.topology = Topology(broker, number)
        self._broker = broker
        self._statement = STATEMENTS_MAX
        #: What this broker stands for towards the others.
        self.local_advertisements: dict[str, RouteEntry] = {}
        #: The number of the statement that told each of these advertisements first, as it is now.
        self._advertised_since: dict[str, int] = {}
        self.local_subscriptions: dict[str, RouteEntry] = {}
        #: What others stand for: R-SRT and R-PRT.
        self.advertisements, self.subscriptions = RemoteTable(offered), RemoteTable(changed)
        self._offered, self._changed = offered, changed
        #: The others who know us, by incarnation, and who they were found among.
        self._met: dict[str, int] = {}
        self._members: dict[str, int] = {}
        #: Who has not answered to our advertisements yet, by these; and theirs that we have not answered, by broker; always with
        #: the numbers of the statements.
        self._unanswered: dict[str, dict[str, int]] = {}
        self._knows, self._owed = knows, dict[str, dict[str, int]]()
        #: Who has not said yet what it stands for.
        self._untold: set[str] = set()
        #: The numbers of the latest answers to our advertisements, by these and who answered.
        self._answers: dict[str, dict[str, int]] = {}
        #: With which number each broker was told last all that stands; answers to what was told it before mean nothing.
        self._stood: dict[str, int] = {}
        self._early: list[Control] = []
        #: Whether others do not know yet of all links that work, because some were not tried: most are, soon after each other.
        self._withheld = False

    # ---- links

    def begin(self, incarnation: int) -> None:
        """Which life of the broker this is."""
        self.topology.begin(incarnation)
        self._statement = incarnation * STATEMENTS_MAX

    def link(self, neighbour: str, state: str) -> list[Send]:
        """A link works, or does not; the neighbour at a link that works again hears first what it has missed."""
        if not self.topology.set(neighbour, state):
            return []
        if state != UP:
            return self._tell_links()
        self._withheld = self.topology.has_pending_links()
        missed: list[Send] = [(neighbour, told) for told in self.snapshot_for(neighbour)]
        return [*missed, *(self._meet() if self._withheld else self._tell_links())]

    def tick(self) -> list[Send]:
        """Some time has passed: a link that was not tried by now may not be for long."""
        return self._tell_links() if self._withheld else []

    def unlink(self, neighbour: str) -> list[Send]:
        """There is no such link any more."""
        self.topology.remove(neighbour)
        return self._tell_links()

    def snapshot_for(self, neighbour: str) -> list[Control]:
        """All that a neighbour must know of the overlay, unless it is told when its link works."""
        if neighbour not in self.topology.up():
            return []
        return list(self._marked(self.topology.other_states() if self._withheld else self.topology.states()))

    def _tell_links(self) -> list[Send]:
        self._withheld = False
        return [*self._flood(self.topology.own_state(), None), *self._meet()]

    def _flood(self, state: LinkState, but: str | None) -> list[Send]:
        return [(neighbour, marked) for marked in self._marked([state]) for neighbour in self.topology.up() if neighbour != but]

    def _marked(self, states: Iterable[LinkState]) -> Iterable[Control]:
        header = Header(cluster=self.cluster)
        return (state if self.cluster is None else msgspec.structs.replace(state, header=header) for state in states)

    # ---- what this broker has to say

    def advertise(self, id: str, stated: RouteEntry) -> list[Send]:
        """Stand for an advertisement."""
        before = self.local_advertisements.get(id)
        self.local_advertisements[id] = stated
        if before is not None:
            self._drop_unadvertised(before)
        sends = self._say(Advertise(id, stated.filter), self._everybody(), stated)
        self._advertised_since[id] = self._statement
        self._answers.pop(id, None)
        if self.cluster is not None:
            self._expect_answers(id, self._met)
        return sends

    def unadvertise(self, id: str) -> list[Send]:
        """Stand for it no more; subscriptions that only it had called for are forgotten."""
        gone = self.local_advertisements.pop(id)
        self._unanswered.pop(id, None)
        self._answers.pop(id, None)
        del self._advertised_since[id]
        self._drop_unadvertised(gone)
        return self._say(Unadvertise(id), self._everybody(), origin=self._ended.of(id, gone))

    def _drop_unadvertised(self, gone: RouteEntry) -> None:
        """Forget subscriptions that only an advertisement had called for which does not hold any more."""
        called_for = [
            (broker, subscription)
            for broker in self.subscriptions.brokers()
            for subscription, wanted in self.subscriptions.by_broker(broker).items()
            if gone.intersects(wanted) and not _any_intersects(self.local_advertisements, wanted)
        ]
        for broker, subscription in called_for:
            self.subscriptions.drop(broker, subscription)

    def subscribe(self, id: str, stated: RouteEntry) -> list[Send]:
        """Want something."""
        before, towards = self.local_subscriptions.get(id), self._towards(stated)
        self.local_subscriptions[id] = stated
        sends = self._say(Subscribe(id, stated.filter), towards, stated)
        # Those who were told another version of it, which this one does not concern, are told that it holds no more.
        no_more = 0 if before is None else self._towards(before) & ~towards
        return [*sends, *(self._say(Unsubscribe(id), no_more) if no_more else [])]

    def unsubscribe(self, id: str) -> list[Send]:
        """Want it no more."""
        gone = self.local_subscriptions.pop(id)
        return self._say(Unsubscribe(id), self._towards(gone), origin=self._unwanted.of(id, gone))

    # ---- what others have to say

    def handle(self, message: Control, peer: str) -> list[Send]:
        """Something from a neighbour: for us, for others, or both."""
        if isinstance(message, LinkState):
            return [*self._flood(message, peer), *self._meet()] if self.topology.accept(message) else []
        mine, destinations = 1 << self.topology.number, bits_of(message.header.destinations)
        sends = self.pass_on(message, destinations & ~mine)
        return [*sends, *self._hear(message)] if destinations & mine else sends

    def pass_on(self, message: Control, destinations: int) -> list[Send]:
        """A message by next hop, each with the part of its destination list that lies there."""
        return [
            (hop, msgspec.structs.replace(message, header=msgspec.structs.replace(message.header, destinations=numbers_of(part))))
            for hop, part in self.topology.next_hops.split(destinations)
        ]

    def _hear(self, message: Control) -> list[Send]:
        source, number = str(message.header.source), message.header.sequence
        if source not in self._met:
            self._early = [*self._early[-_EARLY_MAX + 1 :], message]  # it comes to our sight before long
            return []
        match message:
            case Advertise(id, filter, header):
                stated = RouteEntry(filter, header.path, False, header.origin, number)
                if not self._ended.covers(id, stated) and self.advertisements.add(source, id, stated):
                    if self.cluster is not None:
                        return self._owe(source, [id], number)
                    return [
                        send
                        for id, wanted in self.local_subscriptions.items()
                        if stated.intersects(wanted)
                        for send in self._say(Subscribe(id, wanted.filter), self._only(source), wanted)
                    ]
            case Unadvertise(id, header):
                if header.origin is not None and self._ended.add(id, header.origin):
                    self._offered(source, id, None)
                self.advertisements.remove(source, id, number)
            case Subscribe(id, filter, header):
                stated = RouteEntry(filter, header.path, header.backup, header.origin, number)
                if self._unwanted.covers(id, stated):
                    self.subscriptions.remove(source, id, number)
                    return []
                # If all advertisements that call for it were answered later, it was told then, or holds no more.
                calling = [id for id, advertised in self.local_advertisements.items() if advertised.intersects(stated)]
                if any(self._answers.get(of, {}).get(source, -1) < number for of in calling):
                    self.subscriptions.add(source, id, stated)
                elif not calling:
                    self.subscriptions.remove(source, id, number)  # what was known of it holds no more all the same
            case Unsubscribe(id, header):
                if header.origin is not None and self._unwanted.add(id, header.origin):
                    self._changed(source, id, None)
                self.subscriptions.remove(source, id, number)
            case StateSnapshot(_, entries, answers=None):
                if number >= self._met[source] * STATEMENTS_MAX:  # else it is of an earlier life
                    self._untold.discard(source)
                standing = [entry for entry in entries if not self._ended.covers(entry[0], RouteEntry(*entry[1:]))]
                self.advertisements.replace(source, standing, number)
                sends = self._owe(source, [id for id, *_ in entries], number)
                stands = message.asks and (self.local_advertisements or self.cluster is not None)
                return [*sends, *(self._stand_before([source], asks=False) if stands else [])]
            case StateSnapshot(_, entries, answers=answers) if answers is not None:
                # Advertisements may have been withdrawn meanwhile, or be others than those that were answered.
                answered = {
                    id: self.local_advertisements[id]
                    for id, asked in answers
                    if id in self.local_advertisements and asked >= max(self._advertised_since[id], self._stood.get(source, 0))
                }
                held = [entry for entry in entries if not self._unwanted.covers(entry[0], RouteEntry(*entry[1:]))]
                called_for = [entry for entry in held if _any_intersects(answered, RouteEntry(*entry[1:]))]
                self.subscriptions.replace(source, called_for, number, lambda stated: _any_intersects(answered, stated))
                for id in answered:
                    told = self._answers.setdefault(id, {})
                    told[source] = max(number, told.get(source, number))
                for id, asked in answers:
                    self._answered(id, source, asked)
        return []

    # ---- answers

    def _owe(self, source: str, ids: list[str], number: int) -> list[Send]:
        owed = self._owed.setdefault(source, {})
        for id in ids:
            owed[id] = max(number, owed.get(id, number))
        return self.answers()

    def answers(self) -> list[Send]:
        """Tell those who wait for it what we want of their advertisements, as far as that is known."""
        return [send for source in list(self._owed) for send in self._answer(source)]

    def _answer(self, source: str) -> list[Send]:
        owed, advertised = self._owed[source], self.advertisements.by_broker(source)
        known = {id: number for id, number in owed.items() if id not in advertised or self._knows(id, advertised[id])}
        self._owed[source] = {id: number for id, number in owed.items() if id not in known}
        if not self._owed[source]:
            del self._owed[source]
        answered = {id: advertised[id] for id in known if id in advertised}
        if not answered:
            return []
        wanted = {id: stated for id, stated in self.local_subscriptions.items() if _any_intersects(answered, stated)}
        numbers = tuple((id, known[id]) for id in answered)
        return self._say(StateSnapshot(self._broker, _entries(wanted), answers=numbers), self._only(source))

    def _expect_answers(self, id: str, brokers: Iterable[str]) -> None:
        unanswered = dict.fromkeys(brokers, self._statement)
        if unanswered:
            self._unanswered.setdefault(id, {}).update(unanswered)

    def _answered(self, id: str, broker: str, number: int) -> None:
        unanswered = self._unanswered.get(id, {})
        if unanswered.get(broker, number + 1) <= number:
            del unanswered[broker]
            if not unanswered:
                del self._unanswered[id]

    def awaits(self, id: str) -> bool:
        """Whether it is not known yet what everybody wants of an advertisement."""
        return id in self._unanswered

    def _stand_before(self, brokers: list[str], asks: bool) -> list[Send]:
        sends = self._say(StateSnapshot(self._broker, _entries(self.local_advertisements), asks=asks), self._some(brokers))
        self._stood.update(dict.fromkeys(brokers, self._statement))
        for id in self.local_advertisements:
            self._expect_answers(id, brokers)
        return sends

    # ---- who is there

    @property
    def converged(self) -> bool:
        """Whether it is known what everybody wants."""
        return not self._unanswered and self.topology.complete

    @property
    def synced(self) -> bool:
        """Whether it is known what everybody stands for."""
        return not self._untold and self.topology.complete

    def _meet(self) -> list[Send]:
        """Tell newcomers what stands, and forget those who are gone, after a change of the overlay."""
        members = self.topology.members
        if members is self._members:
            return []
        self._members = members
        for broker in [broker for broker in self._met if broker not in members]:
            self._forget(broker)
        newcomers = [broker for broker, incarnation in members.items() if self._met.get(broker) != incarnation]
        if not newcomers:
            return []
        for broker in newcomers:
            if broker in self._met:
                self._expect_nothing(broker)  # what it said in its last life holds until it has said what does now
            else:
                self._forget(broker)
            self._met[broker] = members[broker]
            self._untold.add(broker)
        sends = self._stand_before(newcomers, asks=True)
        early, self._early = self._early, []
        return [*sends, *(send for message in early for send in self._hear(message))]

    def _forget(self, broker: str) -> None:
        self._met.pop(broker, None)
        self._untold.discard(broker)
        self._expect_nothing(broker)
        self.advertisements.forget(broker)
        self.subscriptions.forget(broker)

    def _expect_nothing(self, broker: str) -> None:
        for id in list(self._unanswered):
            self._answered(id, broker, self._statement)
        self._owed.pop(broker, None)

    def validate(self) -> None:
        """Check what must always hold."""
        self.topology.validate()
        self.advertisements.validate()
        self.subscriptions.validate()
        assert self.local_advertisements.keys() == self._advertised_since.keys()
        assert self._answers.keys() <= self.local_advertisements.keys()
        assert self._unanswered.keys() <= self.local_advertisements.keys()
        assert self._untold <= self._met.keys()
        # Only brokers that are known, and known of, have anything in the remote tables.
        assert {*self.advertisements.brokers(), *self.subscriptions.brokers()} <= self._met.keys()
        assert all(since <= self._statement for since in self._advertised_since.values())

    # ---- destination lists

    @property
    def ways(self) -> NextHops:
        """The next hops to all who can be reached."""
        return self.topology.next_hops

    def wanted_by(self, id: str) -> list[tuple[int, RouteEntry]]:
        """The numbers of the others who stand for a subscription, and what they say of it."""
        return [
            (number, stated)
            for broker, stated in self.subscriptions.by_id(id).items()
            if (number := self.topology.number_of(broker)) is not None
        ]

    def _say(
        self, message: Control, destinations: int, stated: RouteEntry | None = None, origin: Origin | None = None
    ) -> list[Send]:
        self._statement += 1
        path, backup, origin = ((), False, origin) if stated is None else stated[1:4]
        header = Header(
            source=self._broker, sequence=self._statement, cluster=self.cluster, path=path, backup=backup, origin=origin
        )
        return self.pass_on(msgspec.structs.replace(message, header=header), destinations) if destinations else []

    def _everybody(self) -> int:
        return self._some(self._met)

    def _towards(self, wanted: RouteEntry) -> int:
        brokers = self.advertisements.brokers()
        return self._some(broker for broker in brokers if _any_intersects(self.advertisements.by_broker(broker), wanted))

    def _only(self, broker: str) -> int:
        return self._some((broker,))

    def _some(self, brokers: Iterable[str]) -> int:
        return bits_of(number for broker in brokers if (number := self.topology.number_of(broker)) is not None)


def _any_intersects(advertised: Mapping[str, RouteEntry], wanted: RouteEntry) -> bool:
    return any(advertisement.intersects(wanted) for advertisement in advertised.values())


def _entries(stated: Mapping[str, RouteEntry]) -> tuple[Entry, ...]:
    return tuple((id, some.filter, some.path, some.backup, some.origin) for id, some in stated.items())
