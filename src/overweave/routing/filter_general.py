"""Filter-based routing on overlays with cycles: every advertisement gets a tree (SPEC 0; what DEST compares itself with).

An advertisement is flooded with the path it takes, and a broker's parent on its tree is the neighbour with the shortest one;
among equals the first, so that later copies change nothing. A subscription goes up the tree of each advertisement it intersects,
by itself for each; a publication carries the id of its advertisement and is matched against the subscriptions of that tree
alone, so it reaches a broker once.

Departures, for brokers that crash (docs/decisions/0016): a broker remembers the paths of all neighbours (`advertisement_tree`).
When its parent loses the path, or another offers a shorter one, it moves: it subscribes at the new parent, and unsubscribes at
the former one some ticks later. A withdrawal by the advertiser's own broker carries the origin of the advertisement and ends it
everywhere; one without says only that a neighbour has no path any more.
"""

import itertools
from collections.abc import Iterable

import msgspec

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.errors import InvalidInput
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import admits
from overweave.matching.intersections import IntersectionIndex
from overweave.routing.advertisement_tree import Origin, Route, Tree
from overweave.routing.base import ControlDispatch, Forward, Send, SubscriptionTable
from overweave.routing.forwarded import ForwardedSubscriptions
from overweave.routing.options import AdvertisementTreeOptions

_TOMBSTONES_MAX = 65_536
#: So many advertisements have numbers of their own in an incarnation of a broker.
_ADVERTISEMENTS_MAX = 1 << 20


