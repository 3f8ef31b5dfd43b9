"""The best plan there is, by an exact solver: the fewest brokers, and with as many the least total input.

All subsets of the pool and all trees over them are tried, from few brokers to many, so this is for a handful of brokers. For one
tree the rest is an integer programme (HiGHS): a place for every client and every publisher, such that no broker sends more than
its bandwidth less headroom. Loads are those of `overweave.planning.load`: a publication travels once over each link that leads
from its publisher to somebody who wants it, and arrives at its first broker whether it is wanted or not. The limit on input is
not modelled; problems must leave input far from its limit.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.problem import Problem

#: More brokers have too many trees.
BROKERS_MAX = 5


@dataclass(frozen=True)
class Best:
    """The optimum: how many brokers, and the publications per second that arrive at all of them together."""

    brokers: int
    input_hz: float


@dataclass(frozen=True)
class Pattern:
    """Publications of one publisher that the same clients want."""

    publisher: int
    clients: tuple[int, ...]
    rate_hz: float
    bytes_per_s: float


def best_plan(problem: Problem) -> Best | None:
    """The optimum; None when no plan keeps the headroom."""
    if len(problem.pool) > BROKERS_MAX:
        raise PlanningError(f"exact solver: expected at most {BROKERS_MAX} brokers, found {len(problem.pool)}")
    patterns = patterns_of(problem)
    for count in range(1, len(problem.pool) + 1):
        found = [
            least
            for brokers in itertools.combinations(range(len(problem.pool)), count)
            for links in trees_of(brokers)
            if (least := _least_input(problem, patterns, brokers, links)) is not None
        ]
        if found:
            return Best(count, min(found))
    return None


def patterns_of(problem: Problem) -> list[Pattern]:
    """What is published, by who wants it. What nobody wants goes nowhere, and is left out."""
    units, vectors, publishers = problem.units, problem.vectors, problem.publishers
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start)).tolist()
    bits = np.unpackbits(vectors.words.view(np.uint8), axis=1, bitorder="little")
    wanted: dict[tuple[int, tuple[int, ...]], int] = {}
    for p in range(len(publishers)):
        rows = [(unit, bits[row]) for unit, row in zip(owner, units.rows.tolist(), strict=True) if vectors.publisher[row] == p]
        for column in range(bits.shape[1]):
            clients = tuple(sorted(unit for unit, each in rows if each[column]))
            if clients:
                wanted[p, clients] = wanted.get((p, clients), 0) + 1
    return [
        Pattern(
            p,
            clients,
            count * float(publishers.rate_hz[p]) / int(publishers.window[p]),
            count * float(publishers.bytes_per_s[p]) / int(publishers.window[p]),
        )
        for (p, clients), count in wanted.items()
    ]


def trees_of(brokers: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """All labelled trees over some brokers, by their Prüfer sequences.

    >>> [len(list(trees_of(tuple(range(count))))) for count in (1, 2, 3, 4)]
    [1, 1, 3, 16]
    """
    if len(brokers) < 2:
        yield ()
        return
    for sequence in itertools.product(brokers, repeat=len(brokers) - 2):
        degree = {broker: 1 + sequence.count(broker) for broker in brokers}
        links: list[tuple[int, int]] = []
        for broker in sequence:
            leaf = next(each for each in brokers if degree[each] == 1)
            links.append((leaf, broker))
            degree[leaf], degree[broker] = 0, degree[broker] - 1
        first, second = (each for each in brokers if degree[each] == 1)
        yield (*links, (first, second))


def _least_input(
    problem: Problem, patterns: list[Pattern], brokers: tuple[int, ...], links: tuple[tuple[int, int], ...]
) -> float | None:
    """The least total input of a tree, with everybody at their best place; None: no placement keeps the headroom."""
    import highspy

    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    client = {(c, b): solver.addBinary() for c in range(len(problem.units)) for b in brokers}
    home = _homes(problem, solver, client, brokers)
    sent: dict[int, list[Any]] = {b: [] for b in brokers}
    for (c, b), here in client.items():
        sent[b].append(here * float(problem.units.output_bytes_per_s[c]))
    carried: list[Any] = []
    for near, far in (ends for link in links for ends in (link, link[::-1])):
        side = _side(links, near, far)
        for pattern in patterns:
            crosses = solver.addVariable(0, 1)
            here = solver.qsum(home[pattern.publisher, b] for b in brokers if b not in side)
            for c in pattern.clients:
                solver.addConstr(crosses >= here + solver.qsum(client[c, b] for b in side) - 1)
            carried.append(crosses * pattern.rate_hz)
            sent[near].append(crosses * pattern.bytes_per_s)
    for c in range(len(problem.units)):
        solver.addConstr(solver.qsum(client[c, b] for b in brokers) == 1)
    for b in brokers:
        room = float(problem.pool.bandwidth_bytes_per_s[b]) * (1 - problem.goals.headroom)
        solver.addConstr(solver.qsum(sent[b]) <= room)
    solver.minimize(solver.qsum(carried) if carried else None)
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return float(problem.publishers.rate_hz.sum()) + float(solver.getObjectiveValue())


def _homes(problem: Problem, solver: Any, client: dict[tuple[int, int], Any], brokers: tuple[int, ...]) -> dict[Any, Any]:
    """Where publishers are: with their client if they have one, else at any one broker."""
    home = {}
    for p, unit in enumerate(problem.publishers.unit.tolist()):
        for b in brokers:
            home[p, b] = client[unit, b] if unit >= 0 else solver.addBinary()
        if unit < 0:
            solver.addConstr(solver.qsum(home[p, b] for b in brokers) == 1)
    return home


def _side(links: tuple[tuple[int, int], ...], near: int, far: int) -> set[int]:
    """The brokers beyond a link, seen from ``near``."""
    found, queue = {far}, [far]
    while queue:
        at = queue.pop()
        for a, b in links:
            for here, there in ((a, b), (b, a)):
                if here == at and there not in found and (here, there) != (far, near):
                    found.add(there)
                    queue.append(there)
    return found
