"""Filter-based routing on overlays with cycles: every advertisement gets a tree (SPEC 0; what DEST compares itself with).

An advertisement is flooded, and the link over which a broker hears of it first is that broker's way up its tree; later copies are
dropped. A subscription goes up the tree of each advertisement it intersects, by itself for each; a publication carries the
id of its advertisement and is matched against the subscriptions of that tree alone, so it reaches a broker once.
"""

import itertools
from collections.abc import Iterable

import msgspec

from overweave.contract.batches import Batch, Rows
from overweave.errors import InvalidInput
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import admits, intersects
from overweave.routing.base import ByKind, Forward, Send, SubscriptionTable
from overweave.routing.offers import Offers

_GONE_MAX = 65_536


class _Tree:
    """One advertisement at one broker: the way up, what came from below, and what was told upwards."""

    def __init__(self, filter: Filter, source: str, parent: str | None, path: tuple[str, ...]) -> None:
        self.filter = filter
        #: Who told of it: the neighbour that is the way up (``parent``), or a client.
        self.source, self.parent = source, parent
        #: The brokers between the advertiser and this one: who is among them does not hear of it from here, or a broker that
        #: comes back could hang its tree onto its own branches.
        self.path = path
        self.table = SubscriptionTable()
        self.offers = Offers()


class FilterBasedGeneral(ByKind):
    """At one broker: its clients' subscriptions, and the trees."""

    acyclic = False
    needs_advertisements = True

    def __init__(self) -> None:
        self._neighbours: list[str] = []
        self._local = SubscriptionTable()
        self._trees: dict[str, _Tree] = {}
        #: Advertisements that were withdrawn: copies of them may still be under way on longer paths, and would chase their
        #: withdrawal around a cycle for ever. An id is therefore used once.
        self._gone: dict[str, None] = {}
        #: Subscriptions that came before the advertisement of their tree: a broker that restarts hears from all sides at once.
        self._early: dict[str, dict[str, tuple[Subscribe, str]]] = {}
        #: Copies of advertisements that came over other links than the first.
        self.duplicates = 0

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned(neighbour):
            gone = Unadvertise(message.id) if isinstance(message, Advertise) else Unsubscribe(message.id, message.header)
            sends += self.handle(gone, neighbour)
        self._neighbours.remove(neighbour)
        return [(to, message) for to, message in sends if to != neighbour]

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

    def announce(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.announce`."""
        for id, tree in self._trees.items():
            if neighbour not in tree.path:
                yield Advertise(id, tree.filter, Header(path=tree.path, tree=id))
            elif tree.parent == neighbour:
                yield from (Subscribe(told, filter, Header(tree=id)) for told, filter in tree.offers.told())

    def learned(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned`."""
        subscriptions = [
            Subscribe(message.id, message.filter, Header(tree=id))
            for id, tree in self._trees.items()
            for message in tree.table.of(neighbour)
        ]
        early = [message for entries in self._early.values() for message, of in entries.values() if of == neighbour]
        return [
            *subscriptions,
            *early,
            *(Advertise(id, tree.filter, Header(tree=id)) for id, tree in self._trees.items() if tree.parent == neighbour),
        ]

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        return {
            "advertisements": len(self._trees),
            "subscriptions": len(self._local) + sum(len(tree.table) for tree in self._trees.values()),
            "early": sum(map(len, self._early.values())),
            "offers": sum(len(tree.offers) for tree in self._trees.values()),
        }

    def _on_its_tree(self, publish: Publish) -> Publish:
        """A client's publication with the id of the advertisement of the client that it falls under."""
        for id, tree in self._trees.items():
            if tree.source == publish.header.publisher and admits(tree.filter, publish.publication):
                return msgspec.structs.replace(publish, header=msgspec.structs.replace(publish.header, tree=id))
        raise InvalidInput(f"publication {publish.publication}: expected one within an advertisement of its publisher")

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        if message.id in self._trees or message.id in self._gone:
            self.duplicates += 1
            return []
        near = peer in self._neighbours
        tree = self._trees[message.id] = _Tree(
            message.filter, peer, peer if near else None, (*message.header.path, peer) if near else ()
        )
        told = Advertise(message.id, message.filter, Header(path=tree.path, tree=message.id))
        sends: list[Send] = [(neighbour, told) for neighbour in self._neighbours if neighbour not in tree.path]
        for id, filter, _ in self._local.items():
            sends += self._offer(message.id, id, filter)
        for early, of in self._early.pop(message.id, {}).values():
            sends += self._subscribe(early, of)
        return sends

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        tree = self._trees.get(message.id)
        if tree is None or tree.source != peer:
            return []  # it comes by the way of the publications too, behind the last of them
        self._gone[message.id] = None
        if len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        del self._trees[message.id]
        self._early.pop(message.id, None)
        return [(neighbour, message) for neighbour in self._neighbours if neighbour != peer]

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        if peer not in self._neighbours:
            if not self._local.add(message.id, message.filter, peer):
                return []
            return [send for tree in self._trees for send in self._offer(tree, message.id, message.filter)]
        tree_id = str(message.header.tree)
        tree = self._trees.get(tree_id)
        if tree is None and tree_id not in self._gone:
            self._early.setdefault(tree_id, {})[message.id] = (message, peer)
        if tree is None or not tree.table.add(message.id, message.filter, peer):
            return []
        return self._offer(tree_id, message.id, message.filter)

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if peer not in self._neighbours:
            if self._local.remove(message.id, peer) is None:
                return []
            return [send for tree in self._trees for send in self._withdraw(tree, message.id)]
        tree_id = str(message.header.tree)
        self._early.get(tree_id, {}).pop(message.id, None)
        tree = self._trees.get(tree_id)
        if tree is None or tree.table.remove(message.id, peer) is None:
            return []
        return self._withdraw(tree_id, message.id)

    def _offer(self, tree_id: str, id: str, filter: Filter) -> list[Send]:
        tree = self._trees[tree_id]
        if tree.parent is None or not intersects(tree.filter, filter) or not tree.offers.offer(id, filter):
            return []
        return [(tree.parent, Subscribe(id, filter, Header(tree=tree_id)))]

    def _withdraw(self, tree_id: str, id: str) -> list[Send]:
        tree = self._trees[tree_id]
        if tree.parent is None:
            return []
        heirs, told = tree.offers.withdraw(id)
        sends: list[Send] = [(tree.parent, Subscribe(heir, filter, Header(tree=tree_id))) for heir, filter in heirs]
        return [*sends, (tree.parent, Unsubscribe(id, Header(tree=tree_id)))] if told else sends
