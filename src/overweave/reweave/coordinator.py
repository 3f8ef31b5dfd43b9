"""The coordinator of a change: the next command that follows from a target and the present observation.

It has no memory: all state is in the brokers (docs/decisions/0023). Killed anywhere, it goes on from what it observes. The
invariants, with the checks that keep them:

- A broker uses the new epoch only when all members answered that they have its full state (`lag`, `unsynced`).
- An epoch closes only when all use the new one, and nothing of the old one is unsettled, twice in a row (`unsettled_reason`).
- Clients move only while one epoch is open, publishers after subscribers (`pending_moves`).
- A broker leaves the tree only as a leaf without clients, twice in a row (`occupied`), and stops only after that.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from overweave.contract.overlay_state import OverlayState, Phase
from overweave.reweave import states
from overweave.reweave.situation import (
    Move,
    Situation,
    contact_of,
    down_brokers,
    ids_text,
    lag,
    occupied,
    pending_moves,
    rivals,
    stayed,
    unsettled_reason,
    unsynced,
    version_text,
)
from overweave.reweave.target import Target

# ---- commands


class StartBroker(msgspec.Struct, frozen=True):
    """Start a broker that joins the network at a contact."""

    broker: str
    contact: str


class PublishState(msgspec.Struct, frozen=True):
    """Have a broker adopt a state of the overlay and flood it."""

    state: OverlayState


class MoveClients(msgspec.Struct, frozen=True):
    """Order some migrations."""

    moves: tuple[Move, ...]


class StopBroker(msgspec.Struct, frozen=True):
    """Stop a broker that has left the tree."""

    broker: str


class WriteNetworkFile(msgspec.Struct, frozen=True):
    """Rewrite the network file."""

    state: OverlayState


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done before the network has changed."""

    reason: str


class Done(msgspec.Struct, frozen=True):
    """The network is as the target says, except for clients that stayed."""

    stayed: dict[str, str] = {}


class Failed(msgspec.Struct, frozen=True):
    """The change cannot go on without a decision of an operator."""

    reason: str


Command = StartBroker | PublishState | MoveClients | StopBroker | WriteNetworkFile
Step = Command | Wait | Done | Failed

# ---- steps


def next_step(target: Target, situation: Situation) -> Step:
    """The next step towards the target."""
    state = situation.state
    if others := rivals(situation):
        return _resolve_rivals(target, state, others)
    if reason := _conflict(target, situation):
        return Failed(reason)
    if command := _restart(situation):
        return command
    if state.change == target.change and state.version.phase in states.IN_PROGRESS:
        return _STEPS[state.version.phase](target, situation)
    if _is_complete(target, situation):
        return _finish(target, situation)
    return _begin(target, situation)


def next_abort_step(situation: Situation) -> Step:
    """The next step back to the epoch before the change in progress, whoever began it.

    All brokers that run for nothing are stopped then: a change that was stopped early may have started them.
    """
    state = situation.state
    phase = state.version.phase
    if phase == Phase.PREPARED and rivals(situation):
        return PublishState(states.withdrawn(state))
    if phase in (Phase.PREPARED, Phase.USED):
        return PublishState(states.reverting(state))
    if command := _restart(situation):
        return command
    if phase == Phase.REVERTING:
        reason = lag(situation, states.current_tree(state).brokers) or unsettled_reason(situation, states.new_tree(state).epoch)
        return Wait(reason) if reason else PublishState(states.reverted(state))
    if reason := lag(situation, states.current_tree(state).brokers):  # a silent one may be ahead
        return Wait(reason)
    if phase == Phase.CLOSED and state.change:
        return PublishState(states.trimmed(state, ()))
    return _clean_up(situation.running, situation) or Done()


def _resolve_rivals(target: Target, state: OverlayState, others: Sequence[str]) -> Step:
    """Of changes that began at once, the one with the highest name takes all of them back, and begins again.

    Each has a new tree at some brokers, so that none of them can be used. A broker cannot adopt the tree of another one instead:
    both are the same epoch.
    """
    changes = sorted([state.change, *others])
    if state.version.phase == Phase.PREPARED and target.change == changes[-1]:
        return PublishState(states.withdrawn(state))
    return Failed(
        f"changes {ids_text(changes)} began at the same time: apply the plan of change {changes[-1]!r} again,"
        " or run 'overweave apply --abort'"
    )


