"""A plan with the tables that it was made of as a network for the simulator."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.plan_run import PlannedNetwork, PlannedPublisher
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem


def planned_network(
    plan: Plan, problem: Problem, overlay: Overlay, wanted: DataFrame, sent: DataFrame, advertisements: Mapping[str, str]
) -> PlannedNetwork:
    """A plan with its subscriptions (``wanted``) and publications (``sent``), which have to be few enough for one machine."""
    pool, publishers = problem.pool, problem.publishers
    costs = {
        id: Costs(0.001, *(float(column[i]) for column in (pool.bandwidth_bytes_per_s, pool.base_s, pool.slope_s)))
        for i, id in enumerate(pool.ids)
        if id in overlay
    }
    published: dict[str, list[Publication]] = {id: [] for id in publishers.ids}
    for row in sent.orderBy("publisher", "sequence").collect():
        published[row.publisher].append(parse_publication(row.publication))
    owner = dict(zip(problem.units.subscriptions, problem.units.subscription_unit.tolist(), strict=True))
    return PlannedNetwork(
        overlay=overlay,
        costs=costs,
        places={**plan.publishers, **plan.clients},
        subscriptions=[
            (row.subscription, problem.units.ids[owner[row.subscription]], parse_filter(row.filter))
            for row in wanted.orderBy("subscription").collect()
            if row.subscription in owner
        ],
        publishers=[
            PlannedPublisher(
                id=id,
                rate_hz=float(publishers.rate_hz[i]),
                bytes=float(publishers.bytes_per_s[i] / publishers.rate_hz[i]) if publishers.rate_hz[i] > 0 else 0.0,
                advertisements=(parse_filter(advertisements[id]),) if id in advertisements else advertisements_of(published[id]),
                publications=published[id],
            )
            for i, id in enumerate(publishers.ids)
        ],
    )


def advertisements_of(publications: Sequence[Publication]) -> tuple[Filter, ...]:
    """Advertisements that cover publications, one for each set of attributes; an attribute with one text is fixed to it.

    >>> [str(each) for each in advertisements_of([Publication({"x": 1, "s": "a"}), Publication({"x": 2, "s": "a"})])]
    ["[s,eq,'a'],[x,isPresent,0]"]
    """
    kinds: dict[tuple[tuple[str, bool], ...], dict[str, set[object]]] = {}
    for each in publications:
        attributes = tuple(sorted((name, isinstance(value, str)) for name, value in each.items()))
        values = kinds.setdefault(attributes, {name: set() for name, _ in attributes})
        for name, value in each.items():
            values[name].add(value)
    return tuple(
        Filter(tuple(_predicate(name, is_text, values[name]) for name, is_text in attributes))
        for attributes, values in sorted(kinds.items())
    )


def _predicate(name: str, is_text: bool, values: set[object]) -> Predicate:
    if is_text and len(values) == 1:
        return Predicate(name, Operator.EQ, str(next(iter(values))))
    return Predicate(name, Operator.PRESENT, "" if is_text else 0)
