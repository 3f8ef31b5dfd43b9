"""Recursive overlay construction (THESIS 6.3): brokers are allocated to brokers, layer by layer, until one is left.

A broker is to the layer above what a subscription is to it: the union of its vectors, sent once. After each layer, in this
order: brokers that only forward to one other are left out (6.3.1), parents take over the clients and children of children that
they can carry directly, the least utilised first (6.3.2), and every new broker is replaced by the one that fits best (6.3.3).

Beyond the thesis (its 8.2): when a layer cannot be allocated, its brokers are joined directly where one has room left for
another; when that fails too, all is tried again with some of the strongest brokers *reserved* for upper layers, and last
with room left at the brokers of clients. With ``publishers_inside`` a publisher that only one broker of a layer wants
is placed there at once, so that nothing above has to carry it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.base import Allocator
from overweave.planning.build.base import Builder
from overweave.planning.model import Items, Model
from overweave.planning.problem import Whole
from overweave.planning.tree import Design, Tree

_NO_PAIR = "no broker that is left has room for it and for one of them"


class RecursiveOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps after each layer; each can be switched off."""

    #: 6.3.1
    eliminate_forwarders: bool = True
    #: 6.3.2
    take_over: bool = True
    #: 6.3.3
    best_fit: bool = True
    #: 8.2: direct joins, reserved strong brokers and room left below, when a layer fails.
    backtrack: bool = True
    #: 8.2: publishers are placed while the tree is built.
    publishers_inside: bool = False


