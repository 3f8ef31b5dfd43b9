"""Match at edge brokers, and by destination within clusters, MERC (DEST IV): the overlay is divided into clusters, each of which
routes by destination on its own; brokers that belong to several clusters match what comes from one against what the others want.

An edge broker stands in each cluster for what it knows from its others, in its own name (`Forward`, algorithm 3). What is
told so carries the clusters that it has passed, and goes into none of them again. All ways through clusters are told, by edge
brokers that join the same two or all round a circle. A publication takes the shortest that it can know of, all of them if
several are as short; copies that come later are dropped. Whoever stands for a subscription no more, because it is gone or has
lost its own way, was not the only one known: what is on its way there is matched again, and nothing is lost.

A link is in the first cluster that both its ends belong to, or else a cluster of its own. A cluster whose links do not lead to
all its brokers counts as several.
"""

from collections.abc import Iterable
from functools import lru_cache, partial

from overweave.contract.batches import Batch, Ways
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.overlay.graph import Overlay
from overweave.routing.base import Forward, Instead, Send, SubscriptionTable
from overweave.routing.choice import Choice
from overweave.routing.member import Member
from overweave.routing.remote import RemoteTable, Stated
from overweave.routing.topology import DOWN, UP

#: The cluster of brokers that belong to none.
_WHOLE = "*"


