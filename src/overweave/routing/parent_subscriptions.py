"""The subscriptions of one broker at its parents on the trees of advertisements, under covering.

A broker whose parent changes subscribes at the new parent first, and unsubscribes at the former one some ticks later.
"""

from overweave.language.headers import Header
from overweave.language.messages import Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.intersections import IntersectionIndex
from overweave.routing.advertisement_tree import Tree
from overweave.routing.base import Send, SubscriptionTable
from overweave.routing.forwarded import ForwardedSubscriptions
from overweave.routing.options import AdvertisementTreeOptions


class ParentSubscriptions:
    """Subscriptions at parents and former parents; clients' own are in ``local``."""

    def __init__(self, options: AdvertisementTreeOptions) -> None:
        self._hold_ticks = options.parent_hold_ticks
        self.local = SubscriptionTable()
        #: The subscriptions of clients by the advertisements that they intersect.
        self.local_index = IntersectionIndex[str](holds_advertisements=False)
        #: The trees with former parents that have subscriptions. Without ticks there are none.
        self._moving: dict[str, None] = {}
        self._has_ticks = False
        #: The remaining ticks in which a starting broker subscribes at all neighbours with a path: one of them was its parent
        #: before. If that has crashed, too, it may get publications again that were in flight to here.
        self._fresh_ticks = options.startup_ticks

    def tick(self, trees: dict[str, Tree]) -> list[Send]:
        """A heartbeat period has passed: unsubscribe at former parents whose time is over."""
        self._has_ticks, self._fresh_ticks = True, max(self._fresh_ticks - 1, 0)
        sends: list[Send] = []
        for id in list(self._moving):
            tree = trees.get(id)
            for parent in list(tree.leaving) if tree is not None else ():
                assert tree is not None
                tree.leaving[parent] -= 1
                if tree.leaving[parent] <= 0:
                    sends += self.unsubscribe_at(id, tree, parent)
            if tree is None or not tree.leaving:
                del self._moving[id]
        return sends

    def moving(self) -> list[str]:
        """The trees with former parents."""
        return list(self._moving)

    def forward(self, id: str, tree: Tree, subscription: str, filter: Filter) -> list[Send]:
        """Forward a new subscription to the parent, unless it is covered there."""
        if not tree.is_wanted(filter) or not tree.offers.offer(subscription, filter) or tree.parent is None:
            return []
        tree.forwarded.setdefault(tree.parent, {})[subscription] = filter
        sends: list[Send] = [(tree.parent, _subscribe(id, tree, subscription, filter))]
        if self._fresh_ticks and self._has_ticks:
            for neighbour in tree.offered_by:
                sends += self.subscribe_widely(id, tree, neighbour)
        return sends

    def withdraw(self, id: str, tree: Tree, subscription: str, filter: Filter) -> list[Send]:
        """Withdraw a subscription; while paths change another peer may still have it."""
        rest = self.local.get(subscription) or tree.table.get(subscription)
        if rest == filter:
            return []
        uncovered, was_forwarded = tree.offers.withdraw(subscription)
        if rest is not None and tree.is_wanted(rest) and tree.offers.offer(subscription, rest):
            uncovered, was_forwarded = [*uncovered, (subscription, rest)], False
        sends: list[Send] = []
        if tree.parent is not None:
            tree.forwarded.setdefault(tree.parent, {}).update(uncovered)
            sends += [(tree.parent, _subscribe(id, tree, each, wanted)) for each, wanted in uncovered]
        for neighbour in (tree.parent, *tree.leaving) if was_forwarded or rest is None else ():
            if neighbour is not None and tree.forwarded.get(neighbour, {}).pop(subscription, None) is not None:
                sends.append((neighbour, Unsubscribe(subscription, Header(tree=id))))
        return sends

    def collect(self, tree: Tree) -> None:
        """Collect the subscriptions for the parent again, after the filter of the advertisement has changed."""
        tree.offers = ForwardedSubscriptions()
        if tree.route is None or tree.client is not None:
            return
        for subscription in self.local_index.intersecting(tree.route.filter):
            tree.offers.offer(subscription, self.local.entry(subscription)[0])
        for subscription, filter in tree.table.items():
            if tree.is_wanted(filter):
                tree.offers.offer(subscription, filter)

    def subscribe_at(self, id: str, tree: Tree, parent: str) -> list[Send]:
        """Bring the subscriptions at a parent up to date, new ones first."""
        tree.leaving.pop(parent, None)
        known, wanted = tree.forwarded.get(parent, {}), dict(tree.offers.forwarded())
        if wanted:
            tree.forwarded[parent] = wanted
        else:
            tree.forwarded.pop(parent, None)
        sends: list[Send] = [
            (parent, _subscribe(id, tree, subscription, filter))
            for subscription, filter in wanted.items()
            if known.get(subscription) != filter
        ]
        return [*sends, *((parent, Unsubscribe(gone, Header(tree=id))) for gone in known if gone not in wanted)]

    def subscribe_widely(self, id: str, tree: Tree, neighbour: str) -> list[Send]:
        """Subscribe at a neighbour that is not the parent, for some ticks after the start."""
        if not (self._fresh_ticks and self._has_ticks) or neighbour in (tree.parent, None) or neighbour not in tree.offered_by:
            return []
        sends = self.subscribe_at(id, tree, neighbour)
        if neighbour in tree.forwarded:
            tree.leaving[neighbour] = self._hold_ticks
            self._moving[id] = None
        return sends

    def leave(self, id: str, tree: Tree, former: str) -> list[Send]:
        """Unsubscribe at a former parent, after the hold time if there are ticks."""
        if former not in tree.forwarded:
            return []
        if not self._has_ticks:
            return self.unsubscribe_at(id, tree, former)
        tree.leaving[former] = self._hold_ticks
        self._moving[id] = None
        return []

    def unsubscribe_at(self, id: str, tree: Tree, former: str) -> list[Send]:
        """Unsubscribe at a former parent."""
        known = tree.forwarded.get(former, {})
        self.forget(tree, former)
        return [(former, Unsubscribe(subscription, Header(tree=id))) for subscription in known]

    def forget(self, tree: Tree, neighbour: str) -> None:
        """A neighbour has no subscriptions of ours."""
        tree.forwarded.pop(neighbour, None)
        tree.leaving.pop(neighbour, None)

    def validate(self) -> None:
        """Check the invariants."""
        self.local.validate()
        self.local_index.validate({id: (filter, None) for id, filter, _ in self.local.items()})


def _subscribe(id: str, tree: Tree, subscription: str, filter: Filter) -> Subscribe:
    # With the origin: a message in flight when the advertisement ended does not belong to the next one of that id.
    return Subscribe(subscription, filter, Header(tree=id, origin=None if tree.route is None else tree.route.origin))