def recursive(options: RecursiveOptions) -> Builder:
    """The builder with some options."""

    def build(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        seed = int(draw.integers(1 << 62))
        failure: DoesNotFit | None = None
        for reserved, filled in _attempts(len(model.bins), options.backtrack):
            try:
                return _Construction(model, allocate, np.random.default_rng(seed), options).build(reserved, filled)
            except DoesNotFit as error:
                # The error of the text's algorithm is the most informative.
                failure = failure or error
        assert failure is not None
        raise failure

    return build


def _attempts(brokers: int, backtrack: bool) -> Iterator[tuple[int, float]]:
    """How many of the strongest brokers are reserved, and which share of the others clients may fill; the text's comes first."""
    yield 0, 1.0
    reserved = 1
    while backtrack and reserved < brokers:
        yield reserved, 1.0
        reserved *= 2
    if backtrack:
        for filled in (0.75, 0.5, 0.25):
            yield 0, filled


@dataclass(eq=False)
class _Node:
    """A broker of the tree under construction."""

    bin: int
    items: list[int] = field(default_factory=list)
    children: list["_Node"] = field(default_factory=list)
    #: What it receives; what its parent has to send it; the output it has; filters.
    profile: int = 0
    stream: int = 0
    output: int = 0
    entries: int = 0
    pinned: bool = False


def _heaviest(node: _Node) -> tuple[int, int]:
    return node.stream, node.bin


class _Construction:
    """One attempt. Bins are positions in the model's bins throughout."""

    def __init__(self, model: Model, allocate: Allocator, draw: np.random.Generator, options: RecursiveOptions) -> None:
        self._model, self._allocate, self._draw, self._options = model, allocate, draw, options
        self._free: list[int] = []
        self._home: dict[int, _Node] = {}
        self._clusters = 0

    def build(self, reserved: int, filled: float) -> Design:
        """The design with a number of the strongest brokers kept from the lowest layer, and only a share of the others used."""
        bins = self._model.bins
        pinned = np.isin(bins.broker, self._model.items.fixed)
        kept = np.flatnonzero(~pinned)[:reserved]
        self._free = np.setdiff1d(np.arange(len(bins)), kept).tolist()
        layer = self._lowest_layer(filled)
        self._free = sorted([*self._free, *kept.tolist()])
        layer = self._improved(layer)
        while len(layer) > 1:
            layer = self._next_layer(layer)
        return self._design(layer[0])

    def _lowest_layer(self, filled: float) -> list[_Node]:
        model, offered = self._model, np.array(self._free, np.int64)
        if not len(offered):
            largest = model.item_ids[int(np.argmax(model.items.output))] if len(model.items) else None
            raise DoesNotFit(largest, f"client {largest!r}: no broker is left for clients")
        bins = model.bins.take(offered)
        if filled < 1:
            bins = replace(bins, room=(bins.room * filled).astype(np.int64))
        found = self._allocate(model, model.items, bins, self._draw)
        self._clusters = found.clusters
        layer = self._nodes(offered[found.bin])
        if not layer:  # no clients: publishers still need a broker
            layer = [_Node(self._free.pop(0), profile=model.table.unite([]))]
        for node in layer:
            node.pinned = any(model.items.fixed[item] >= 0 for item in node.items)
            self._weigh(node)
        return layer

    def _nodes(self, bins: Whole) -> list[_Node]:
        """Nodes of the bins that got something, with the positions of what they got as items; these bins are free no more."""
        nodes: dict[int, _Node] = {}
        for item, bin in enumerate(bins.tolist()):
            nodes.setdefault(bin, _Node(bin)).items.append(item)
        self._free = [bin for bin in self._free if bin not in nodes]
        return [nodes[bin] for bin in sorted(nodes)]

    def _next_layer(self, layer: list[_Node]) -> list[_Node]:
        if self._options.publishers_inside:
            self._settle_publishers(layer)
        free = list(self._free)
        try:
            return self._allocated_layer(layer)
        except DoesNotFit:
            self._free = free
            if not self._options.backtrack or not self._join_one(layer):
                raise
            return layer

    def _join_one(self, layer: list[_Node]) -> bool:
        """Make one broker of a layer the child of another that has room for it: the smallest stream, at the fullest that does."""
        bins = self._model.bins
        fullest = sorted(layer, key=lambda node: (int(bins.room[node.bin]) - node.output, node.bin))
        left = [int(bins.room[node.bin]) - node.output for node in fullest]
        for child in sorted(layer, key=lambda node: (node.stream, node.bin)):
            for node in fullest[bisect_left(left, child.stream) :]:
                if node is child:
                    continue
                profile, entries = self._model.table.unite([node.profile, child.profile]), node.entries + child.entries
                if bins.holds(node.bin, node.output + child.stream, self._input(replace(node, profile=profile), node), entries):
                    node.children.append(child)
                    node.output += child.stream
                    node.profile, node.entries, node.stream = profile, entries, self._model.stream(profile)
                    layer.remove(child)
                    return True
        return False

    def _allocated_layer(self, layer: list[_Node]) -> list[_Node]:
        model, offered = self._model, np.array(self._free, np.int64)
        if not len(offered):
            raise self._no_room(layer, max(layer, key=_heaviest), "no broker is left to join it with them")
        if sum(sorted(node.stream for node in layer)[:2]) > int(model.bins.room[offered].max()):
            # No allocation could join any two of them.
            raise self._no_room(layer, min(layer, key=_heaviest), _NO_PAIR)
        columns = np.array([(node.profile, node.stream, node.entries, -1) for node in layer], np.int64)
        items = Items(*(np.ascontiguousarray(column) for column in columns.T))
        try:
            found = self._allocate(model, items, model.bins.take(offered), self._draw)
        except DoesNotFit as error:
            node = max(layer, key=_heaviest) if error.item is None else layer[error.item]
            raise self._no_room(layer, node, f"no broker of the {len(offered)} that are left has room for it") from None
        made = self._nodes(offered[found.bin])
        for node in made:
            node.children, node.items = [layer[i] for i in node.items], []
            self._weigh(node)
        if not any(len(node.children) > 1 for node in made):
            raise self._no_room(layer, min(layer, key=_heaviest), _NO_PAIR)
        return self._improved(made)

    def _no_room(self, layer: list[_Node], node: _Node, why: str) -> DoesNotFit:
        """The error that names a broker which cannot be joined with the others of its layer."""
        model = self._model
        id = model.problem.pool.ids[int(model.bins.broker[node.bin])]
        needs = node.stream * model.tick_bytes_per_s
        return DoesNotFit(id, f"broker {id!r} needs {needs:.6g} bytes/s and has {len(layer) - 1} others beside it: {why}")

    def _improved(self, layer: list[_Node]) -> list[_Node]:
        """The layer after the three optimisations, in the order of the text."""
        if self._options.eliminate_forwarders:
            layer = [self._without_forwarder(node) for node in layer]
        if self._options.take_over:
            for node in layer:
                self._take_over(node)
        if self._options.best_fit:
            for node in sorted(layer, key=lambda node: (-node.output, node.bin)):
                self._replace(node)
        return layer

    def _without_forwarder(self, node: _Node) -> _Node:
        if node.items or len(node.children) != 1:
            return node
        self._release(node.bin)
        return node.children[0]

    def _take_over(self, node: _Node) -> None:
        room = self._model.bins.room
        for child in sorted(node.children, key=lambda child: (child.output / max(int(room[child.bin]), 1), child.bin)):
            if child.pinned:
                continue
            output = node.output - child.stream + child.output
            if self._model.bins.holds(node.bin, output, self._input(node, child), node.entries):
                at = node.children.index(child)
                node.children[at : at + 1] = child.children
                node.items.extend(child.items)
                node.output = output
                self._release(child.bin)
                for publisher, home in self._home.items():
                    if home is child:
                        self._home[publisher] = node

    def _replace(self, node: _Node) -> None:
        bins = self._model.bins
        if node.pinned:
            return
        free = np.array(self._free, np.int64)
        fitting = free[bins.room[free] < bins.room[node.bin]]
        fitting = fitting[bins.holding(fitting, node.output, self._input(node), node.entries)]
        if len(fitting):
            # The free ones ascend, and of equal rooms the first is taken.
            best = int(fitting[np.argmin(bins.room[fitting])])
            self._free.remove(best)
            self._release(node.bin)
            node.bin = best

    def _release(self, bin: int) -> None:
        self._free = sorted([*self._free, bin])

    def _weigh(self, node: _Node) -> None:
        model, items = self._model, self._model.items
        profiles = [*(int(items.profile[i]) for i in node.items), *(child.profile for child in node.children)]
        node.profile = model.table.unite(profiles)
        node.stream = model.stream(node.profile)
        node.output = int(items.output[node.items].sum()) + sum(child.stream for child in node.children)
        node.entries = int(items.entries[node.items].sum()) + sum(child.entries for child in node.children)

    def _input(self, *nodes: _Node) -> int:
        """The input of the first node, if it also had the publishers of the others."""
        window, weight = self._model.problem.publishers.window, self._model.input_weight
        settled = sum(int(window[p] * weight[p]) for p, home in self._home.items() if home in nodes)
        return self._model.input(nodes[0].profile) + settled

    def _settle_publishers(self, layer: list[_Node]) -> None:
        """Place the free publishers that one broker of the layer alone wants; then it need not be sent them."""
        model = self._model
        wanting: dict[int, list[_Node]] = {}
        for node in layer:
            for publisher in model.table.of(node.profile)[0].tolist():
                wanting.setdefault(publisher, []).append(node)
        window, weight = model.problem.publishers.window, model.input_weight
        for publisher, nodes in wanting.items():
            if len(nodes) > 1 or model.host[publisher] >= 0 or publisher in self._home:
                continue
            node = nodes[0]
            # All its publications enter here, also unmatched ones.
            whole = self._input(node) + int(window[publisher] * weight[publisher])
            if model.bins.holds(node.bin, node.output, whole, node.entries):
                self._home[publisher] = node
                node.profile = model.table.without(node.profile, {publisher})
                node.stream = model.stream(node.profile)

    def _design(self, root: _Node) -> Design:
        model = self._model
        nodes, parents, places = [root], [-1], {id(root): 0}
        for at, node in enumerate(nodes):  # grows as it goes
            for child in node.children:
                places[id(child)] = len(nodes)
                nodes.append(child)
                parents.append(at)
        tree, numbers = Tree.of([int(model.bins.broker[node.bin]) for node in nodes], parents)
        item = np.empty(len(model.items), np.int64)
        for at, node in enumerate(nodes):
            item[node.items] = numbers[at]
        publisher = np.where(model.host >= 0, item[np.maximum(model.host, 0)] if len(item) else -1, -1)
        for p, home in self._home.items():
            publisher[p] = numbers[places[id(home)]]
        return Design(tree, item, publisher, self._clusters)
