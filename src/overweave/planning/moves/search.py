"""The search for arrangements with few moves: brokers are removed one after the other, those with the fewest clients first.

Savings are brokers, so the most saving per move is the broker with the fewest clients and publishers that have not moved yet.
Where brokers are many, several are removed in a step. Every arrangement on the way is a plan that could be carried out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.current import current_tree
from overweave.planning.model import Model
from overweave.planning.moves.arrangement import (
    Arrangement,
    Settled,
    contracted,
    extended,
    links_between,
    neighbours,
    star,
)
from overweave.planning.moves.settle import Settler
from overweave.planning.problem import Today, Whole
from overweave.planning.tree import Tree

#: Steps from today to as few brokers as possible, and neighbours that are tried as heirs of one.
STEPS_MAX, HEIRS_MAX = 48, 3
#: Brokers that are removed or added, one after the other, where today's network has too much to do.
MENDED_MAX = 16
#: Arrangements that `widen` keeps at every number of brokers, times brokers.
WORK = 24
#: The number of brokers up to which every subset is tried.
SETS_MAX = 6
#: Shares of the clients that could stay which go to their place in the plan.
_SHARES = (0.0, 0.25, 0.5, 0.75)
#: The order of the removal of brokers: the least loaded first.
Rank = Callable[[int], tuple[int, ...]]


class Search:
    """Searches from today's network; the model's problem knows today and is in canonical order."""

    def __init__(self, model: Model, link_delay_s: float = 0.0) -> None:
        problem = self._problem = model.problem
        if problem.today is None:
            raise PlanningError("today: expected to know where clients are")
        self._today: Today = problem.today
        self._settler = Settler(model, link_delay_s)
        self._bins = model.bins.broker.tolist()
        self._fixed = self._pinned_places(model)
        self._pinned = set(self._fixed[0][self._fixed[0] >= 0].tolist()) | set(self._fixed[1][self._fixed[1] >= 0].tolist())

    def start(self) -> Settled | None:
        """Today's network, with pins, excluded brokers and headroom respected: with the fewest moves that we find for that."""
        tree, spare = self._allowed()
        for trees in (self._relieved(tree), self._enlarged(tree, spare)):
            found = (self._settler.settled(self._of_today(each)) for each in trees)
            first = next((each for each in found if each is not None), None)
            if first is not None:
                around = star(first.arrangement.tree, self._strongest(first.arrangement.tree.broker))
                other = self._settler.settled(self._of_today(around)) if first.moves else None
                return other if other is not None and other.moves < first.moves else first
        return None

    def _allowed(self) -> tuple[Tree, list[int]]:
        """The current tree with the brokers of pins and without excluded ones; and all others, the strongest first."""
        tree = current_tree(self._problem)
        self._settler.check_size(len(tree))
        for broker in sorted(self._pinned - set(tree.broker.tolist())):
            tree = extended(tree, broker, self._strongest(tree.broker))
        excluded = {self._problem.pool.ids.index(id) for id in self._problem.goals.exclude}
        spare = [broker for broker in self._bins if broker not in set(tree.broker.tolist())]
        if set(tree.broker.tolist()) <= excluded:
            tree = extended(tree, spare.pop(0), 0)
        for broker in sorted(excluded & set(tree.broker.tolist())):
            node = int(np.flatnonzero(tree.broker == broker)[0])
            tree = contracted(tree, node, self._heirs(tree, node, None)[0])
        return tree, spare

    def _relieved(self, tree: Tree) -> Iterator[Tree]:
        """The tree, then without brokers that have too much to do even when clients leave, one after the other."""
        for _ in range(MENDED_MAX):
            yield tree
            node = self._settler.busiest(self._of_today(tree))
            if len(tree) == 1 or int(tree.broker[node]) in self._pinned:
                return
            tree = contracted(tree, node, self._heirs(tree, node, None)[0])

    def _enlarged(self, tree: Tree, spare: list[int]) -> Iterator[Tree]:
        """The tree with more and more of the brokers that are not used today, the strongest first."""
        for broker in spare[:MENDED_MAX]:
            tree = extended(tree, broker, self._strongest(tree.broker))
            yield tree

    def descend(self, start: Settled, rank: Rank, moves_max: int | None = None) -> list[Settled]:
        """Arrangements with fewer and fewer brokers, starting from one (not included), within the limit of moves."""
        found: list[Settled] = []
        now = start
        chunk = -(-start.brokers // STEPS_MAX)
        blocked = set(self._pinned)
        while len(found) < STEPS_MAX:
            brokers = [b for b in now.arrangement.tree.broker.tolist() if b not in blocked]
            cost = self._unmoved(now.arrangement)
            brokers.sort(key=lambda b: (*rank(b), int(cost[b]), float(self._problem.pool.bandwidth_bytes_per_s[b]), b))
            taken = brokers[: min(chunk, len(now.arrangement.tree) - 1)]
            if not taken:
                break
            less = self._without(now, taken)
            if less is None or (moves_max is not None and less.moves > moves_max):
                if len(taken) == 1:
                    blocked.add(taken[0])
                chunk = max(1, len(taken) // 2)
                continue
            found.append(less)
            now = less
        return found

    def widen(self, start: Settled) -> list[Settled]:
        """As `descend`, but with several arrangements at every number of brokers: for networks that are small.

        Where they are very small, with every set of brokers.
        """
        width = WORK // start.brokers
        found = self._every_set() if start.brokers <= SETS_MAX else []
        level = [start]
        while level and width:
            made: dict[tuple[tuple[int, int], ...], Settled] = {}
            for now in level:
                cost = self._unmoved(now.arrangement)
                brokers = [b for b in now.arrangement.tree.broker.tolist() if b not in self._pinned]
                order = np.lexsort((brokers, cost[brokers]))[: width if now.brokers > 1 else 0].tolist()
                for broker in (brokers[i] for i in order):
                    for less in self._ways_without(now, [broker]):
                        made.setdefault(links_between(less.arrangement.tree), less)
            level = sorted(made.values(), key=lambda each: (each.moves, each.input_hz_mean))[:width]
            found += level
        return found

    def _every_set(self) -> list[Settled]:
        """Every set of today's brokers, joined as they are or around any one of them."""
        whole, _ = self._allowed()
        found: list[Settled] = []
        for count in range(1, len(whole)):
            for gone in combinations(sorted(set(whole.broker.tolist()) - self._pinned), count):
                tree = whole
                for broker in gone:
                    node = int(np.flatnonzero(tree.broker == broker)[0])
                    tree = contracted(tree, node, self._heirs(tree, node, None)[0])
                for each in (tree, *(star(tree, node) for node in range(len(tree)))):
                    settled = self._settler.settled(self._of_today(each))
                    found += [] if settled is None else [settled]
        return found

    def towards(self, plan: Arrangement) -> list[Settled]:
        """Arrangements with the brokers and links of a plan in which all possible clients, or some of them, stay."""
        today, found = self._today, []
        self._settler.check_size(len(plan.tree))
        inside = np.isin(today.units, plan.tree.broker)
        units = np.where(self._fixed[0] >= 0, self._fixed[0], np.where(inside, today.units, -1))
        stays = np.isin(today.publishers, plan.tree.broker)
        homes = np.where(stays, today.publishers, plan.publishers)
        homes = np.where(self._fixed[1] >= 0, self._fixed[1], homes)
        could = np.flatnonzero((units >= 0) & (self._fixed[0] < 0) & (units != plan.units))
        could = could[np.lexsort((could, -self._problem.units.output_bytes_per_s[could]))]
        for publishers, share in [(homes, 0.0), *((plan.publishers, share) for share in _SHARES)]:
            places = units.copy()
            going = could[: int(len(could) * share)]
            places[going] = plan.units[going]
            settled = self._settler.settled(Arrangement(plan.tree, places, publishers))
            if settled is not None:
                found.append(settled)
        return found

    def _without(self, now: Settled, brokers: Sequence[int]) -> Settled | None:
        """One without some brokers, by the first way that is found."""
        return next(self._ways_without(now, brokers), None)

    def _ways_without(self, now: Settled, brokers: Sequence[int]) -> Iterator[Settled]:
        """Arrangements without some brokers: all other clients stay, or all clients that must move are placed again."""
        for tree in self._trees_without(now, brokers):
            for places in (replace(now.arrangement, tree=tree).kept(), self._of_today(tree)):
                settled = self._settler.settled(places)
                if settled is not None:
                    yield settled
                    break

    def _trees_without(self, now: Settled, brokers: Sequence[int]) -> Iterator[Tree]:
        """The tree with some neighbour in place of each broker; last, all around the strongest."""
        tree = now.arrangement.tree
        several = len(brokers) == 1 and len(neighbours(tree, int(np.flatnonzero(tree.broker == brokers[0])[0])))
        for choice in range(min(HEIRS_MAX, several) if several else 1):
            less = tree
            for broker in brokers:
                node = int(np.flatnonzero(less.broker == broker)[0])
                heirs = self._heirs(less, node, now)
                less = contracted(less, node, heirs[choice])
            yield less
        yield star(less, self._strongest(less.broker))

    def _of_today(self, tree: Tree) -> Arrangement:
        """All clients at their current places if possible, pinned ones at their pins."""
        made = Arrangement(tree, self._today.units, self._today.publishers).kept()
        places = (np.where(fixed >= 0, fixed, now) for fixed, now in zip(self._fixed, (made.units, made.publishers), strict=True))
        return Arrangement(made.tree, *places)

    def _heirs(self, tree: Tree, node: int, now: Settled | None) -> list[int]:
        """The neighbours of a node, those with most output to spare first."""
        spare = self._problem.pool.bandwidth_bytes_per_s * (1 - self._problem.goals.headroom)
        if now is not None:
            spare[now.arrangement.tree.broker] -= now.load.output_bytes_per_s
        return sorted(neighbours(tree, node), key=lambda each: (-float(spare[tree.broker[each]]), int(tree.broker[each])))

    def _strongest(self, brokers: Whole) -> int:
        return int(np.argmax(self._problem.pool.bandwidth_bytes_per_s[brokers]))

    def _unmoved(self, arrangement: Arrangement) -> Whole:
        """How many more moves it takes to empty each broker."""
        found = np.zeros(len(self._problem.pool), np.int64)
        for now, then in ((self._today.units, arrangement.units), (self._today.publishers, arrangement.publishers)):
            np.add.at(found, then[now == then], 1)
        return found

    def _pinned_places(self, model: Model) -> tuple[Whole, Whole]:
        units = model.items.fixed[: len(self._problem.units)]
        pins = self._problem.goals.pins
        position = {id: i for i, id in enumerate(self._problem.pool.ids)}
        publishers = [position[pins[id]] if id in pins else -1 for id in self._problem.publishers.ids]
        return units, np.array(publishers, np.int64)
