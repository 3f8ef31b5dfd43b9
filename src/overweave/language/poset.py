"""The partially ordered set of filters by covering (THESIS 3.2, fig 3.2).

Every unique filter is a node, its parents are the narrowest filters that cover it and its children the widest that it
covers; filters that cover each other share one node. The children of the imaginary root are the covering
subscription set (CSS). The relation is an argument, as planning keeps other things than filters in such order.

Insertion looks for the parents from the root downwards and enters only nodes that cover the new one. *Marks* spare most
comparisons: whatever covers a filter has no mark that the filter has not. The children of a node are grouped by one
mark each, so that only groups of the new filter's own marks are looked at, and nodes are listed by all their marks, so
that only the shortest list, or what is below a parent if that is less, is searched for nodes that the new one covers.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView
from typing import Any, Generic, TypeAlias, TypeVar, cast

from overweave.errors import UnknownId
from overweave.language import relations

F = TypeVar("F", bound=Hashable)
S = TypeVar("S", bound=Hashable)

#: ``None``: the filter is covered by everything, as unsatisfiable ones are, so no marks could tell.
Marks: TypeAlias = Iterable[Hashable] | None
_OrderedSignature: TypeAlias = dict[Hashable, None] | None


class Poset(Generic[F, S]):
    """Filters of type ``F`` in the order of covering, each with its subscribers of type ``S``.

    ``covers(wide, narrow)`` must be reflexive and transitive; ``signature`` of a filter must include the marks of every
    filter that covers it, and no marks at all are always right.

    >>> from overweave.language.syntax import parse_filter
    >>> poset = Poset()
    >>> texts = ["[class,eq,'STOCK'],[volume,>,1000]", "[class,eq,'STOCK']", "[class,eq,'SPORTS']"]
    >>> volume, stock, sports = map(parse_filter, texts)
    >>> for entry in (volume, stock, sports):
    ...     poset.insert(entry, "sub1")
    >>> print(*poset.css, sep="; ")
    [class,eq,'STOCK']; [class,eq,'SPORTS']
    >>> poset.parents(volume) == poset.ancestors(volume) == (stock,)
    True
    >>> poset.children(stock) == poset.descendants(stock) == (volume,)
    True
    >>> poset.subscribers(volume)
    ('sub1',)
    >>> poset.delete(stock, "sub1")
    >>> print(*poset.css, sep="; ")
    [class,eq,'SPORTS']; [class,eq,'STOCK'],[volume,>,1000]
    """

    def __init__(
        self,
        covers: Callable[[Any, Any], bool] = relations.covers,
        signature: Callable[[Any], Marks] | None = None,
    ) -> None:
        self._covers: Callable[[F, F], bool] = covers
        default: Callable[[Any], Marks] = relations.signature if covers is relations.covers else _no_marks
        self._marks: Callable[[F], Marks] = signature or default
        #: The imaginary node that covers all; its entry is never looked at and no answer names it.
        self._root: _Node[F, S] = _Node(cast(F, None), ())
        #: The node of every filter inserted, equal ones under each of their forms.
        self._node_of: dict[F, _Node[F, S]] = {}
        #: All nodes by each of their marks; nodes with no set of marks are under ``None``, all nodes under ``_ALL``.
        self._listed: dict[Hashable, dict[_Node[F, S], None]] = {_ALL: {}}
        #: The filters of the root's children.
        self._css: dict[F, None] = {}

    @property
    def css(self) -> KeysView[F]:
        """The covering subscription set, as a live view in O(1): the widest filters, no one covered by another."""
        return self._css.keys()

    def insert(self, entry: F, subscriber: S) -> None:
        """Add ``subscriber`` to the node of ``entry``, which is made if no equal filter is there; repeating is harmless."""
        node = self._node_of.get(entry)
        if node is None:
            node = self._node_of[entry] = self._find_or_link(entry)
        node.subscribers.setdefault(entry, {})[subscriber] = None

    def delete(self, entry: F, subscriber: S) -> None:
        """Take back one `insert`; the node leaves with its last subscriber and its children move up."""
        node = self._node(entry)
        if subscriber not in node.subscribers[entry]:
            raise UnknownId(f"subscriber {subscriber!r} has no filter {entry}")
        del node.subscribers[entry][subscriber]
        if node.subscribers[entry]:
            return
        del node.subscribers[entry], self._node_of[entry]
        if not node.subscribers:
            self._unlink(node)
        elif node.entry == entry:
            self._rename(node, next(iter(node.subscribers)))

    def subscribers(self, entry: F) -> tuple[S, ...]:
        """Who subscribed to ``entry`` or to a filter equal to it, each once, the oldest first."""
        each = self._node(entry).subscribers.values()
        return tuple(dict.fromkeys(subscriber for several in each for subscriber in several))

    def parents(self, entry: F) -> tuple[F, ...]:
        """The narrowest filters that cover ``entry``; none for a member of the CSS."""
        return tuple(parent.entry for parent in self._node(entry).parents if parent is not self._root)

    def children(self, entry: F) -> tuple[F, ...]:
        """The widest filters that ``entry`` covers."""
        return tuple(child.entry for child in self._node(entry).children())

    def ancestors(self, entry: F) -> tuple[F, ...]:
        """All filters that cover ``entry``, nearest first."""
        above = _reachable(self._node(entry), lambda node: node.parents)
        return tuple(node.entry for node in above if node is not self._root)

    def descendants(self, entry: F) -> tuple[F, ...]:
        """All filters that ``entry`` covers, nearest first."""
        return tuple(node.entry for node in _reachable(self._node(entry), _Node.children))

    def __contains__(self, entry: object) -> bool:
        return entry in self._node_of

    def __iter__(self) -> Iterator[F]:
        """One filter per node: the oldest of the equal ones."""
        return (node.entry for node in self._listed[_ALL])

    def __len__(self) -> int:
        return len(self._listed[_ALL])

    def validate(self) -> None:
        """Check every invariant from scratch, in O(n³): for tests."""
        nodes = list(self._listed[_ALL])
        below = {a: {b for b in nodes if a is not b and self._covers(a.entry, b.entry)} for a in nodes}
        below[self._root] = set(nodes)
        for a in nodes:
            assert a not in {c for b in below[a] for c in below[b]}, "equal filters share a node"
            assert a.subscribers, "a node has a subscriber"
            assert all(self._node_of[entry] is a and own for entry, own in a.subscribers.items())
            assert all(a in self._listed[mark] for mark in _listing(a.signature))
        for a, covered in below.items():
            reduced = covered - {c for b in covered for c in below[b]}
            assert set(a.children()) == reduced, "edges are the transitive reduction of covering"
            assert all(child in a.groups[child.parents[a]] for child in reduced)
        assert all(set(node.parents) == {a for a in below if node in a.children()} for node in nodes)
        assert set(self.css) == {node.entry for node in self._root.children()}
        assert len(self._node_of) == sum(len(node.subscribers) for node in nodes)
        assert all(set(several) <= set(nodes) for several in self._listed.values())

    def _node(self, entry: F) -> "_Node[F, S]":
        node = self._node_of.get(entry)
        if node is None:
            raise UnknownId(f"no such filter: {entry}")
        return node

    def _find_or_link(self, entry: F) -> "_Node[F, S]":
        """The node of a filter equal to ``entry``, or a new one in its place."""
        new: _Node[F, S] = _Node(entry, self._marks(entry))
        parents = self._narrowest_above(entry, new.signature)
        # Whatever covers an equal filter covers this one too, so the equal one would be the only narrowest.
        if len(parents) == 1 and parents[0] is not self._root and self._covers(entry, parents[0].entry):
            return parents[0]
        children = self._widest_below(entry, new.signature, parents[0])
        for child in children:
            for parent in parents:
                if parent in child.parents:
                    self._cut(parent, child)
            self._join(new, child)
        for parent in parents:
            self._join(parent, new)
        for mark in _listing(new.signature):
            self._listed.setdefault(mark, {})[new] = None
        return new

    def _narrowest_above(self, entry: F, signature: _OrderedSignature) -> list["_Node[F, S]"]:
        """The parents of a filter: nodes that cover it and have no child that does."""
        found, seen, entered = [], {self._root: True}, [self._root]
        while entered:
            node = entered.pop()
            lowest = True
            for child in node.children() if signature is None else node.children_with_signature(signature):
                if child not in seen:
                    seen[child] = self._covers(child.entry, entry)
                    if seen[child]:
                        entered.append(child)
                lowest = lowest and not seen[child]
            if lowest:
                found.append(node)
        return found

    def _widest_below(self, entry: F, signature: _OrderedSignature, parent: "_Node[F, S]") -> list["_Node[F, S]"]:
        """The children of a filter with that ``parent``: nodes that it covers and that have no parent it covers."""
        listed = [self._listed.get(mark, {}) for mark in signature or ()]
        candidates = min(listed, key=len) | self._listed.get(None, {}) if listed else self._listed[_ALL]
        if parent is not self._root:
            below = _reachable(parent, _Node.children, most=len(candidates))
            candidates = min(candidates, below, key=len)
        covered = {node: None for node in candidates if self._covers(entry, node.entry)}
        return [node for node in covered if covered.keys().isdisjoint(node.parents)]

    def _unlink(self, node: "_Node[F, S]") -> None:
        parents, children = list(node.parents), list(node.children())
        for parent in parents:
            self._cut(parent, node)
        for child in children:
            self._cut(node, child)
            others = list(child.parents)
            for parent in parents:
                if not any(parent is self._root or self._covers(parent.entry, other.entry) for other in others):
                    self._join(parent, child)
        for mark in _listing(node.signature):
            del self._listed[mark][node]
            if not self._listed[mark] and mark is not _ALL:
                del self._listed[mark]

    def _rename(self, node: "_Node[F, S]", entry: F) -> None:
        if self._root in node.parents:
            del self._css[node.entry]
            self._css[entry] = None
        node.entry = entry

    def _join(self, parent: "_Node[F, S]", child: "_Node[F, S]") -> None:
        parent.adopt(child)
        if parent is self._root:
            self._css[child.entry] = None

    def _cut(self, parent: "_Node[F, S]", child: "_Node[F, S]") -> None:
        parent.release(child)
        if parent is self._root:
            del self._css[child.entry]


class _Node(Generic[F, S]):
    """Equal filters with their subscribers, linked to the next wider and the next narrower ones.

    Sets are dicts without values: their order is that of insertion, so that one seed gives one trace.
    """

    __slots__ = ("entry", "groups", "parents", "signature", "subscribers")

    def __init__(self, entry: F, signature: Iterable[Hashable] | None) -> None:
        #: The oldest of the equal filters; it stands for all of them.
        self.entry = entry
        self.signature = None if signature is None else dict.fromkeys(signature)
        #: The equal filters, oldest first, each with its subscribers.
        self.subscribers: dict[F, dict[S, None]] = {}
        #: The parents, each with the mark under which it keeps this node.
        self.parents: dict[_Node[F, S], Hashable] = {}
        #: The children by one of the marks that they have and this node has not (``None`` if there is none).
        self.groups: dict[Hashable, dict[_Node[F, S], None]] = {}

    def children(self) -> Iterator["_Node[F, S]"]:
        return (child for group in self.groups.values() for child in group)

    def children_with_signature(self, signature: dict[Hashable, None]) -> Iterator["_Node[F, S]"]:
        """The children that may cover a filter with ``signature``."""
        if len(self.groups) <= len(signature):
            groups: Iterable[Hashable] = [mark for mark in self.groups if mark is None or mark in signature]
        else:
            groups = [None, *signature]
        return (child for mark in groups for child in self.groups.get(mark, ()))

    def adopt(self, child: "_Node[F, S]") -> None:
        """Keep ``child`` in the smallest of the groups where it may be."""
        signature = [mark for mark in child.signature or () if mark not in (self.signature or ())]
        mark = min(signature, key=lambda mark: len(self.groups.get(mark, ())), default=None)
        self.groups.setdefault(mark, {})[child] = None
        child.parents[self] = mark

    def release(self, child: "_Node[F, S]") -> None:
        mark = child.parents.pop(self)
        del self.groups[mark][child]
        if not self.groups[mark]:
            del self.groups[mark]


#: The mark under which all nodes are listed.
_ALL = object()


def _no_marks(_: object) -> Marks:
    return ()


def _listing(signature: _OrderedSignature) -> list[Hashable]:
    return [_ALL, None] if signature is None else [_ALL, *signature]


def _reachable(
    start: "_Node[F, S]",
    neighbours: Callable[["_Node[F, S]"], Iterable["_Node[F, S]"]],
    most: float = math.inf,
) -> dict["_Node[F, S]", None]:
    """The nodes on all paths from ``start``, nearest first; the search gives up when it found ``most`` or more."""
    found: dict[_Node[F, S], None] = {}
    front = [start]
    while front and len(found) < most:
        front = list(dict.fromkeys(other for node in front for other in neighbours(node) if other not in found))
        found.update(dict.fromkeys(front))
    return found
