"""Match at edge brokers, and by destination within clusters, MERC (DEST IV): the overlay is divided into clusters, each of which
routes by destination on its own; brokers that belong to several clusters match what comes from one against what the others want.

An edge broker stands in each cluster for what it knows from its others, in its own name (`Forward`, algorithm 3). What is
told so carries the clusters that it has passed, and goes into none of them again. All ways through clusters are told, by edge
brokers that join the same two or all round a circle. But who brings an advertisement into a cluster that knows it on a shorter
way stands back: what is wanted there is spare for it, and it says so to the others. Publications take the shortest ways, all
that are as short, and copies that come later are dropped. Spare ways are taken only where no other is left, by publications
that are on a detour from then on.

Whoever stands for a subscription no more, because it is gone or has lost its own way, was not the only one known: what is on
its way there is matched again by those who keep it, and goes elsewhere. So nothing is lost as long as there is a way.
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from overweave.batches.base import Batch
from overweave.batches.destinations import NextHops, split_by_next_hop, split_local
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.overlay.graph import Overlay
from overweave.routing.backup_paths import DETOUR, Path, PathSet, PathTables, Source
from overweave.routing.base import Forward, Instead, Send, SubscriptionTable
from overweave.routing.cluster_node import STATEMENTS_MAX, ClusterNode
from overweave.routing.clusters import cluster_components, cluster_of_link
from overweave.routing.options import ClusterOptions
from overweave.routing.remote import RouteEntry, Tombstones
from overweave.routing.topology import DOWN, UP


class Merc:
    """At one broker: its own clients, and its part in each of its clusters."""

    acyclic = False
    watches_links = True
    needs_advertisements = True
    wants_ticks = True

    def __init__(self, broker: str, overlay: Overlay, options: ClusterOptions | None = None) -> None:
        self._broker, self._overlay, self._incarnation = broker, overlay, 1
        self._number = overlay.position(broker)
        #: Of which it is not known in all clusters what has become of them.
        self._changed: dict[str, None] = {}
        #: What clients have withdrawn, here or elsewhere: advertisements and subscriptions.
        self._ended, self._unwanted = Tombstones(), Tombstones()
        self._statement = STATEMENTS_MAX
        self._members = {part: self._join(part) for part in cluster_components(overlay)[broker].values()}
        self._links: dict[str, ClusterNode] = {}
        self._advertisements: dict[str, tuple[RouteEntry, str]] = {}
        self._wanted: dict[str, RouteEntry] = {}
        self._subscriptions = SubscriptionTable()
        #: The advertisements in each cluster that this broker stands back with.
        self._behind: dict[str, set[str]] = {}
        #: With these it may not have to; it is seen at the next beat, if there are any.
        self._hesitant: dict[tuple[str, str], None] = {}
        self._addresses = PathTables(self._ways_to, self._ids, (options or ClusterOptions()).hold_down_ticks)
        self._ways: tuple[list[NextHops], NextHops] = ([], NextHops(()))

    def _join(self, cluster: str) -> ClusterNode:
        member = ClusterNode(
            self._broker, self._number, partial(self._note, cluster), cluster, self._note_offer, partial(self._knows, cluster),
            (self._ended, self._unwanted),
        )  # fmt: skip
        member.begin(self._incarnation)
        return member

    def _note_offer(self, _: str, id: str, __: RouteEntry | None) -> None:
        """An advertisement has changed that a broker stands for."""
        self._changed[id] = None

    def _note(self, cluster: str, broker: str, id: str, before: RouteEntry | None) -> None:
        """A subscription has changed that a broker stands for in a cluster."""
        self._changed[id] = None
        member = self._members[cluster]
        number, now = member.topology.number_of(broker), member.subscriptions.by_id(id).get(broker)
        if before is None or number is None or self._unwanted.covers(id, before):
            return
        if now is None or now.backup > before.backup:
            self._addresses.mark_lost(id, number)

    def _knows(self, cluster: str, id: str, heard: RouteEntry) -> bool:
        """Whether it is known what all other clusters want of an advertisement that was heard in one.

        Nobody waits in a circle: only those wait who have passed it on, on a way that is longer each time.
        """
        return not self._changed and all(
            member.topology.complete and not (member.awaits(id) and _leads_on(heard, cluster, member.local_advertisements[id]))
            for other, member in self._members.items()
            if other != cluster
        )

    # ---- links

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""
        self._incarnation = incarnation
        self._statement = incarnation * STATEMENTS_MAX
        for member in self._members.values():
            member.begin(incarnation)

    def overlay(self) -> None:
        """See `Routing.overlay`: a broker knows its clusters only."""
        return

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        shared = cluster_of_link(self._overlay, self._broker, neighbour)
        cluster = cluster_components(self._overlay)[self._broker].get(shared, shared)
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

    def tick(self) -> Iterable[Send]:
        """See `Routing.tick`."""
        self._addresses.tick()
        self._step_forward()
        return [*(send for member in self._members.values() for send in member.tick()), *self._reflect()]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return self._links[neighbour].snapshot_for(neighbour)

    def learned_from(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned_from`: nothing holds only because a neighbour said it."""
        return ()

    # ---- control

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
        member = self._members.get(message.header.cluster or "")
        return [*(self._say(message, peer) if member is None else member.handle(message, peer)), *self._reflect()]

    def _say(self, message: Control, peer: str) -> list[Send]:
        """What a client says is told in all clusters, as is all else that this broker comes to stand for."""
        self._statement += 1
        origin = self._broker, self._statement
        match message:
            case Advertise(id, filter) if id not in self._advertisements:
                self._advertisements[id] = (RouteEntry(filter, origin=origin), peer)
            case Unadvertise(id) if id in self._advertisements and self._advertisements[id][1] == peer:
                del self._advertisements[id]
                self._ended.add(id, origin)
            case Subscribe(id, filter) if self._subscriptions.add(id, filter, peer):
                self._wanted[id] = RouteEntry(filter, origin=origin)
            case Unsubscribe(id) if self._subscriptions.remove(id, peer) is not None:
                del self._wanted[id]
                self._unwanted.add(id, origin)
            case _:
                return []
        self._changed[message.id] = None
        return []

    def _reflect(self) -> list[Send]:
        """Stand in each cluster for what its own clients and its other clusters say, after something has changed."""
        sends: list[Send] = []
        while self._changed:
            id = next(iter(self._changed))
            for member in self._members.values():
                self._ended.purge(member.advertisements, id)
                self._unwanted.purge(member.subscriptions, id)
            del self._changed[id]
            for cluster, member in self._members.items():
                offer, before = self._offer(cluster, id), member.local_advertisements.get(id)
                if _differ(offer, before):
                    sends += member.unadvertise(id) if offer is None else member.advertise(id, offer)
                self._keep_place(cluster, id, offer, before)
                want = self._want(cluster, id)
                if _differ(want, member.local_subscriptions.get(id)):
                    sends += member.unsubscribe(id) if want is None else member.subscribe(id, want)
            self._addresses.choose(id)
        return [*sends, *(answer for member in self._members.values() for answer in member.answers())]

    def _offer(self, cluster: str, id: str) -> RouteEntry | None:
        """What to stand for in a cluster: an advertisement of a client, or of another cluster."""
        if id in self._advertisements:
            return self._advertisements[id][0]
        return _best(
            RouteEntry(stated.filter, (*stated.path, other), False, stated.origin)
            for other, member in self._members.items()
            if other != cluster
            for stated in member.advertisements.by_id(id).values()
            if cluster not in stated.path
        )

    def _want(self, cluster: str, id: str) -> RouteEntry | None:
        """What to want in a cluster: a subscription of a client, or of another cluster."""
        if id in self._wanted:
            return self._wanted[id]
        return _best(
            RouteEntry(stated.filter, (*stated.path, other), self._is_backup(other, stated), stated.origin)
            for other, member in self._members.items()
            if other != cluster
            for stated in member.subscriptions.by_id(id).values()
            if cluster not in stated.path
        )

    def _keep_place(self, cluster: str, id: str, offer: RouteEntry | None, before: RouteEntry | None) -> None:
        """Stand back with an advertisement that its cluster knows on a shorter way; what it calls for may be spare then.

        Where others are ahead with other advertisements, nobody steps forward before the next beat: a shorter way may just be
        on its way here, and what is called for would be told twice. Until then it goes on a detour.
        """
        member, behind = self._members[cluster], self._behind.setdefault(cluster, set())
        known = member.advertisements.by_id(id).values() if offer is not None else ()
        stands_back = offer is not None and any(len(stated.path) < len(offer.path) for stated in known)
        may_be_late = offer is not None and bool(offer.path) and (id in behind or before is None)
        if may_be_late and not stands_back and behind and self._addresses.watched:
            behind.add(id)
            self._hesitant[cluster, id] = None
        elif stands_back != (id in behind) or (behind and _differ(offer, before)):
            self._stand(cluster, id, stands_back, [stated.filter for stated in (offer, before) if stated is not None])

    def _stand(self, cluster: str, id: str, back: bool, filters: list[Filter]) -> None:
        """Stand back with an advertisement, or no more: that concerns the subscriptions which it calls for."""
        member, behind = self._members[cluster], self._behind[cluster]
        (behind.add if back else behind.discard)(id)
        for wanted in member.subscriptions.ids():
            said = member.subscriptions.by_id(wanted).values()
            if any(intersects(filter, stated.filter) for filter in filters for stated in said):
                self._changed[wanted] = None
                if back:
                    self._addresses.mark_lost(wanted)

    def _step_forward(self) -> None:
        """With what others are not ahead with, still."""
        hesitant, self._hesitant = self._hesitant, {}
        for cluster, id in hesitant:
            member = self._members[cluster]
            offer = member.local_advertisements.get(id)
            if offer is not None and all(len(said.path) >= len(offer.path) for said in member.advertisements.by_id(id).values()):
                self._stand(cluster, id, False, [offer.filter])

    def _is_backup(self, cluster: str, stated: RouteEntry) -> bool:
        """Whether a subscription in a cluster gets what it wants from others: so it was said, or they are nearer."""
        behind, advertised = self._behind.get(cluster), self._members[cluster].local_advertisements
        if stated.backup or not behind:
            return stated.backup
        return not any(offer.intersects(stated) for id, offer in advertised.items() if id not in behind)

    def _ways_to(self, id: str, source: Source) -> list[Path]:
        """Who leads to a subscription of others, for what comes from one of the clusters or from clients."""
        if id in self._wanted:
            return []
        return [
            Path(number, stated.filter, len(stated.path), self._is_backup(cluster, stated))
            for cluster, member in self._members.items()
            if cluster != source
            for number, stated in member.wanted_by(id)
            if source not in stated.path
        ]

    def _ids(self) -> set[str]:
        return {id for member in self._members.values() for id in member.subscriptions.ids()}

    # ---- publications

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:
        """See `Routing.arriving`."""
        return (batch, None) if origin is None else split_local(batch, self._number)

    def lanes(self, origin: str | None, tag: int) -> tuple[Hashable, ...]:
        """See `Routing.lanes`: what came through one cluster goes into the others, another copy may have to go into that one."""
        source = None if origin is None else self._links.get(origin)
        return tuple((cluster, 0) for cluster in self._members) if source is None else ((source.cluster, tag),)

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if batch.has_destinations():
            return self._parted(batch, None if origin is None else self._links.get(origin))
        members, source = self._beyond(origin), None if origin is None else self._links.get(origin)
        if not members:
            return self._subscriptions.route(batch, None)
        choices = self._addresses.of(self._source(origin))  # it remembers from now on, also while this one waits
        if not all(member.converged for member in members) or (source is not None and not source.synced):
            return [(None, batch)]
        here = self._subscriptions.route(batch, None)
        bound = choices.addressed(batch, detours=origin is None or bool(batch.tag))
        through = members[0] if len(members) == 1 else None
        return [*here, *(forward for some in bound for forward in self._parted(some, through))]

    def _parted(self, batch: Batch, member: ClusterNode | None) -> list[Forward]:
        """Rows by next hop; within one cluster as far as that goes, for brokers tell by it what has to go on into the others."""
        if member is None or len(self._members) == 1:
            return split_by_next_hop(batch, self._all_ways())
        forwards: list[Forward] = []
        for hop, some in split_by_next_hop(batch, member.ways):
            forwards += [(hop, some)] if hop is not None else split_by_next_hop(some, self._all_ways())
        return forwards

    def instead(self) -> Instead | None:
        """See `Routing.instead`: it goes to those who lead to the same subscription now, as soon as that is known."""
        if not self._addresses.has_lost:
            return None
        anew = self._addresses.redirects(settled=all(member.converged for member in self._members.values()))
        return partial(self._match_again, anew) if anew else None

    def _match_again(self, anew: dict[Source, dict[int, PathSet]], batch: Batch, origin: str | None) -> Iterator[Batch]:
        for number, choices in anew.get(self._source(origin), {}).items():
            some, _ = split_local(batch, number)
            if some is not None:
                # On a detour: who gets it may have seen it, and passed over what it leads to by now.
                yield from choices.addressed(some.with_tag(DETOUR), detours=True)

    def match_cost(self, batch: Batch, origin: str | None) -> int:
        """See `Routing.match_cost`."""
        if origin is not None and split_local(batch, self._number)[0] is None:
            return 0
        if not self._beyond(origin):
            return len(self._subscriptions)
        choices, detours = self._addresses.of(self._source(origin)), origin is None or bool(batch.tag)
        return len(self._subscriptions) + len(choices.main) + (len(choices.backup) if detours else 0)

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._subscriptions.validate()
        assert self._wanted.keys() == {id for id, _, _ in self._subscriptions.items()}
        for member in self._members.values():
            member.validate()
        assert all(member in self._members.values() for member in self._links.values())

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        members = self._members.values()
        remote = sum(len(member.subscriptions) for member in members)
        return {
            "advertisements": len(self._advertisements) + sum(len(member.advertisements) for member in members),
            "subscriptions": len(self._subscriptions) + remote,
            "remote subscriptions": remote,
        }

    def _source(self, origin: str | None) -> Source:
        """The cluster that publications come from."""
        return None if origin is None else self._links[origin].cluster

    def _beyond(self, origin: str | None) -> list[ClusterNode]:
        """The clusters in which publications have not been yet, when they come from a neighbour or a client."""
        return [member for member in self._members.values() if origin is None or member is not self._links.get(origin)]

    def _all_ways(self) -> NextHops:
        """The next hops in all clusters; to a broker that is in several of them, the shortest."""
        ways = [member.ways for member in self._members.values()]
        if len(ways) == 1:
            return ways[0]
        if len(ways) != len(self._ways[0]) or any(one is not other for one, other in zip(ways, self._ways[0], strict=True)):
            self._ways = (ways, self._merged())
        return self._ways[1]

    def _merged(self) -> NextHops:
        nearest: dict[str, tuple[int, ClusterNode]] = {}
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
            for hop, bits in member.ways.by_neighbour:
                if bits & chosen:
                    reach[hop] = reach.get(hop, 0) | bits & chosen
        return NextHops(reach.items())


def _best(stated: Iterable[RouteEntry]) -> RouteEntry | None:
    """What is told on: the shortest way, and a spare one only if there is no other."""
    return min(stated, key=lambda one: (one.backup, len(one.path), one.path), default=None)


def _leads_on(heard: RouteEntry, cluster: str, told: RouteEntry) -> bool:
    return cluster in told.path and len(told.path) > len(heard.path)


def _differ(stated: RouteEntry | None, told: RouteEntry | None) -> bool:
    return (stated and stated[:4]) != (told and told[:4])
