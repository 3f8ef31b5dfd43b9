"""The difference between a network and a target: what an operator confirms before anything is changed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from overweave.contract.observation import Observation
from overweave.errors import PlanningError
from overweave.planning.plan import BrokerLoad
from overweave.reweave import states
from overweave.reweave.situation import Move, Situation, pending_moves, stayed
from overweave.reweave.target import Links, Target, utilisation_of

#: The estimated time of a broker to start and join, and of a phase with its observations.
_START_S, _PHASE_S = 2.0, 1.0
#: The time of the migrations in one step of the coordinator, and the most steps that are told apart.
STEP_S, _STEPS_MAX = 4.0, 16
#: The name of the state before all steps.
_NOW = "now"
#: The name of all steps between both networks where loads are only bounded.
_BETWEEN = "while links and clients change (upper bound)"


class Peak(NamedTuple):
    """The highest utilisation of any broker after a number of moves."""

    moves: int
    broker: str
    utilisation: float


class LoadModel(Protocol):
    """Predicts the load of a tree, given as links, with each client at its broker."""

    def load(self, brokers: Sequence[str], links: Links, places: Mapping[str, str]) -> Mapping[str, BrokerLoad]:
        """The load of each broker."""

    def peaks(self, brokers: Sequence[str], links: Links, places: Mapping[str, str], moves: Sequence[Move]) -> list[Peak]:
        """The peak after each move; of very many moves not after all."""


class StepLoad(msgspec.Struct, frozen=True):
    """The highest predicted utilisation after a step."""

    step: str
    broker: str
    utilisation: float


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """All that a change does."""

    change: str
    started: tuple[str, ...]
    #: Brokers that leave the tree, and those that have left it and still answer.
    stopped: tuple[str, ...]
    links_opened: Links
    links_closed: Links
    moves: tuple[Move, ...]
    #: Clients that do not move, with the reasons.
    stayed: dict[str, str]
    steps: tuple[StepLoad, ...]
    #: Whether loads are predicted from profiles, not bounded by the loads of the plan.
    exact: bool
    duration_s: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.started or self.stopped or self.links_opened or self.links_closed or self.moves)


def difference_of(target: Target, observation: Observation, rate_hz: float, model: LoadModel | None = None) -> Difference:
    """The difference; ``model`` predicts loads from profiles, without which the loads of the plan are bounds."""
    state = observation.state
    tree = states.current_tree(state)
    situation = Situation(observation=observation)
    moves = tuple(pending_moves(target, situation))
    old, new = states.links_of(tree), set(target.links)
    started = tuple(sorted(set(target.brokers) - observation.brokers.keys()))
    phases = 1 if states.has_tree_of(state, target) else 5
    steps = _bounds(target, observation) if model is None else _predicted(target, observation, moves, model, rate_hz)
    return Difference(
        change=target.change,
        started=started,
        stopped=tuple(sorted({*tree.brokers, *(set(target.before) & observation.brokers.keys())} - set(target.brokers))),
        links_opened=tuple(sorted(new - old)),
        links_closed=tuple(sorted(old - new)),
        moves=moves,
        stayed=stayed(target, situation),
        steps=steps,
        exact=model is not None,
        duration_s=_START_S * bool(started) + _PHASE_S * phases + len(moves) / rate_hz,
    )


def check_loads(difference: Difference) -> None:
    """Reject a change one of whose steps would overload a broker more than one is now.

    Without profiles the load between both networks is only bounded from above: that is shown, but it is no reason to reject.
    """
    load_now = max((each.utilisation for each in difference.steps if each.step == _NOW), default=0.0)
    for each in difference.steps:
        is_bound = not difference.exact and each.step == _BETWEEN
        if each.utilisation > max(1.0, load_now) and not is_bound:
            kind = "predicted" if difference.exact else "estimated"
            raise PlanningError(
                f"plan: step {each.step!r}: broker {each.broker!r}: expected a utilisation of at most 100%,"
                f" {kind} {each.utilisation:.1%}"
            )


def _predicted(
    target: Target, observation: Observation, moves: Sequence[Move], model: LoadModel, rate_hz: float
) -> tuple[StepLoad, ...]:
    """Predictions for the present network, for the new tree, and for each step of migrations the highest after any of its moves.

    No prefix of the moves is left out: a step may end after any of them.
    """
    state = observation.state
    old = states.current_tree(state)
    places = {each.name: id for id, broker in observation.brokers.items() for each in broker.clients}
    found = [_highest(_NOW, model.load(old.brokers, tuple(sorted(states.links_of(old))), places))]
    tree = states.new_tree(states.prepared(state, target, {}))
    links = tuple(sorted(states.links_of(tree)))
    found.append(_highest("new tree", model.load(tree.brokers, links, places)))
    size = max(1, round(rate_hz * STEP_S), -(-len(moves) // _STEPS_MAX))
    highest: dict[int, Peak] = {}
    for peak in model.peaks(tree.brokers, links, places, moves) if moves else ():
        step = (peak.moves - 1) // size
        highest[step] = max(highest.get(step, peak), peak, key=lambda each: each.utilisation)
    found += [StepLoad(f"{each.moves:,} of {len(moves):,} moves", each.broker, each.utilisation) for each in highest.values()]
    found.append(_highest("end", model.load(target.brokers, target.links, places | {move.client: move.to for move in moves})))
    return tuple(found)


def _bounds(target: Target, observation: Observation) -> tuple[StepLoad, ...]:
    """Estimates from the loads before and after: between both, a broker carries the higher one.

    The host of a leaf also forwards to it what the leaf receives before its clients move.
    """
    before, after = target.load_before, target.load
    between = {id: max(utilisation_of(before.get(id)), utilisation_of(after.get(id))) for id in {*before, *after}}
    prepared = states.prepared(observation.state, target, {})
    gone = set(states.leaving(prepared, target))
    size = _message_bytes(target)
    for one, other in states.new_tree(prepared).links:
        leaf, host = (one, other) if one in gone else (other, one)
        if leaf in gone and leaf in before and host in after and after[host].output_utilisation > 0:
            bandwidth = after[host].output_bytes_per_s / after[host].output_utilisation
            between[host] = max(between[host], after[host].output_utilisation + size * before[leaf].input_hz / bandwidth)
    steps = [(_NOW, {id: utilisation_of(load) for id, load in before.items()}), (_BETWEEN, between)]
    steps.append(("end", {id: utilisation_of(load) for id, load in after.items()}))
    return tuple(_most(step, shares) for step, shares in steps if shares)


def _message_bytes(target: Target) -> float:
    """The estimated size of a publication: whatever arrives leaves at least once, so it is the least output per input."""
    loads = [*target.load_before.values(), *target.load.values()]
    return min(
        (each.output_bytes_per_s / each.input_hz for each in loads if each.input_hz and each.output_bytes_per_s), default=0.0
    )


def _highest(step: str, loads: Mapping[str, BrokerLoad]) -> StepLoad:
    return _most(step, {id: utilisation_of(load) for id, load in loads.items()})


def _most(step: str, shares: Mapping[str, float]) -> StepLoad:
    broker = max(sorted(shares), key=shares.__getitem__)
    return StepLoad(step, broker, shares[broker])
