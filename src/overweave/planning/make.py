"""The construction of a plan: canonical order, allocation, overlay, placement of publishers, broker names, validation."""

from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from overweave.errors import PlanningError
from overweave.planning.algorithms import Algorithm, algorithm
from overweave.planning.allocate.cram.parts import RunParts, run_here
from overweave.planning.broker_cost import total_cost
from overweave.planning.canonical import canonical
from overweave.planning.evidence import Evidence, evidence_of
from overweave.planning.flows import flows_of
from overweave.planning.load import Predicted, predict
from overweave.planning.model import Model, make_model
from overweave.planning.moves.arrangement import Arrangement, moves_from_today
from overweave.planning.moves.frontier import Frontier
from overweave.planning.options import Options
from overweave.planning.plan import Plan, changes, fingerprint, links_of, loads_of, moves_of, totals_of
from overweave.planning.problem import Problem, Whole
from overweave.planning.relabel import relabelled
from overweave.planning.tree import Tree
from overweave.planning.validation import validate_plan


def make_plan(
    problem: Problem,
    algorithm_name: str = "cram-iou",
    options: Options | None = None,
    seed: int = 0,
    evidence: Evidence | None = None,
    run_parts: RunParts = run_here,
) -> Plan:
    """The plan of a problem: the same input and seed make the same bytes.

    Raises `DoesNotFit` if the pool is too small, `GoalNotMet` for a goal that the algorithm's plan misses. A plan that
    exceeds ``moves_max`` is replaced by the plan with the fewest brokers within that limit. Baselines
    (``Algorithm.keeps_capacity`` is false) may overload brokers, as their ``totals`` show. ``run_parts`` clusters parts of
    large problems, here or on Spark; the plan is the same.
    """
    options = options or Options()
    chosen = algorithm(algorithm_name)
    ordered = canonical(_as_compared(problem, options))
    ordered.validate()
    found = _arranged(ordered, chosen, options, np.random.default_rng(seed), run_parts)
    plan = Plan(
        algorithm=algorithm_name,
        parameters=msgspec.to_builtins(options),
        seed=seed,
        fingerprint=fingerprint(problem),
        evidence=evidence or evidence_of(problem),
        goals=problem.goals,
        **_contents(ordered, found),
    )
    validate_plan(plan, problem, capacity=chosen.keeps_capacity)
    return plan


class _Arranged(NamedTuple):
    """A tree with the nodes of units and publishers, and its predicted load."""

    tree: Tree
    unit_node: Whole
    homes: Whole
    load: Predicted
    clusters: int


def _arranged(problem: Problem, chosen: Algorithm, options: Options, draw: np.random.Generator, run_parts: RunParts) -> _Arranged:
    """The arrangement of an algorithm, with broker names for few moves, and within ``moves_max``."""
    allocate, build, place = chosen.parts(options, run_parts)
    model = make_model(problem)
    design = build(model, allocate, draw)
    tree, unit_node = design.tree, design.item[: len(problem.units)]
    flows = flows_of(problem, tree, unit_node)
    homes = place(model, design, flows, draw)
    load = predict(problem, tree, unit_node, homes, flows, options.link_delay_s)
    if options.relabel and chosen.keeps_capacity:
        tree = relabelled(problem, tree, unit_node, homes, load, np.unique(model.items.fixed))
        load = predict(problem, tree, unit_node, homes, flows_of(problem, tree, unit_node), options.link_delay_s)
    found = _Arranged(tree, unit_node, homes, load, design.clusters)
    return _within_moves(model, found, options) if chosen.keeps_capacity else found


def _within_moves(model: Model, found: _Arranged, options: Options) -> _Arranged:
    """The arrangement, or a point of its frontier where it exceeds the limit on moves."""
    problem, moves_max = model.problem, model.problem.goals.moves_max
    full = Arrangement(found.tree, found.tree.broker[found.unit_node], found.tree.broker[found.homes])
    if moves_max is None or moves_from_today(problem, full) <= moves_max:
        return found
    few = Frontier(model, full, options.link_delay_s).within(moves_max).arrangement
    node_of = few.node_of(len(problem.pool))
    unit_node, homes = node_of[few.units], node_of[few.publishers]
    return _Arranged(
        few.tree, unit_node, homes, predict(problem, few.tree, unit_node, homes, link_delay_s=options.link_delay_s), 0
    )


def _contents(problem: Problem, found: _Arranged) -> dict[str, Any]:
    """The fields of a plan that follow from its arrangement."""
    tree, load = found.tree, found.load
    ids = [problem.pool.ids[broker] for broker in tree.broker.tolist()]
    clients = dict(sorted(zip(problem.units.ids, (ids[node] for node in found.unit_node.tolist()), strict=True)))
    publishers = dict(sorted(zip(problem.publishers.ids, (ids[node] for node in found.homes.tolist()), strict=True)))
    links = links_of(tree, problem.pool.ids)
    differences = changes(problem, ids, links, clients, publishers)
    moves = moves_of(differences) if problem.today is not None else None
    return {
        "brokers": _in_pool_order(tree, problem),
        "links": links,
        "clients": clients,
        "subscribers": _subscribers(problem, clients),
        "publishers": publishers,
        "load": loads_of(load, ids),
        "totals": totals_of(load, found.clusters, moves, total_cost(problem.pool, tree.broker)),
        "changes": differences,
    }


def _as_compared(problem: Problem, options: Options) -> Problem:
    if options.similarity == "profiles":
        return replace(problem, boxes=None)
    if problem.boxes is None:
        raise PlanningError("similarity: expected advertisements and filters to make boxes of, found profiles alone")
    return problem


def _in_pool_order(tree: Tree, problem: Problem) -> tuple[str, ...]:
    return tuple(problem.pool.ids[i] for i in sorted(tree.broker.tolist()))


def _subscribers(problem: Problem, clients: dict[str, str]) -> dict[str, str]:
    units, owner = problem.units, problem.units.subscription_unit.tolist()
    return dict(sorted((id, clients[units.ids[unit]]) for id, unit in zip(units.subscriptions, owner, strict=True)))
