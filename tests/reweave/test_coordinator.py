"""The coordinator against a network of plain Python, and against observations at random."""

import random

import msgspec
import pytest
from fake_network import FakeNetwork, answer, stable
from hypothesis import given
from hypothesis import strategies as st

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import OverlayVersion, Phase
from overweave.overlay.parts import link_ends
from overweave.reweave import coordinator, situation, states
from overweave.reweave.coordinator import (
    Done,
    Failed,
    MoveClients,
    PublishState,
    StartBroker,
    StopBroker,
    Wait,
    next_abort_step,
    next_step,
)
from overweave.reweave.situation import Situation
from overweave.reweave.target import Target


def random_tree(draw, brokers):
    brokers = draw.sample(brokers, len(brokers))
    return tuple(link_ends(id, draw.choice(brokers[:at])) for at, id in enumerate(brokers) if at)


def random_change(draw):
    """A network with clients, and a target that keeps at least one of its brokers."""
    old = [f"B{i}" for i in range(1, draw.randint(2, 7))]
    new = draw.sample(old, draw.randint(1, len(old))) + [f"N{i}" for i in range(draw.randint(0, 3))]
    names = [f"c{i}" for i in range(draw.randint(0, 12))]
    clients = {name: draw.choice(old) for name in names}
    target = Target(
        change="X", brokers=tuple(new), links=random_tree(draw, new), before=tuple(old),
        clients={name: draw.choice(new) for name in names if draw.random() < 0.8},
    )  # fmt: skip
    publishers = {name for name in names if draw.random() < 0.4}
    return FakeNetwork(draw, stable(old, random_tree(draw, old)), clients, publishers), target


def run(network, target, steps=600, step=next_step, kills=0.1):
    """The last step of a coordinator that is killed now and then, in a network where brokers crash."""
    draw = network.random
    for number in range(steps):
        is_troubled = number < steps / 3
        if is_troubled and draw.random() < 0.1:
            network.crash()
        elif (network.down and draw.random() < 0.4) or not is_troubled:
            network.restore()
        network.away = {name for name in network.away if is_troubled and draw.random() < 0.7}
        if is_troubled and network.clients and draw.random() < 0.2:
            network.away.add(draw.choice(sorted(network.clients)))
        network.tick()
        if draw.random() < kills:
            network.previous = None
        if len(network.down) == len(network.states):
            continue
        found = step(target, network.observe())
        if isinstance(found, Done | Failed):
            return found
        if not isinstance(found, Wait):
            network.execute(found)
        if network.violations:
            break
    return None


@pytest.mark.parametrize("seed", range(60))
def test_a_change_completes_in_any_network_and_breaks_no_invariant(seed):
    network, target = random_change(random.Random(seed))
    done = run(network, target)
    assert isinstance(done, Done)
    assert network.violations == []
    state = network.flooded
    assert states.has_tree_of(state, target)
    assert {network.clients[name] for name in network.clients} <= set(target.brokers)
    elsewhere = {name for name in target.clients if network.clients[name] != target.clients[name]}
    assert elsewhere == done.stayed.keys()
    assert network.running == set(target.brokers)
    assert network.file_is_current
    # Phases come one after the other, without a gap.
    numbers = [phase for epoch, phase in network.phases if epoch == 1]
    assert numbers in ([], [1, 2, 3, 4], [3, 4])


@pytest.mark.parametrize("seed", range(10))
def test_a_second_apply_does_nothing(seed):
    network, target = random_change(random.Random(seed))
    run(network, target)
    network.failures = {}
    if not isinstance(next_step(target, network.observe()), MoveClients | PublishState):
        before = network.flooded
        assert isinstance(run(network, target, steps=30), Done)
        assert network.flooded == before


@pytest.mark.parametrize("seed", range(40))
def test_an_abort_leads_back_from_every_phase(seed):
    draw = random.Random(seed)
    network, target = random_change(draw)
    before = network.flooded
    run(network, target, steps=draw.randint(1, 25))
    phase = network.flooded.version.phase
    assert isinstance(run(network, target, step=lambda _, found: next_abort_step(found)), Done)
    assert network.violations == []
    assert network.flooded.is_stable
    assert network.file_is_current
    assert network.running == {member.id for member in network.flooded.members}
    if phase in (Phase.PREPARED, Phase.USED):
        assert states.current_tree(network.flooded) == states.current_tree(before)


