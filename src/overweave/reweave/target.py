"""The target of a plan on an observed network: brokers, tree, and the broker of each client."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import msgspec
import numpy as np

from overweave.contract.observation import BrokerObservation, Observation
from overweave.contract.overlay_state import Phase
from overweave.errors import OverlayError, PlanningError
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import link_ends
from overweave.planning.plan import BrokerLoad, Plan
from overweave.planning.planned_for import PlannedFor, differences
from overweave.planning.relabel import assigned

Links = tuple[tuple[str, str], ...]
#: What the names of changes begin with that restore an earlier overlay.
_UNDO = "undo-"
#: Between the digest of a plan and each renamed broker in the name of a change.
_SEPARATOR, _ARROW = " ", ">"
#: The cost of a forbidden name: above any number of clients.
_NEVER = 1 << 40
_DIFFERENCES_SHOWN = 3


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a change. Equal plans on equal networks are equal targets."""

    #: The name of the change in states of the overlay: the digest of its plan, and the brokers that stand for others of it.
    change: str
    brokers: tuple[str, ...]
    links: Links
    #: The brokers of the clients and publishers that the plan knows.
    clients: dict[str, str]
    #: The brokers that the plan knows and that are members before the change: those that leave are stopped, guests are not.
    before: tuple[str, ...] = ()
    #: The predicted loads before and after; brokers without one count as idle.
    load_before: dict[str, BrokerLoad] = {}
    load: dict[str, BrokerLoad] = {}

    def headroom(self, broker: str) -> float:
        """The share of a planned broker that stays free."""
        return 1.0 - utilisation_of(self.load.get(broker))


def utilisation_of(load: BrokerLoad | None) -> float:
    """The higher of both utilisations.

    >>> utilisation_of(BrokerLoad(1.0, 1.0, 0.25, 0.5)), utilisation_of(None)
    (0.5, 0.0)
    """
    return 0.0 if load is None else max(load.input_utilisation, load.output_utilisation)


def digest_of(content: bytes) -> str:
    """The digest that names a change."""
    return hashlib.sha256(content).hexdigest()[:16]


def target_of(plan: Plan, observation: Observation) -> Target:
    """The target of a plan: the names of its change in progress or complete, else those with the fewest moves."""
    digest = digest_of(plan.encode())
    first, *renamed = observation.state.change.split(_SEPARATOR)
    is_resumed = first == digest and observation.state.version.phase not in (Phase.REVERTED, Phase.TRIMMED)
    if is_resumed or (first == digest and _is_tree_of(plan, _names(renamed), observation)):
        names = _names(renamed)
    else:
        names = _fewest_moves(plan, observation)
    changed = [f"{old}{_ARROW}{new}" for old, new in sorted(names.items()) if old != new]
    return Target(
        change=_SEPARATOR.join([digest, *changed]),
        brokers=tuple(names.get(id, id) for id in plan.brokers),
        links=_renamed(plan.links, names),
        clients={client: names.get(id, id) for client, id in {**plan.publishers, **plan.clients}.items()},
        before=_before(plan, observation),
        load_before={} if plan.before is None else plan.before.load,
        load={names.get(id, id): load for id, load in plan.load.items()},
    )


def undo_name(overlay: Overlay, clients: Mapping[str, str]) -> str:
    """The name of the change that restores an overlay with the places of its clients."""
    content = overlay.ids, [link.ends for link in overlay.links], sorted(clients.items())
    return f"{_UNDO}{digest_of(msgspec.json.encode(content))}"


def is_undo(change: str) -> bool:
    """Whether a change restores an earlier overlay.

    >>> is_undo(undo_name(Overlay(["B1"]), {})), is_undo("")
    (True, False)
    """
    return change.startswith(_UNDO)


def target_of_backup(
    overlay: Overlay, clients: Mapping[str, str], observation: Observation, later: Collection[str] = ()
) -> Target:
    """The target that restores an overlay with the places of its clients; those that came later stay if they can.

    ``later`` are the brokers that the network has had since then.
    """
    tree = observation.state.tree(observation.state.current)
    return Target(
        change=undo_name(overlay, clients),
        brokers=overlay.ids,
        links=tuple(sorted(link.ends for link in overlay.links)),
        clients={client: broker for client, broker in clients.items() if broker in overlay},
        before=tuple(dict.fromkeys([*tree.brokers, *sorted(later)])),
    )


def is_change_of(plan: Plan, observation: Observation) -> bool:
    """Whether the overlay is in a change of this plan, or as it left it."""
    state = observation.state
    return state.version.phase != Phase.REVERTED and state.change.split(_SEPARATOR)[0] == digest_of(plan.encode())


def check_current(plan: Plan, observation: Observation, available: Collection[str]) -> None:
    """Raise an error that names the differences if a plan was made for other brokers or links than those observed.

    Clients and publishers may come and go. ``available`` brokers can be started. Capacities are compared where brokers know them.
    """
    planned = plan.network
    if planned is None:
        raise PlanningError("plan: network: expected the network it was made for, found none: plan again")
    state = observation.state
    found = {id: _capacity(planned, observation.brokers.get(id), id) for id in (member.id for member in state.members)}
    for id in {*available, *planned.added, *observation.brokers} & planned.brokers.keys() - found.keys():
        found[id] = planned.brokers[id]
    links = tuple(sorted(link_ends(*link) for link in state.tree(state.current).links))
    others = list(differences(planned, PlannedFor(brokers=found, links=links if planned.links else ())))
    if others:
        more = f", and {len(others) - _DIFFERENCES_SHOWN} more differences" if len(others) > _DIFFERENCES_SHOWN else ""
        raise PlanningError(f"plan: made for another network: {'; '.join(others[:_DIFFERENCES_SHOWN])}{more}")


