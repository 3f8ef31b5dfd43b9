"""The network that a plan was made for: its fingerprint, and what differs where a plan is read together with another one."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from overweave.errors import PlanningError
from overweave.overlay.parts import link_ends
from overweave.planning.problem import Pool, Problem

Links = tuple[tuple[str, str], ...]
_NAMES = ("output_bandwidth_bytes_per_s", "matching_delay_base_s", "matching_delay_per_subscription_s")


class PlannedFor(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers with the capacities that a fingerprint counts, and links."""

    #: Bandwidth, and base and slope of the matching delay.
    brokers: dict[str, tuple[float, float, float]]
    links: Links
    #: Brokers on offer that are not in the network yet.
    added: tuple[str, ...] = ()
    #: Whether a table said what brokers can carry, and not the network.
    by_table: bool = False


def planned_for(problem: Problem, added: Iterable[str] = (), *, by_table: bool = False) -> PlannedFor:
    """The network of a problem."""
    links = tuple(sorted(link_ends(*link) for link in problem.today.links)) if problem.today is not None else ()
    return PlannedFor(brokers=capacities(problem.pool), links=links, added=tuple(sorted(added)), by_table=by_table)


def capacities(pool: Pool) -> dict[str, tuple[float, float, float]]:
    """What a fingerprint counts of each broker."""
    columns = (pool.bandwidth_bytes_per_s.tolist(), pool.base_s.tolist(), pool.slope_s.tolist())
    return dict(sorted(zip(pool.ids, zip(*columns, strict=True), strict=True)))


def fingerprint_of(network: PlannedFor, publishers: Iterable[str], clients: Iterable[str]) -> str:
    """The identity of a network: brokers with capacities, links, clients and publishers; not the places of clients."""
    brokers = sorted((id, *values) for id, values in network.brokers.items())
    content = brokers, sorted(network.links), sorted(publishers), sorted(clients)
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


def check_network(
    fingerprint: str,
    planned: PlannedFor | None,
    found: PlannedFor,
    publishers: Sequence[str],
    clients: Sequence[str],
    source: str,
) -> None:
    """Raise an error that names the differences if a plan was made for another network than ``found``.

    What brokers can carry is compared only if both say it, and links only if the plan knew any.
    """
    if planned is None:
        raise PlanningError(f"plan: network: expected to know what it was made for, found a plan from before that; {source}")
    kept = {id: planned.brokers[id] for id in planned.added if id in planned.brokers and id not in found.brokers}
    brokers: Mapping[str, tuple[float, float, float]] = {**found.brokers, **kept}
    if planned.by_table and not found.by_table:
        brokers = {id: planned.brokers.get(id, values) for id, values in brokers.items()}
    same = PlannedFor(brokers=dict(brokers), links=found.links if planned.links else ())
    if fingerprint_of(same, publishers, clients) == fingerprint:
        return
    found_differences = list(differences(planned, same)) or ["clients or publishers are not those that its fingerprint counts"]
    more = f", and {len(found_differences) - 3} more differences" if len(found_differences) > 3 else ""
    raise PlanningError(f"plan: made for another network than {source}: {'; '.join(found_differences[:3])}{more}")


def differences(planned: PlannedFor, found: PlannedFor) -> Iterator[str]:
    """Brokers, capacities and links that differ, one text each."""
    for id in sorted(planned.brokers.keys() - found.brokers.keys()):
        yield f"broker {id!r} is not in it"
    for id in sorted(found.brokers.keys() - planned.brokers.keys()):
        yield f"broker {id!r} is new"
    for id in sorted(planned.brokers.keys() & found.brokers.keys()):
        for name, before, now in zip(_NAMES, planned.brokers[id], found.brokers[id], strict=True):
            if before != now:
                yield f"broker {id!r}: {name} was {before:g} and is {now:g}"
    old, new = set(planned.links), set(found.links)
    for one, other in sorted(old - new):
        yield f"link {one}-{other} is not in it"
    for one, other in sorted(new - old):
        yield f"link {one}-{other} is new"