class Merc:
    """At one broker: its own clients, and its part in each of its clusters."""

    acyclic = False
    watches_links = True

    def __init__(self, broker: str, overlay: Overlay) -> None:
        self._broker, self._overlay, self._incarnation = broker, overlay, 1
        self._number = overlay.position(broker)
        #: Of which it is not known in all clusters what has become of them.
        self._changed: dict[str, None] = {}
        self._members = {part: self._join(part) for part in _parts(overlay)[broker].values()}
        self._links: dict[str, Member] = {}
        self._advertisements: dict[str, tuple[Stated, str]] = {}
        self._wanted: dict[str, Stated] = {}
        self._subscriptions = SubscriptionTable()
        #: Whom publications are meant for, by the cluster that they come from (None: from clients), where some have come; and who
        #: stands no more for a subscription, likewise, as long as what is on its way there may have to go elsewhere.
        self._choices: dict[str | None, Choice] = {}
        self._lost: dict[str | None, dict[str, set[int]]] = {}
        self._ways: tuple[list[Ways], Ways] = ([], Ways(()))

    def _join(self, cluster: str) -> Member:
        member = Member(self._broker, self._number, partial(self._note, cluster), cluster, partial(self._knows, cluster))
        member.begin(self._incarnation)
        return member

    def _note(self, cluster: str, broker: str, id: str) -> None:
        """Something has changed that a broker says in a cluster."""
        self._changed[id] = None
        member = self._members[cluster]
        number = member.topology.number_of(broker)
        if number is not None and broker not in member.subscriptions.about(id):
            for lost in self._lost.values():
                lost.setdefault(id, set()).add(number)

    def _knows(self, cluster: str, id: str, heard: Stated) -> bool:
        """Whether it is known what all other clusters want of an advertisement that was heard in one.

        Nobody waits in a circle: only those wait who have passed it on, on a way that is longer each time.
        """
        return not self._changed and all(
            member.topology.whole and not (member.awaits(id) and _leads_on(heard, cluster, member.advertised[id]))
            for other, member in self._members.items()
            if other != cluster
        )

    # ---- links

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""
        self._incarnation = incarnation
        for member in self._members.values():
            member.begin(incarnation)

    def overlay(self) -> None:
        """See `Routing.overlay`: a broker knows its clusters only."""
        return

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        shared = _cluster_of_link(self._overlay, self._broker, neighbour)
        cluster = _parts(self._overlay)[self._broker].get(shared, shared)
        if cluster not in self._members:
            self._members[cluster] = self._join(cluster)
        self._links[neighbour] = self._members[cluster]
        self._links[neighbour].topology.add(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        return [*self._links.pop(neighbour).unlink(neighbour), *self._reflect()]

    def link_up(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.link_up`."""
        return [*self._links[neighbour].link(neighbour, UP), *self._reflect()]

    def link_down(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.link_down`."""
        return [*self._links[neighbour].link(neighbour, DOWN), *self._reflect()]

    def beat(self) -> Iterable[Send]:
        """See `Routing.beat`."""
        return [*(send for member in self._members.values() for send in member.beat()), *self._reflect()]

    def announce(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.announce`."""
        return self._links[neighbour].announce(neighbour)

    def learned(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned`: nothing holds only because a neighbour said it."""
        return ()

    # ---- control

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
        member = self._members.get(message.header.cluster or "")
        return [*(self._say(message, peer) if member is None else member.handle(message, peer)), *self._reflect()]

    def _say(self, message: Control, peer: str) -> list[Send]:
        """What a client says is told in all clusters, as is all else that this broker comes to stand for."""
        match message:
            case Advertise(id, filter) if id not in self._advertisements:
                self._advertisements[id] = (Stated(filter), peer)
            case Unadvertise(id) if id in self._advertisements and self._advertisements[id][1] == peer:
                del self._advertisements[id]
            case Subscribe(id, filter) if self._subscriptions.add(id, filter, peer):
                self._wanted[id] = Stated(filter)
            case Unsubscribe(id) if self._subscriptions.remove(id, peer) is not None:
                del self._wanted[id]
            case _:
                return []
        self._changed[message.id] = None
        return []

    def _reflect(self) -> list[Send]:
        """Stand in each cluster for what its own clients and its other clusters say, after something has changed."""
        sends: list[Send] = []
        while self._changed:
            id = next(iter(self._changed))
            del self._changed[id]
            for cluster, member in self._members.items():
                own = self._advertisements.get(id)
                offer = own[0] if own else self._elsewhere(cluster, id, "advertisements")
                if _differ(offer, member.advertised.get(id)):
                    sends += member.unadvertise(id) if offer is None else member.advertise(id, offer)
                want = self._wanted.get(id) or self._elsewhere(cluster, id, "subscriptions")
                if _differ(want, member.wanted.get(id)):
                    sends += member.unsubscribe(id) if want is None else member.subscribe(id, want)
            for source, choice in self._choices.items():
                choice.set(id, self._nearest(source, id))
        return [*sends, *(answer for member in self._members.values() for answer in member.answers())]

    def _elsewhere(self, cluster: str, id: str, table: str) -> Stated | None:
        """What is known of something in other clusters, by the shortest way that has not passed this one."""
        known = [
            Stated(stated.filter, (*stated.path, other))
            for other, member in self._members.items()
            if other != cluster
            for stated in _table(member, table).about(id).values()
            if cluster not in stated.path
        ]
        return min(known, key=lambda stated: (len(stated.path), stated.path), default=None)

    def _nearest(self, source: str | None, id: str) -> dict[int, Filter]:
        """Who leads to a subscription on the shortest ways through clusters, for what comes from one of these or from clients."""
        known = [
            (len(stated.path), number, stated.filter)
            for cluster, member in self._members.items()
            if cluster != source
            for number, stated in member.wanted_by(id)
            if source not in stated.path
        ]
        shortest = min((length for length, _, _ in known), default=0)
        return {number: filter for length, number, filter in known if length == shortest}

    def _choice(self, source: str | None) -> Choice:
        if source not in self._choices:
            choice = self._choices[source] = Choice()
            self._lost[source] = {}
            for id in {id for member in self._members.values() for id in member.subscriptions.ids()}:
                choice.set(id, self._nearest(source, id))
        return self._choices[source]

    # ---- publications

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:
        """See `Routing.arriving`."""
        return (batch, None) if origin is None else batch.meant_for(self._number)

    def lanes(self, origin: str | None) -> tuple[str, ...]:
        """See `Routing.lanes`: what came through one cluster goes into the others, and another copy may have to go into that one.

        Who brings it into a cluster need not know all there who want it: on a longer way it has not told the advertisement.
        """
        member = None if origin is None else self._links.get(origin)
        return tuple(self._members) if member is None else (str(member.cluster),)

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if batch.is_bound():
            return batch.parted(self._all_ways())
        members, source = self._beyond(origin), None if origin is None else self._links.get(origin)
        if not all(member.ready for member in members) or (members and source is not None and not source.told_all):
            return [(None, batch)]
        here = self._subscriptions.route(batch, None)
        bound = batch.addressed(self._choice(None if source is None else source.cluster).wanting(batch))
        return here if bound is None else [*here, *bound.parted(self._all_ways())]

    def instead(self) -> Instead | None:
        """See `Routing.instead`: it goes to those who lead to the same subscription now, as soon as that is known."""
        ready = all(member.ready for member in self._members.values())
        anew: dict[str | None, dict[int, Choice]] = {}
        for source, lost in self._lost.items():
            for id, numbers in list(lost.items()):
                chosen = self._choices[source].of(id)
                for number in numbers - chosen.keys() if chosen else ():
                    anew.setdefault(source, {}).setdefault(number, Choice()).set(id, chosen)
                if chosen or ready:
                    del lost[id]
        return partial(self._match_again, anew) if anew else None

    def _match_again(self, anew: dict[str | None, dict[int, Choice]], batch: Batch, origin: str | None) -> list[Forward]:
        source = None if origin is None else self._links[origin].cluster
        forwards: list[Forward] = []
        for number, choice in anew.get(source, {}).items():
            some, _ = batch.meant_for(number)
            bound = None if some is None else some.addressed(choice.wanting(some))
            forwards += [] if bound is None else bound.parted(self._all_ways())
        return forwards

    def compared_with(self, batch: Batch, origin: str | None) -> int:
        """See `Routing.compared_with`."""
        if origin is not None and batch.meant_for(self._number)[0] is None:
            return 0
        source = None if origin is None else self._links[origin].cluster
        return len(self._subscriptions) + len(self._choice(source))

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        members = self._members.values()
        remote = sum(len(member.subscriptions) for member in members)
        return {
            "advertisements": len(self._advertisements) + sum(len(member.advertisements) for member in members),
            "subscriptions": len(self._subscriptions) + remote,
            "remote subscriptions": remote,
        }

    def _beyond(self, origin: str | None) -> list[Member]:
        """The clusters in which publications have not been yet, when they come from a neighbour or a client."""
        return [member for member in self._members.values() if origin is None or member is not self._links.get(origin)]

    def _all_ways(self) -> Ways:
        """The next hops in all clusters; to a broker that is in several of them, the shortest."""
        ways = [member.ways for member in self._members.values()]
        if len(ways) == 1:
            return ways[0]
        if len(ways) != len(self._ways[0]) or any(one is not other for one, other in zip(ways, self._ways[0], strict=True)):
            self._ways = (ways, self._merged())
        return self._ways[1]

    def _merged(self) -> Ways:
        nearest: dict[str, tuple[int, Member]] = {}
        for member in self._members.values():
            for broker, distance in member.topology.distances.items():
                if distance and (broker not in nearest or distance < nearest[broker][0]):
                    nearest[broker] = (distance, member)
        reach: dict[str, int] = {}
        for member in self._members.values():
            chosen = 0
            for broker, (_, of) in nearest.items():
                if of is member:
                    chosen |= 1 << (member.topology.number_of(broker) or 0)
            for hop, bits in member.ways.reach:
                if bits & chosen:
                    reach[hop] = reach.get(hop, 0) | bits & chosen
        return Ways(reach.items())


@lru_cache(maxsize=16)
def _parts(overlay: Overlay) -> dict[str, dict[str, str]]:
    """Of all brokers, each cluster with the name of the part of it that its links lead to from there."""
    within: dict[tuple[str, str], list[str]] = {}
    for link in overlay.links:
        cluster = _cluster_of_link(overlay, *link.ends)
        for one, other in (link.ends, link.ends[::-1]):
            within.setdefault((cluster, one), []).append(other)
    parts: dict[str, dict[str, str]] = {id: {} for id in overlay.ids}
    names: set[str] = set()
    for id in overlay.ids:
        for cluster in overlay.broker(id).clusters or (_WHOLE,):
            name, queue = f"{cluster}:{id}" if cluster in names else cluster, [id]
            while queue:
                at = queue.pop()
                if cluster not in parts[at]:
                    parts[at][cluster] = name
                    names.add(cluster)
                    queue += within.get((cluster, at), [])
    return parts


def _cluster_of_link(overlay: Overlay, one: str, other: str) -> str:
    ends = sorted((one, other), key=overlay.position)
    first, second = (overlay.broker(end).clusters or (_WHOLE,) for end in ends)
    return next((cluster for cluster in first if cluster in second), "-".join(ends))


def _table(member: Member, name: str) -> RemoteTable:
    return member.advertisements if name == "advertisements" else member.subscriptions


def _leads_on(heard: Stated, cluster: str, told: Stated) -> bool:
    return cluster in told.path and len(told.path) > len(heard.path)


def _differ(stated: Stated | None, told: Stated | None) -> bool:
    return (stated and stated[:2]) != (told and told[:2])
