"""Plans that move few: valid, within the limit, and as good as trying everything on tiny problems."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from overweave.errors import DoesNotFit, GoalNotMet, PlanningError
from overweave.planning.current import current_load, current_tree
from overweave.planning.flows import per_bit
from overweave.planning.kernels.settle import arrive
from overweave.planning.load import predict
from overweave.planning.make import make_plan
from overweave.planning.moves.arrangement import contracted
from overweave.planning.moves.frontier import frontier_of
from overweave.planning.plan import read_plan, validate_plan
from overweave.planning.problem import Today
from overweave.planning.tree import Tree
from overweave.testing.planning import random_problem


def with_goals(problem, **goals):
    return replace(problem, goals=msgspec.structs.replace(problem.goals, **goals))


def consistent(problem):
    """With the publishing sides of clients where their clients are today."""
    sides, today = problem.publishers.unit, problem.today
    homes = np.where(sides >= 0, today.units[np.maximum(sides, 0)], today.publishers)
    return replace(problem, today=Today(today.units, homes, today.links))


def some_problem(seed, **kind):
    return consistent(random_problem(seed, with_today=True, **kind))


def trees_of(brokers):
    """Every tree over some brokers, by all sequences of Prüfer."""
    if len(brokers) == 1:
        return [Tree.of(brokers, [-1])[0]]
    found = []
    for code in itertools.product(range(len(brokers)), repeat=len(brokers) - 2):
        degree = [1 + code.count(i) for i in range(len(brokers))]
        links = []
        for at in code:
            leaf = degree.index(1)
            links.append((leaf, at))
            degree[leaf] -= 1
            degree[at] -= 1
        links.append(tuple(i for i, left in enumerate(degree) if left == 1))
        parents, open = {0: -1}, [0]
        while open:
            here = open.pop()
            for link in links:
                if here in link and (other := sum(link) - here) not in parents:
                    parents[other] = here
                    open.append(other)
        found.append(Tree.of(brokers, [parents[i] for i in range(len(brokers))])[0])
    return found


def can_do_with(problem, count, moves):
    """Whether anything with so many brokers and so many moves at most keeps the headroom: every tree and every placement."""
    today, most = problem.today, 1 - problem.goals.headroom
    now = np.concatenate([today.units, today.publishers])
    units, sides = len(today.units), problem.publishers.unit
    for brokers in itertools.combinations(range(len(problem.pool)), count):
        forced = np.flatnonzero(~np.isin(now, brokers)).tolist()
        others = [i for i in range(len(now)) if i not in forced]
        for extra in range(moves - len(forced) + 1):
            for more in itertools.combinations(others, extra):
                going = [*forced, *more]
                for chosen in itertools.product(brokers, repeat=len(going)):
                    then = now.copy()
                    then[going] = chosen
                    if any(side >= 0 and then[units + p] != then[side] for p, side in enumerate(sides.tolist())):
                        continue
                    for tree in trees_of(brokers):
                        node = np.full(len(problem.pool), -1)
                        node[tree.broker] = np.arange(len(tree))
                        load = predict(problem, tree, node[then[:units]], node[then[units:]])
                        if max(load.input_utilisation.max(), load.output_utilisation.max()) <= most * (1 + 1e-9):
                            return True
    return False


def test_against_trying_everything():
    """On tiny problems the frontier needs as many moves as the best of all trees and placements, in nearly all cases."""
    cases, worse = 0, []
    for seed in range(24):
        problem = some_problem(
            seed, clients=6, brokers=4, publishers=2, fill=0.35, equal_brokers=seed % 2 == 0, publishing=seed % 4 == 0
        )
        try:
            points = frontier_of(problem, make_plan(problem))
        except DoesNotFit:
            continue
        best = {}
        for point in points[1:]:
            best.setdefault(point.brokers, point.moves)
        for brokers, moves in best.items():
            cases += 1
            if moves and can_do_with(problem, brokers, moves - 1):
                worse.append((seed, brokers, moves))
    assert cases >= 30
    assert len(worse) <= cases // 10, worse
