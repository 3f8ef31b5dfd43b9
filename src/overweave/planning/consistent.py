"""Whether a plan from a file agrees with itself: everybody at one of its brokers, a tree of links, a load for each broker."""

from overweave.errors import PlanningError
from overweave.planning.plan import Plan


def check_consistent(plan: Plan) -> None:
    """Raise a `PlanningError` that names what does not agree."""
    brokers = set(plan.brokers)
    for kind in ("clients", "subscribers", "publishers"):
        for id, broker in getattr(plan, kind).items():
            if broker not in brokers:
                raise PlanningError(f"{kind}: {id!r}: expected one of the plan's brokers, found {broker!r}")
    if set(plan.load) != brokers or plan.totals.brokers != len(brokers):
        raise PlanningError("load: expected one for each of the plan's brokers")
    reached, links = {plan.brokers[0]} if plan.brokers else set(), {frozenset(link) for link in plan.links}
    while more := {id for link in links if link & reached for id in link} - reached:
        reached |= more
    if reached != brokers or len(links) != len(brokers) - 1:
        raise PlanningError("links: expected a tree over the plan's brokers")