def check_tree(plan: Plan) -> None:
    """Raise an error unless the brokers of a plan form a tree, and every client is at one of them: a file may be edited."""
    unplanned = sorted({*plan.clients.values(), *plan.publishers.values()} - {*plan.brokers})
    if unplanned:
        raise PlanningError(f"plan: clients: broker {unplanned[0]!r}: expected one of the plan's brokers")
    try:
        overlay = Overlay(plan.brokers, plan.links)
    except OverlayError as error:
        raise PlanningError(f"plan: links: {error}") from None
    if not plan.brokers or not overlay.is_tree():
        raise PlanningError("plan: links: expected a tree of the plan's brokers")


def destinations(target: Target, observation: Observation) -> dict[tuple[str, str], str]:
    """The final broker of each observed client, by its name and its broker now.

    Clients that the plan does not know stay. If their broker leaves, each goes to the planned broker with most room.
    """
    room = {id: target.headroom(id) for id in target.brokers}
    share = _client_share(target)
    planned = set(target.brokers)
    found: dict[tuple[str, str], str] = {}
    strangers: dict[str, str] = {}
    for client, broker in _clients(observation):
        to = target.clients.get(client, strangers.get(client))
        if to is None:
            to = broker if broker in planned else max(target.brokers, key=room.__getitem__)
            if broker not in planned:
                strangers[client] = to
                room[to] -= share
        found[client, broker] = to
    return found


def _clients(observation: Observation) -> Iterator[tuple[str, str]]:
    """All clients with their brokers, in one order."""
    return iter(sorted((each.name, id) for id, broker in observation.brokers.items() for each in broker.clients))


def _client_share(target: Target) -> float:
    """What a client takes of a broker on average; never nothing, so that unknown clients spread."""
    used = sum(utilisation_of(load) for load in target.load.values())
    return max(used, 1e-6) / max(len(target.clients), 1)


def _capacity(planned: PlannedFor, observed: BrokerObservation | None, id: str) -> tuple[float, float, float]:
    """The capacity of a broker; as planned where unknown."""
    default = planned.brokers.get(id, (0.0, 0.0, 0.0))
    if observed is None or planned.by_table:
        return default
    own = observed.capacity
    found = (own.output_bandwidth_bytes_per_s, own.matching_delay_base_s, own.matching_delay_per_subscription_s)
    bandwidth, base_s, slope_s = (value if value is not None else other for value, other in zip(found, default, strict=True))
    return bandwidth, base_s, slope_s


def _before(plan: Plan, observation: Observation) -> tuple[str, ...]:
    """The members that a plan knows. Once its change has begun, some may have left and still run: then all that it knows."""
    if plan.network is None:
        return ()
    known = (id for id in plan.network.brokers if id not in plan.network.added)
    members = {member.id for member in observation.state.members}
    return tuple(id for id in known if id in members or is_change_of(plan, observation))


def _names(renamed: Collection[str]) -> dict[str, str]:
    return dict(each.split(_ARROW, 1) for each in renamed if _ARROW in each)


def _renamed(links: Links, names: Mapping[str, str]) -> Links:
    return tuple(sorted(link_ends(names.get(one, one), names.get(other, other)) for one, other in links))


def _is_tree_of(plan: Plan, names: Mapping[str, str], observation: Observation) -> bool:
    tree = observation.state.tree(observation.state.current)
    return {link_ends(*link) for link in tree.links} == set(_renamed(plan.links, names))


def _fewest_moves(plan: Plan, observation: Observation) -> dict[str, str]:
    """The broker that stands for each broker of the plan: of those with equal capacity, with the fewest moves."""
    planned = plan.network
    if planned is None:
        return {}
    fixed = {*plan.goals.pins.values()}
    candidates = [id for id in planned.brokers if id in observation.brokers and id not in plan.goals.exclude]
    candidates += [id for id in plan.brokers if id not in candidates]
    column = {id: i for i, id in enumerate(candidates)}
    cost = np.full((len(plan.brokers), len(candidates)), _NEVER, np.int64)
    wanted = {**plan.publishers, **plan.clients}
    together = Counter((wanted[client], broker) for client, broker in _clients(observation) if client in wanted)
    for row, id in enumerate(plan.brokers):
        for other in [id] if id in fixed else candidates:
            if other == id or (other not in fixed and _is_like(planned, observation, id, other)):
                # Of equally good ones, the broker of the plan.
                cost[row, column[other]] = -2 * together[id, other] - (other == id)
    return {id: candidates[at] for id, at in zip(plan.brokers, assigned(cost).tolist(), strict=True)}


def _is_like(planned: PlannedFor, observation: Observation, one: str, other: str) -> bool:
    """Whether two running brokers can carry the same."""
    found = [observation.brokers.get(id) for id in (one, other)]
    if found[0] is None or found[1] is None or found[0].capacity.capacity_hz != found[1].capacity.capacity_hz:
        return False
    return one in planned.brokers and other in planned.brokers and planned.brokers[one] == planned.brokers[other]
