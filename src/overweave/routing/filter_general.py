"""Filter-based routing on overlays with cycles: every advertisement has a tree (SPEC 0; the baseline of DEST).

An advertisement is flooded with its path, and a broker's parent on its tree is the neighbour with the shortest one; among equals
the first, so that later copies change nothing. A subscription goes up the tree of each advertisement that it intersects,
separately for each. A publication carries the id of its advertisement and is matched against the subscriptions of that tree
alone, so it reaches a broker once.

Departures, for brokers that crash (docs/decisions/0016): a broker stores the paths of all neighbours (`advertisement_tree`).
When its parent loses the path, or another offers a shorter one, it moves (`parent_subscriptions`). A withdrawal by the
advertiser's own broker carries the origin of the advertisement and ends it everywhere; one without an origin only ends a path.
"""

import itertools
from collections.abc import Iterable

import msgspec

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.errors import InvalidInput
from overweave.language.headers import NEVER, Epoch, Header, Origin
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.relations import admits
from overweave.matching.intersections import IntersectionIndex
from overweave.overlay.parts import LinkKind
from overweave.routing.advertisement_tree import Route, Tree
from overweave.routing.base import ControlDispatch, Engine, Forward, Send
from overweave.routing.options import AdvertisementTreeOptions
from overweave.routing.parent_subscriptions import ParentSubscriptions
from overweave.routing.sync import GraphSync

_TOMBSTONES_MAX = 65_536