@pytest.mark.parametrize("is_aborted", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_brokers_that_no_longer_run_are_started_again_in_every_phase(seed, is_aborted):
    """The machine reboots, and the network file is still that of before."""
    draw = random.Random(seed)
    network, target = random_change(draw)
    run(network, target, steps=draw.randint(1, 25))
    network.reboot(target.before)
    step = (lambda _, found: next_abort_step(found)) if is_aborted else next_step
    found = run(network, target, step=step)
    assert isinstance(found, Done)
    assert network.violations == []
    assert network.running == {member.id for member in network.flooded.members}


def stopped_broker(previous_has_it=False, running=("B1", "B2"), silent=(), guest_at="B2"):
    """The first step of a change that is prepared, whose new broker does not answer."""
    target = Target(change="X", brokers=("B1", "B9"), links=(("B1", "B9"),), before=("B1", "B2"), clients={})
    state = states.prepared(stable(["B1", "B2"], [("B1", "B2")]), target, {})
    links = {"B1": {0: ("B2",), 1: ("B2", "B9")}, "B2": {0: ("B1",), 1: ("B1",)}}
    if guest_at:
        links[guest_at][0] += ("B9",)
    brokers = {id: answer(id, state, neighbours=links[id]) for id in links if id not in silent}
    now = Observation(state, brokers, ("B9", *silent))
    before = Observation(state, {**brokers, "B9": answer("B9", state)}) if previous_has_it else now
    return next_step(target, Situation(observation=now, previous=before, running=frozenset(running)))


def test_a_broker_that_stopped_as_a_guest_joins_again_at_the_same_contact():
    assert stopped_broker(guest_at="B1") == StartBroker("B9", "B1")
    assert stopped_broker(guest_at="B2") == StartBroker("B9", "B2")
    assert stopped_broker(guest_at=None) == StartBroker("B9", "B1")
    # Of two, the contact is first; while it does not answer, another one would close a cycle.
    assert stopped_broker(running=["B1"], silent=["B2"]) == StartBroker("B2", "B1")
    assert stopped_broker(silent=["B2"]) == Wait("no answer from B2, B9")


def test_a_broker_that_runs_or_was_there_a_moment_ago_is_not_started():
    assert stopped_broker(running=["B1", "B2", "B9"]) == Wait("no answer from B9")
    assert stopped_broker(previous_has_it=True) == Wait("no answer from B9")


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_guest_that_stopped_is_started_once_all_brokers_have_the_same_state(is_aborted):
    """Before, a neighbour may still wait for a broker that has left."""
    target = Target(change="X", brokers=("B1", "B2"), links=(("B1", "B2"),), clients={})
    state = stable(["B1", "B2"], [("B1", "B2")], epoch=1, change="X")
    earlier = msgspec.structs.replace(state, version=OverlayVersion(1, Phase.CLOSED))
    for other, expected in ((earlier, Wait), (state, StartBroker)):
        now = Observation(state, {"B1": answer("B1", state), "B2": answer("B2", other)}, ("G",))
        found = Situation(observation=now, previous=now, running=frozenset({"B1", "B2"}))
        assert isinstance(next_abort_step(found) if is_aborted else next_step(target, found), expected)


@pytest.mark.parametrize("disabled", ["unsettled_reason", "unsynced", "occupied"])
def test_the_checks_are_needed(disabled, monkeypatch):
    """Without any one of them the same networks break an invariant."""
    monkeypatch.setattr(coordinator, disabled, lambda *_: None)
    found = []
    for seed in range(40):
        network, target = random_change(random.Random(seed))
        run(network, target)
        found += network.violations
    assert found


def test_another_change_in_progress_is_rejected():
    network, target = random_change(random.Random(3))
    state = states.prepared(network.flooded, target, {})
    other = msgspec.structs.replace(target, change="Y")
    observation = Observation(state, {member.id: answer(member.id, state) for member in state.members})
    found = next_step(other, Situation(observation=observation))
    assert isinstance(found, Failed)
    assert "'X' is in progress (epoch 1, phase prepared)" in found.reason


@pytest.mark.parametrize("seen_at", ["X", "Y"])
def test_of_two_changes_that_began_at_once_one_takes_both_back(seen_at):
    network, target = random_change(random.Random(3))
    first = states.prepared(network.flooded, target, {})
    by_name = {name: msgspec.structs.replace(first, change=name) for name in ("X", "Y")}
    brokers = {member.id: answer(member.id, by_name["XY"[n % 2]]) for n, member in enumerate(first.members)}
    now = Situation(observation=Observation(by_name[seen_at], brokers))
    back = PublishState(states.withdrawn(by_name["X"]))
    assert next_step(msgspec.structs.replace(target, change="Y"), now) == back
    assert next_abort_step(now) == back
    for other in ("X", "Z"):
        found = next_step(msgspec.structs.replace(target, change=other), now)
        assert isinstance(found, Failed)
        assert "X, Y began at the same time: apply the plan of change 'Y' again, or run 'overweave apply --abort'" in found.reason


@pytest.mark.parametrize("restarted", ["B1", "B2"])
def test_a_broker_that_restarts_with_the_new_network_file_is_no_rival(restarted):
    target = Target(change="X", brokers=("B1", "B2"), links=(("B1", "B2"),), clients={})
    state = stable(["B1", "B2"], [("B1", "B2")], epoch=1, change="X")
    plain = msgspec.structs.replace(state, change="")
    brokers = {id: answer(id, plain if id == restarted else state) for id in ("B1", "B2")}
    observation = Observation(plain if restarted == "B1" else state, brokers)
    assert next_step(target, Situation(observation=observation)) == Done({})


def test_the_contact_of_a_guest_does_not_leave():
    target = Target(change="X", brokers=("B1",), links=(), before=("B1", "B2"), clients={})
    state = states.closed(states.used(states.prepared(stable(["B1", "B2"], [("B1", "B2")]), target, {})))
    state = msgspec.structs.replace(state, change="X")
    brokers = {
        "B1": answer("B1", state), "B2": answer("B2", state, neighbours={state.current: ("B1", "G")}), "G": answer("G", state),
    }  # fmt: skip
    observation = Observation(state, brokers)
    found = next_step(target, Situation(observation=observation, previous=observation))
    assert found == Wait("broker B2 is the contact of G")


# ---- observations at random


@st.composite
def situations(draw):
    """Any observation at all of a change in any phase, consistent or not."""
    old, new = ["B1", "B2", "B3"], ["B1", "B3", "B4"]
    target = Target(change="X", brokers=("B1", "B3", "B4"), links=(("B1", "B3"), ("B3", "B4")), before=tuple(old), clients={})
    first = stable(old, [("B1", "B2"), ("B2", "B3")])
    line = [first, states.prepared(first, target, {})]
    line.append(states.used(line[-1]))
    line.append(states.closed(line[-1]))
    line.append(states.trimmed(line[-1], ["B2"]))
    state = draw(st.sampled_from(line))

    def observation():
        brokers = {}
        for id in draw(st.sets(st.sampled_from([*old, *new]))):
            own = draw(st.sampled_from(line))
            epochs = draw(st.sets(st.sampled_from([0, 1])))
            unsettled = {epoch: draw(st.integers(0, 1)) for epoch in own.epochs}
            clients = [situation.ObservedClient("c", True, 1, 0)] if draw(st.integers(0, 3)) == 0 else []
            brokers[id] = answer(id, own, clients, epochs, unsettled)
        return Observation(state, brokers, tuple(draw(st.sets(st.sampled_from(new), max_size=1))))

    running = frozenset(draw(st.sets(st.sampled_from([*old, *new]))))
    return target, Situation(observation=observation(), previous=draw(st.sampled_from([None, observation()])), running=running)


@given(situations())
def test_no_phase_is_skipped_and_none_begins_early(found):
    target, now = found
    step = next_step(target, now)
    state, observation = now.state, now.observation
    if isinstance(step, StopBroker):
        assert step.broker not in {member.id for member in state.members}
    if isinstance(step, MoveClients):
        assert state.is_stable
    if not isinstance(step, PublishState):
        return
    before, after = state.version, step.state.version
    answers = observation.brokers
    assert not observation.missing
    assert all(each.overlay.version == before for each in answers.values())
    assert {member.id for member in state.members} <= answers.keys()
    if before.epoch == after.epoch:
        assert after.phase == before.phase + 1
    else:
        assert after == OverlayVersion(before.epoch + 1, Phase.PREPARED)
        assert state.is_stable
    if after.phase == Phase.USED:
        assert all(1 in each.overlay.synced for each in answers.values())
    if after.phase == Phase.CLOSED:
        for each in (observation, now.previous):
            assert all(
                broker.overlay.version == before and not broker.overlay.unsettled.get(0) for broker in each.brokers.values()
            )
            assert answers.keys() <= each.brokers.keys()
    if after.phase == Phase.TRIMMED:
        assert not answers["B2"].clients
        assert not now.previous.brokers["B2"].clients