class FilterBasedGeneral(ControlDispatch):
    """At one broker: its clients' subscriptions, and the trees."""

    acyclic = False
    needs_advertisements = True
    wants_ticks = True

    def __init__(self, broker: str = "", options: AdvertisementTreeOptions | None = None) -> None:
        self._broker, self._options = broker, options or AdvertisementTreeOptions()
        self._number = 0
        self._neighbours: list[str] = []
        self._local = SubscriptionTable()
        self._trees: dict[str, Tree] = {}
        #: What clients of this broker want, and the trees with a path to an advertiser elsewhere, by what they intersect.
        self._wanted = IntersectionIndex[str](holds_advertisements=False)
        self._routed = IntersectionIndex[str](holds_advertisements=True)
        #: Advertisements that their own broker withdrew, with the number there: copies of them may still be under way on longer
        #: paths. What is forgotten here for want of room ends all the same, path by path.
        self._tombstones: dict[tuple[str, str], int] = {}
        #: The trees with former parents that are still told. Without ticks nobody is.
        self._moving: dict[str, None] = {}
        self._ticks = False
        #: How many ticks are left in which a broker that has just started subscribes at all neighbours with a path: one of them
        #: was its parent before, and if that has crashed, too, may get publications again that were on their way here.
        self._fresh = self._options.startup_ticks
        #: Copies of advertisements that came over other links than the first.
        self.duplicates = 0

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""
        self._number = incarnation * _ADVERTISEMENTS_MAX

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned_from(neighbour):
            gone = Unadvertise(message.id) if isinstance(message, Advertise) else Unsubscribe(message.id, message.header)
            sends += self.handle(gone, neighbour)
        self._neighbours.remove(neighbour)
        for id, tree in list(self._trees.items()):
            self._forget_told(tree, neighbour)
            tree.offered_to.pop(neighbour, None)
            self._collect(id, tree)
        return [(to, message) for to, message in sends if to != neighbour]

    def tick(self) -> list[Send]:
        """See `Routing.tick`: former parents whose time is over need our subscriptions no more."""
        self._ticks, self._fresh = True, max(self._fresh - 1, 0)
        sends: list[Send] = []
        for id in list(self._moving):
            tree = self._trees.get(id)
            for parent in list(tree.leaving) if tree is not None else ():
                assert tree is not None
                tree.leaving[parent] -= 1
                if tree.leaving[parent] <= 0:
                    sends += self._unsubscribe_at(id, tree, parent)
            if tree is None or not tree.leaving:
                del self._moving[id]
            if tree is not None:
                self._collect(id, tree)
        return sends

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        forwards = self._local.route(batch, None)
        rows = [publish if origin is not None else self._on_its_tree(publish) for publish in batch.publishes()]
        # Those of one tree together, as far as they follow each other: no publication overtakes another.
        for id, some in itertools.groupby(rows, key=lambda publish: str(publish.header.tree)):
            tree = self._trees.get(id)
            if tree is not None:
                forwards = [*forwards, *tree.table.route(Rows(tuple(some)), origin)]
        return forwards

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._local.validate()
        self._wanted.validate({id: (filter, None) for id, filter, _ in self._local.items()})
        routes = {id: tree.route for id, tree in self._trees.items() if tree.client is None}
        self._routed.validate({id: (route.filter, None) for id, route in routes.items() if route is not None})
        for tree in self._trees.values():
            tree.validate()
            assert not tree.empty
            assert {*tree.offered_by, *tree.offered_to} <= set(self._neighbours)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        said: list[Control] = []
        for id, tree in self._trees.items():
            self._forget_told(tree, neighbour)
            tree.offered_to.pop(neighbour, None)
            said += [message for _, message in self._offer_path(id, tree, neighbour)]
            if tree.parent == neighbour:
                said += [message for _, message in self._subscribe_at(id, tree, neighbour)]
        return said

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        subscriptions = [
            Subscribe(subscription, filter, Header(tree=id))
            for id, tree in self._trees.items()
            for subscription, filter in tree.table.of(neighbour)
        ]
        paths = [(id, tree.offered_by.get(neighbour)) for id, tree in self._trees.items()]
        return [*subscriptions, *(Advertise(id, route.filter, Header(tree=id)) for id, route in paths if route is not None)]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`; what waits for a path of its tree is early."""
        early = sum(len(tree.table) for tree in self._trees.values() if tree.route is None)
        return {
            "advertisements": sum(tree.route is not None for tree in self._trees.values()),
            "subscriptions": len(self._local) + sum(len(tree.table) for tree in self._trees.values()) - early,
            "early": early,
            "offers": sum(len(tree.offers) for tree in self._trees.values()),
        }

    def _on_its_tree(self, publish: Publish) -> Publish:
        """A client's publication with the id of the advertisement of the client that it falls under."""
        for id, tree in self._trees.items():
            if tree.client is not None and tree.client == publish.header.publisher:
                assert tree.route is not None
                if admits(tree.route.filter, publish.publication):
                    return msgspec.structs.replace(publish, header=msgspec.structs.replace(publish.header, tree=id))
        raise InvalidInput(f"publication {publish.publication}: expected one within an advertisement of its publisher")

    # ---- advertisements

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        known = message.id in self._trees and self._trees[message.id].route is not None
        if peer not in self._neighbours:
            if known and self._trees[message.id].client is not None:
                return []
            self._number += 1
            tree = self._trees.setdefault(message.id, Tree())
            tree.client = peer
            return self._set_route(message.id, tree, None, Route(message.filter, (), (self._broker, self._number)))
        self.duplicates += known
        if self._is_over(message.id, message.header.origin):
            return []
        tree = self._trees.setdefault(message.id, Tree())
        tree.offered_by[peer] = Route(message.filter, message.header.path, message.header.origin)
        return [*self._choose(message.id, tree), *self._subscribe_widely(message.id, tree, peer)]

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        tree = self._trees.get(message.id)
        if tree is None:
            return []
        if peer not in self._neighbours:
            if tree.client != peer or tree.route is None:
                return []
            return self._end(message.id, tree, tree.route.origin)
        if tree.offered_by.pop(peer, None) is None:
            return []
        if message.header.origin is not None and tree.parent == peer:
            # Only from the parent: so it comes by the way of the publications too, behind the last of them.
            return self._end(message.id, tree, message.header.origin)
        return self._choose(message.id, tree)

    def _end(self, id: str, tree: Tree, origin: Origin | None) -> list[Send]:
        """The advertiser's broker has withdrawn it: all that belongs to it ends, unless it was advertised anew since."""
        if origin is not None:
            self._tombstones[id, origin[0]] = max(origin[1], self._tombstones.get((id, origin[0]), 0))
            if len(self._tombstones) > _TOMBSTONES_MAX:
                del self._tombstones[next(iter(self._tombstones))]
        self._forget_tree(id)
        sends: list[Send] = [(neighbour, Unadvertise(id, Header(origin=origin))) for neighbour in tree.offered_to]
        # The parent has forgotten it all; others that are still told may have no path, and keep it for the next one of that id.
        for other in [neighbour for neighbour in tree.told if neighbour != tree.parent]:
            sends += self._unsubscribe_at(id, tree, other)
        newer = {neighbour: route for neighbour, route in tree.offered_by.items() if not self._is_over(id, route.origin)}
        if newer:
            anew = self._trees[id] = Tree()
            anew.offered_by = newer
            sends += self._choose(id, anew)
        return sends

    def _is_over(self, id: str, origin: Origin | None) -> bool:
        return origin is not None and origin[1] <= self._tombstones.get((id, origin[0]), -1)

    def _choose(self, id: str, tree: Tree) -> list[Send]:
        """Take the best of the paths that neighbours offer."""
        if tree.client is not None:
            return []
        best = tree.best()
        if best is None:
            return self._set_route(id, tree, None, None)
        parent, offered = best
        return self._set_route(id, tree, parent, Route(offered.filter, (*offered.path, parent), offered.origin))

    def _set_route(self, id: str, tree: Tree, parent: str | None, route: Route | None) -> list[Send]:
        """Have another path, or none: tell those behind us, and move to the parent."""
        former, before = tree.parent, tree.route
        if parent == former and route == before:
            return []
        tree.parent, tree.route = parent, route
        self._note_route(id, tree)
        sends = [send for neighbour in self._neighbours for send in self._offer_path(id, tree, neighbour)]
        if route is None or before is None or route.filter != before.filter or tree.client is not None:
            self._collect_offers(tree)
        if parent is not None:
            sends += self._subscribe_at(id, tree, parent)
        if former is not None and former != parent:
            sends += self._leave(id, tree, former)
        self._collect(id, tree)
        return sends

    def _subscribe_widely(self, id: str, tree: Tree, neighbour: str) -> list[Send]:
        """Subscribe at a neighbour that is not the parent, for some ticks."""
        if not (self._fresh and self._ticks) or neighbour in (tree.parent, None) or neighbour not in tree.offered_by:
            return []
        sends = self._subscribe_at(id, tree, neighbour)
        if neighbour in tree.told:
            tree.leaving[neighbour] = self._options.parent_hold_ticks
            self._moving[id] = None
        return sends

    def _offer_path(self, id: str, tree: Tree, neighbour: str) -> list[Send]:
        """Tell a neighbour of our path if it has changed; one that is on it must not use it."""
        route = tree.route if tree.route is not None and neighbour not in tree.route.path else None
        if tree.offered_to.get(neighbour) == route:
            return []
        if route is None:
            del tree.offered_to[neighbour]
            return [(neighbour, Unadvertise(id))]
        tree.offered_to[neighbour] = route
        return [(neighbour, Advertise(id, route.filter, Header(path=route.path, tree=id, origin=route.origin)))]

    # ---- subscriptions

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        if peer not in self._neighbours:
            if not self._local.add(message.id, message.filter, peer):
                return []
            self._wanted.add(message.id, message.filter)
            met = set(self._routed.intersecting(message.filter))
            trees = [(id, tree) for id, tree in self._trees.items() if id in met]
            return [send for id, tree in trees for send in self._offer(id, tree, message.id, message.filter)]
        id = str(message.header.tree)
        if self._is_over(id, message.header.origin):
            return []
        tree = self._trees.setdefault(id, Tree())
        if not tree.table.add(message.id, message.filter, peer):
            return []
        return self._offer(id, tree, message.id, message.filter)

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if peer not in self._neighbours:
            gone = self._local.remove(message.id, peer)
            if gone is None:
                return []
            self._wanted.remove(message.id)
            return [send for id, tree in self._trees.items() for send in self._withdraw(id, tree, message.id, gone)]
        id = str(message.header.tree)
        tree = self._trees.get(id)
        gone = None if tree is None else tree.table.remove(message.id, peer)
        if tree is None or gone is None:
            return []
        sends = self._withdraw(id, tree, message.id, gone)
        self._collect(id, tree)
        return sends

    def _offer(self, id: str, tree: Tree, subscription: str, filter: Filter) -> list[Send]:
        if not tree.is_wanted(filter) or not tree.offers.offer(subscription, filter) or tree.parent is None:
            return []
        tree.told.setdefault(tree.parent, {})[subscription] = filter
        sends: list[Send] = [(tree.parent, self._told(id, tree, subscription, filter))]
        if self._fresh and self._ticks:
            for neighbour in tree.offered_by:
                sends += self._subscribe_widely(id, tree, neighbour)
        return sends

    def _withdraw(self, id: str, tree: Tree, subscription: str, filter: Filter) -> list[Send]:
        """Somebody wants something no more; while paths change somebody else may still."""
        rest = self._local.get(subscription) or tree.table.get(subscription)
        if rest == filter:
            return []
        heirs, was_told = tree.offers.withdraw(subscription)
        if rest is not None and tree.is_wanted(rest) and tree.offers.offer(subscription, rest):
            heirs, was_told = [*heirs, (subscription, rest)], False
        sends: list[Send] = []
        if tree.parent is not None:
            tree.told.setdefault(tree.parent, {}).update(heirs)
            sends += [(tree.parent, self._told(id, tree, heir, wanted)) for heir, wanted in heirs]
        for neighbour in (tree.parent, *tree.leaving) if was_told or rest is None else ():
            if neighbour is not None and tree.told.get(neighbour, {}).pop(subscription, None) is not None:
                sends.append((neighbour, Unsubscribe(subscription, Header(tree=id))))
        return sends

    def _collect_offers(self, tree: Tree) -> None:
        """See anew what the parent must know."""
        tree.offers = ForwardedSubscriptions()
        if tree.route is None or tree.client is not None:
            return
        for subscription in self._wanted.intersecting(tree.route.filter):
            tree.offers.offer(subscription, self._local.entry(subscription)[0])
        for subscription, filter in tree.table.items():
            if tree.is_wanted(filter):
                tree.offers.offer(subscription, filter)

    def _subscribe_at(self, id: str, tree: Tree, parent: str) -> list[Send]:
        """Have a parent know what it must, and nothing else; first what is new."""
        tree.leaving.pop(parent, None)
        told, wanted = tree.told.get(parent, {}), dict(tree.offers.told())
        if wanted:
            tree.told[parent] = wanted
        else:
            tree.told.pop(parent, None)
        sends: list[Send] = [
            (parent, self._told(id, tree, subscription, filter))
            for subscription, filter in wanted.items()
            if told.get(subscription) != filter
        ]
        return [*sends, *((parent, Unsubscribe(gone, Header(tree=id))) for gone in told if gone not in wanted)]

    def _leave(self, id: str, tree: Tree, former: str) -> list[Send]:
        if former not in tree.told:
            return []
        if not self._ticks:
            return self._unsubscribe_at(id, tree, former)
        tree.leaving[former] = self._options.parent_hold_ticks
        self._moving[id] = None
        return []

    def _unsubscribe_at(self, id: str, tree: Tree, former: str) -> list[Send]:
        told = tree.told.get(former, {})
        self._forget_told(tree, former)
        return [(former, Unsubscribe(subscription, Header(tree=id))) for subscription in told]

    def _told(self, id: str, tree: Tree, subscription: str, filter: Filter) -> Subscribe:
        # With the origin: what was under way when the advertisement ended does not belong to the next one of that id.
        return Subscribe(subscription, filter, Header(tree=id, origin=None if tree.route is None else tree.route.origin))

    def _forget_told(self, tree: Tree, neighbour: str) -> None:
        tree.told.pop(neighbour, None)
        tree.leaving.pop(neighbour, None)

    def _collect(self, id: str, tree: Tree) -> None:
        if tree.empty and self._trees.get(id) is tree:
            self._forget_tree(id)

    def _note_route(self, id: str, tree: Tree) -> None:
        """Have the trees that subscriptions are looked up in follow a change of one."""
        if id in self._routed:
            self._routed.remove(id)
        if tree.route is not None and tree.client is None:
            self._routed.add(id, tree.route.filter)

    def _forget_tree(self, id: str) -> None:
        del self._trees[id]
        if id in self._routed:
            self._routed.remove(id)