class FilterBasedGeneral(ControlDispatch):
    """The protocol at one broker: its clients' subscriptions, and the trees."""

    def __init__(self, broker: str = "", incarnation: int = 1, options: AdvertisementTreeOptions | None = None) -> None:
        self._broker = broker
        #: The epoch of the last advertisement of a client.
        self._epoch = Epoch(incarnation)
        self._neighbours: list[str] = []
        self._subscriptions = ParentSubscriptions(options or AdvertisementTreeOptions())
        self._trees: dict[str, Tree] = {}
        #: The trees with a path to an advertiser of another broker, by the subscriptions that they intersect.
        self._routed = IntersectionIndex[str](holds_advertisements=True)
        #: Advertisements that their own broker withdrew, with their epochs: copies may still be in flight on longer paths.
        #: A copy without a tombstone ends all the same, path by path.
        self._tombstones: dict[tuple[str, str], Epoch] = {}
        #: Copies of advertisements that came over other links than the first.
        self.duplicates = 0

    def engine(self) -> Engine:
        """The protocol with its capabilities."""
        return Engine(self, sync=GraphSync, ticks=self.tick, needs_advertisements=True, name="filter-general")

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned_from(neighbour):
            gone = Unadvertise(message.id) if isinstance(message, Advertise) else Unsubscribe(message.id, message.header)
            sends += self.on_control(gone, neighbour)
        self._neighbours.remove(neighbour)
        for id, tree in list(self._trees.items()):
            self._subscriptions.forget(tree, neighbour)
            tree.offered_to.pop(neighbour, None)
            self._collect(id, tree)
        return [(to, message) for to, message in sends if to != neighbour]

    def tick(self) -> list[Send]:
        """See `Engine.ticks`: former parents whose time is over lose our subscriptions."""
        moving = self._subscriptions.moving()
        sends = self._subscriptions.tick(self._trees)
        for id in moving:
            if id in self._trees:
                self._collect(id, self._trees[id])
        return sends

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        forwards = self._subscriptions.local.route(batch, None)
        rows = [publish if origin is not None else self._tag_tree(publish) for publish in batch.publishes()]
        # Consecutive rows of one tree together: no publication overtakes another.
        for id, some in itertools.groupby(rows, key=lambda publish: str(publish.header.tree)):
            tree = self._trees.get(id)
            if tree is not None:
                forwards = [*forwards, *tree.table.route(Rows(tuple(some)), origin)]
        return forwards

    def _tag_tree(self, publish: Publish) -> Publish:
        """A client's publication with the id of the client's advertisement that covers it."""
        for id, tree in self._trees.items():
            if tree.client is not None and tree.client == publish.header.publisher:
                assert tree.route is not None
                if admits(tree.route.filter, publish.publication):
                    return msgspec.structs.replace(publish, header=msgspec.structs.replace(publish.header, tree=id))
        raise InvalidInput(f"publication {publish.publication}: expected one within an advertisement of its publisher")

    # ---- state

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        snapshot: list[Control] = []
        for id, tree in self._trees.items():
            self._subscriptions.forget(tree, neighbour)
            tree.offered_to.pop(neighbour, None)
            snapshot += [message for _, message in self._offer_path(id, tree, neighbour)]
            if tree.parent == neighbour:
                snapshot += [message for _, message in self._subscriptions.subscribe_at(id, tree, neighbour)]
        return snapshot

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
        """See `Routing.table_sizes`; subscriptions of a tree without a path are early."""
        early = sum(len(tree.table) for tree in self._trees.values() if tree.route is None)
        in_trees = sum(len(tree.table) for tree in self._trees.values())
        return {
            "advertisements": sum(tree.route is not None for tree in self._trees.values()),
            "subscriptions": len(self._subscriptions.local) + in_trees - early,
            "early": early,
            "forwarded_subscriptions": sum(len(tree.offers) for tree in self._trees.values()),
        }

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._subscriptions.validate()
        routes = {id: tree.route for id, tree in self._trees.items() if tree.client is None}
        self._routed.validate({id: (route.filter, None) for id, route in routes.items() if route is not None})
        for tree in self._trees.values():
            tree.validate()
            assert not tree.empty
            assert {*tree.offered_by, *tree.offered_to} <= set(self._neighbours)

    # ---- advertisements

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        known = message.id in self._trees and self._trees[message.id].route is not None
        if peer not in self._neighbours:
            if known and self._trees[message.id].client is not None:
                return []
            self._epoch = self._epoch.next()
            tree = self._trees.setdefault(message.id, Tree())
            tree.client = peer
            return self._set_route(message.id, tree, None, Route(message.filter, (), Origin(self._broker, self._epoch)))
        self.duplicates += known
        if self._is_withdrawn(message.id, message.header.origin):
            return []
        tree = self._trees.setdefault(message.id, Tree())
        tree.offered_by[peer] = Route(message.filter, message.header.path, message.header.origin)
        return [*self._choose_parent(message.id, tree), *self._subscriptions.subscribe_widely(message.id, tree, peer)]

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
            # Only from the parent: so it takes the path of the publications, behind the last of them.
            return self._end(message.id, tree, message.header.origin)
        return self._choose_parent(message.id, tree)

    def _end(self, id: str, tree: Tree, origin: Origin | None) -> list[Send]:
        """The advertiser's broker has withdrawn an advertisement: its tree ends, unless it was advertised again since."""
        if origin is not None:
            self._tombstones[id, origin.broker] = max(origin.epoch, self._tombstones.get((id, origin.broker), NEVER))
            if len(self._tombstones) > _TOMBSTONES_MAX:
                del self._tombstones[next(iter(self._tombstones))]
        self._forget_tree(id)
        sends: list[Send] = [(neighbour, Unadvertise(id, Header(origin=origin))) for neighbour in tree.offered_to]
        # The parent has dropped its tree; other neighbours may have no path, and keep subscriptions for the next one of that id.
        for other in [neighbour for neighbour in tree.forwarded if neighbour != tree.parent]:
            sends += self._subscriptions.unsubscribe_at(id, tree, other)
        newer = {neighbour: route for neighbour, route in tree.offered_by.items() if not self._is_withdrawn(id, route.origin)}
        if newer:
            successor = self._trees[id] = Tree()
            successor.offered_by = newer
            sends += self._choose_parent(id, successor)
        return sends

    def _is_withdrawn(self, id: str, origin: Origin | None) -> bool:
        return origin is not None and origin.epoch <= self._tombstones.get((id, origin.broker), NEVER)

    def _choose_parent(self, id: str, tree: Tree) -> list[Send]:
        """Use the best of the paths that neighbours offer."""
        if tree.client is not None:
            return []
        best = tree.best()
        if best is None:
            return self._set_route(id, tree, None, None)
        parent, offered = best
        return self._set_route(id, tree, parent, Route(offered.filter, (*offered.path, parent), offered.origin))

    def _set_route(self, id: str, tree: Tree, parent: str | None, route: Route | None) -> list[Send]:
        """Use another path, or none: offer it to the neighbours, and move to the parent."""
        former, before = tree.parent, tree.route
        if parent == former and route == before:
            return []
        tree.parent, tree.route = parent, route
        self._index_route(id, tree)
        sends = [send for neighbour in self._neighbours for send in self._offer_path(id, tree, neighbour)]
        if route is None or before is None or route.filter != before.filter or tree.client is not None:
            self._subscriptions.collect(tree)
        if parent is not None:
            sends += self._subscriptions.subscribe_at(id, tree, parent)
        if former is not None and former != parent:
            sends += self._subscriptions.leave(id, tree, former)
        self._collect(id, tree)
        return sends

    def _offer_path(self, id: str, tree: Tree, neighbour: str) -> list[Send]:
        """Offer our path to a neighbour if it has changed; one that is on it must not use it."""
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
            if not self._subscriptions.local.add(message.id, message.filter, peer):
                return []
            self._subscriptions.local_index.add(message.id, message.filter)
            intersecting = set(self._routed.intersecting(message.filter))
            trees = [(id, tree) for id, tree in self._trees.items() if id in intersecting]
            return [send for id, tree in trees for send in self._subscriptions.forward(id, tree, message.id, message.filter)]
        id = str(message.header.tree)
        if self._is_withdrawn(id, message.header.origin):
            return []
        tree = self._trees.setdefault(id, Tree())
        if not tree.table.add(message.id, message.filter, peer):
            return []
        return self._subscriptions.forward(id, tree, message.id, message.filter)

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if peer not in self._neighbours:
            gone = self._subscriptions.local.remove(message.id, peer)
            if gone is None:
                return []
            self._subscriptions.local_index.remove(message.id)
            trees = self._trees.items()
            return [send for id, tree in trees for send in self._subscriptions.withdraw(id, tree, message.id, gone)]
        id = str(message.header.tree)
        tree = self._trees.get(id)
        gone = None if tree is None else tree.table.remove(message.id, peer)
        if tree is None or gone is None:
            return []
        sends = self._subscriptions.withdraw(id, tree, message.id, gone)
        self._collect(id, tree)
        return sends

    # ---- trees

    def _collect(self, id: str, tree: Tree) -> None:
        """Forget a tree without state."""
        if tree.empty and self._trees.get(id) is tree:
            self._forget_tree(id)

    def _index_route(self, id: str, tree: Tree) -> None:
        """Index a tree by the filter of its route."""
        if id in self._routed:
            self._routed.remove(id)
        if tree.route is not None and tree.client is None:
            self._routed.add(id, tree.route.filter)

    def _forget_tree(self, id: str) -> None:
        del self._trees[id]
        if id in self._routed:
            self._routed.remove(id)
