"""How a plan is made: canonical order, allocation and overlay, placement of publishers, names of brokers, checks."""

from dataclasses import replace

import msgspec
import numpy as np

from overweave.errors import PlanningError
from overweave.planning.algorithms import algorithm
from overweave.planning.allocate.cram.parts import RunParts, run_here
from overweave.planning.broker_cost import total_cost
from overweave.planning.canonical import canonical
from overweave.planning.evidence import Evidence, evidence_of
from overweave.planning.flows import flows_of
from overweave.planning.load import predict
from overweave.planning.model import make_model
from overweave.planning.moves.arrangement import Arrangement, moves_from_today
from overweave.planning.moves.frontier import Frontier
from overweave.planning.options import Options
from overweave.planning.plan import BrokerLoad, Plan, changes, fingerprint, links_of, moves_of, totals_of, validate_plan
from overweave.planning.problem import Problem
from overweave.planning.relabel import relabelled
from overweave.planning.tree import Tree


def make_plan(
    problem: Problem,
    algorithm_name: str = "cram-iou",
    options: Options | None = None,
    seed: int = 0,
    evidence: Evidence | None = None,
    run_parts: RunParts = run_here,
) -> Plan:
    """The plan of a problem: the same input and seed make the same bytes.

    Raises `DoesNotFit` if the pool is too small, `GoalNotMet` for a goal that the algorithm's plan misses. Where that moves more
    than ``moves_max``, the plan with the fewest brokers that is found for so many moves is taken instead. Baselines
    (``Algorithm.keeps_capacity`` is false) may overload brokers; their plans say so in ``totals``. ``run_parts`` clusters parts
    of large problems, here or on Spark; the plan is the same.
    """
    options = options or Options()
    chosen = algorithm(algorithm_name)
    ordered = canonical(_as_compared(problem, options))
    ordered.validate()
    allocate, build, place = chosen.parts(options, run_parts)
    draw = np.random.default_rng(seed)
    model = make_model(ordered)
    design = build(model, allocate, draw)
    unit_node = design.item[: len(ordered.units)]
    flows = flows_of(ordered, design.tree, unit_node)
    homes = place(model, design, flows, draw)
    tree, load = design.tree, predict(ordered, design.tree, unit_node, homes, flows, options.link_delay_s)
    if options.relabel and chosen.keeps_capacity:
        tree = relabelled(ordered, tree, unit_node, homes, load, np.unique(model.items.fixed))
        load = predict(ordered, tree, unit_node, homes, flows_of(ordered, tree, unit_node), options.link_delay_s)
    clusters, moves_max = design.clusters, ordered.goals.moves_max
    if moves_max is not None and chosen.keeps_capacity:
        full = Arrangement(tree, tree.broker[unit_node], tree.broker[homes])
        if moves_from_today(ordered, full) > moves_max:
            few = Frontier(model, full, options.link_delay_s).within(moves_max).arrangement
            node_of = few.node_of(len(ordered.pool))
            tree, unit_node, homes, clusters = few.tree, node_of[few.units], node_of[few.publishers], 0
            load = predict(ordered, tree, unit_node, homes, link_delay_s=options.link_delay_s)
    ids = [ordered.pool.ids[broker] for broker in tree.broker.tolist()]
    clients = dict(sorted(zip(ordered.units.ids, (ids[node] for node in unit_node.tolist()), strict=True)))
    publishers = dict(sorted(zip(ordered.publishers.ids, (ids[node] for node in homes.tolist()), strict=True)))
    links = links_of(tree, ordered.pool.ids)
    found = changes(ordered, ids, links, clients, publishers)
    plan = Plan(
        algorithm=algorithm_name,
        parameters=msgspec.to_builtins(options),
        seed=seed,
        fingerprint=fingerprint(problem),
        brokers=_in_pool_order(tree, ordered),
        links=links,
        clients=clients,
        subscribers=_subscribers(ordered, clients),
        publishers=publishers,
        load={
            id: BrokerLoad(*(float(getattr(load, field)[node]) for field in BrokerLoad.__struct_fields__))
            for node, id in enumerate(ids)
        },
        totals=totals_of(
            load,
            clusters,
            moves_of(found) if ordered.today is not None else None,
            total_cost(ordered.pool, tree.broker),
        ),
        changes=found,
        evidence=evidence or evidence_of(problem),
        goals=problem.goals,
    )
    validate_plan(plan, problem, capacity=chosen.keeps_capacity)
    return plan


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