def _conflict(target: Target, situation: Situation) -> str | None:
    """Another change in progress."""
    state = situation.state
    if state.version.phase == Phase.REVERTING:
        return f"change {state.change!r} is being aborted: finish that first with 'overweave apply --abort'"
    if state.change not in ("", target.change) and state.version.phase in states.IN_PROGRESS:
        return f"change {state.change!r} is in progress ({version_text(state.version)}): apply its plan again, or abort it"
    return None


def _restart(situation: Situation) -> StartBroker | None:
    """Start a broker that the network waits for and that does not run. Its journal or its contact has its part in the change."""
    for id in down_brokers(situation):
        if contact := contact_of(id, situation):
            return StartBroker(id, contact)
    return None


def _is_complete(target: Target, situation: Situation) -> bool:
    return states.has_tree_of(situation.state, target) and not pending_moves(target, situation)


def _begin(target: Target, situation: Situation) -> Step:
    """Start the brokers that are missing, then prepare."""
    observation, state = situation.observation, situation.state
    if reason := lag(situation, states.current_tree(state).brokers):
        return Wait(reason)
    absent = [id for id in target.brokers if id not in observation.brokers]
    staying = [id for id in states.current_tree(state).brokers if id in target.brokers]
    contact = (staying or list(states.current_tree(state).brokers))[0]
    for id in absent:
        if id not in situation.running:
            return StartBroker(id, contact)
    if absent:
        return Wait(f"not joined yet: {ids_text(absent)}; a broker that has left the overlay must be restarted to join again")
    urls = {id: each.url for id, each in observation.brokers.items()}
    return PublishState(states.prepared(state, target, urls))


def _on_prepared(_: Target, situation: Situation) -> Step:
    state = situation.state
    if reason := lag(situation, [member.id for member in state.members]):
        return Wait(reason)
    if behind := unsynced(situation.observation, states.new_tree(state).epoch):
        return Wait(f"{ids_text(behind)}: still synchronising the new epoch")
    return PublishState(states.used(state))


def _on_used(_: Target, situation: Situation) -> Step:
    state = situation.state
    old = min(state.epochs)
    reason = lag(situation, [member.id for member in state.members]) or unsettled_reason(situation, old)
    return Wait(reason) if reason else PublishState(states.closed(state))


def _on_closed(target: Target, situation: Situation) -> Step:
    """Move clients, then trim the leaves that are empty."""
    state = situation.state
    if reason := lag(situation, [member.id for member in state.members]):
        return Wait(reason)
    moves = pending_moves(target, situation)
    ready = [move for move in moves if move.client not in situation.resting]
    if ready:
        return MoveClients(_batch(ready, situation))
    if moves:
        return Wait(f"{len(moves):,} migrations will be retried shortly")
    gone = states.leaving(state, target)
    if reason := occupied(situation, gone):
        return Wait(reason)
    return PublishState(states.trimmed(state, gone))


def next_finishing_step(target: Target, situation: Situation) -> Step:
    """The next step to the end of a change that was stopped after its last phase; clients that came back stay."""
    state = situation.state
    if state.change != target.change or state.version.phase is not Phase.TRIMMED:
        return Failed(f"another change has begun: {state.change!r}")
    return _finish(target, situation)


def _finish(target: Target, situation: Situation) -> Step:
    """The tree is the target's: write the network file, then stop brokers that are not in it any more."""
    state = situation.state
    if reason := lag(situation, [member.id for member in state.members]):
        return Wait(reason)
    return _clean_up({*target.before, *target.brokers}, situation) or Done(stayed(target, situation))


def _clean_up(brokers: Collection[str], situation: Situation) -> Command | None:
    """Rewrite the network file, then stop those of some brokers that run without being members, and have no clients."""
    if not situation.file_is_current:
        return WriteNetworkFile(situation.state)
    observation, members = situation.observation, {member.id for member in situation.state.members}
    for id in sorted(set(brokers) - members):
        broker = observation.brokers.get(id)
        if id in situation.running and (broker is None or not broker.clients):
            return StopBroker(id)
    return None


def _batch(moves: list[Move], situation: Situation) -> tuple[Move, ...]:
    """The first moves; publishers and subscribers never in one batch."""
    publishing = {
        each.name for broker in situation.observation.brokers.values() for each in broker.clients if each.advertisements
    }
    first = moves[0].client in publishing
    return tuple(move for move in moves if (move.client in publishing) == first)[: situation.batch]


_STEPS: dict[Phase, Callable[[Target, Situation], Step]] = {
    Phase.PREPARED: _on_prepared, Phase.USED: _on_used, Phase.CLOSED: _on_closed,
}  # fmt: skip
