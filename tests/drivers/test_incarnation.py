"""Incarnations go up, whatever clocks say."""

import time

import pytest

from overweave.broker.control_plane import INCARNATIONS_MAX
from overweave.broker.core import BrokerCore
from overweave.contract.effects import Reject, Restart, SendFrame
from overweave.contract.frames import NO_EPOCH, ControlFrame, Hello, SessionEpoch
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected
from overweave.drivers.tcp.incarnation import next_incarnation
from overweave.overlay.fixed_shapes import chain
from overweave.routing import PROTOCOLS
from overweave.routing.messages import LinkState


def test_incarnations_go_up_though_the_clock_goes_back(tmp_path, monkeypatch):
    state = tmp_path / "new" / "state"
    first = next_incarnation(state, "B/1")
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000)
    assert [next_incarnation(state, "B/1") for _ in range(2)] == [first + 1, first + 2]
    assert next_incarnation(state, "B/1", first + 100) == first + 100
    assert next_incarnation(state, "B/1") == first + 101
    assert next_incarnation(state, "B2") == 5
    assert (next_incarnation(None, "B/1"), next_incarnation(None, "B/1", 9)) == (5, 9)


@pytest.mark.parametrize("content", ["", "x", "99999999999999999999999", "-5", "\xff"])
def test_a_number_that_makes_no_sense_is_done_without(tmp_path, content):
    (tmp_path / "B1.incarnation").write_bytes(content.encode("latin-1"))
    now_ms = time.time_ns() // 1_000_000
    assert now_ms <= next_incarnation(tmp_path, "B1") < now_ms + 60_000
    assert next_incarnation(tmp_path, "B1") < INCARNATIONS_MAX


def test_a_number_that_cannot_be_kept_is_good_all_the_same(tmp_path):
    (tmp_path / "state").write_text("no directory")
    assert next_incarnation(tmp_path / "state", "B1") > 0


def test_only_neighbours_that_make_sense_have_a_broker_restart():
    overlay = chain(2)
    core = BrokerCore("B1", PROTOCOLS["filter"].make("B1", overlay), ["B2"], incarnation=5)
    for peer in ("B2", "c"):
        core.handle(PeerConnected(peer, client=peer == "c"), 0.0)

    def restarts(peer, known):
        effects = core.handle(FrameArrived(peer, Hello(SessionEpoch(7, 0), known, 0, 0, False)), 0.0)
        return [effect.incarnation for effect in effects if isinstance(effect, Restart)]

    assert restarts("B2", NO_EPOCH) == restarts("B2", core._sessions["B2"].epoch) == []
    assert restarts("B2", SessionEpoch((1 << 64) - 1, 0)) == restarts("B2", SessionEpoch(INCARNATIONS_MAX - 1, 0)) == []
    assert restarts("B2", SessionEpoch(6, 0)) == [6]
    assert restarts("c", SessionEpoch(6, 0)) == []


def hellos(effects):
    return [effect.frame for effect in effects if isinstance(effect, SendFrame) and isinstance(effect.frame, Hello)]


def test_a_neighbour_that_has_lost_its_state_under_the_same_epoch_is_told_so():
    """It has not sent anything yet, so it cannot see it by itself."""
    core = BrokerCore("B1", PROTOCOLS["filter"].make("B1", chain(2)), ["B2"], incarnation=5)
    (ours,) = hellos(core.handle(PeerConnected("B2"), 0.0))
    first, known = (Hello(SessionEpoch(7, 0), each, 0, 0, False) for each in (NO_EPOCH, ours.epoch))
    for frame in (first, known, first):  # the last one is late
        core.handle(FrameArrived("B2", frame), 0.0)
    core.handle(PeerDisconnected("B2"), 0.0)
    core.handle(PeerConnected("B2"), 0.0)
    core.handle(FrameArrived("B2", known), 0.0)  # the connection was lost, no more
    assert core.established_neighbours() == ["B2"]

    core.handle(PeerDisconnected("B2"), 0.0)
    core.handle(PeerConnected("B2"), 0.0)
    (told,) = hellos(core.handle(FrameArrived("B2", first), 0.0))
    assert core.established_neighbours() == []
    core.handle(FrameArrived("B2", known), 0.0)  # it has our first hello of this connection by now
    assert core.established_neighbours() == []
    core.validate()

    for incarnation in (7, 8):
        other = BrokerCore("B2", PROTOCOLS["filter"].make("B2", chain(2)), ["B1"], incarnation=incarnation)
        other.handle(PeerConnected("B1"), 0.0)
        answer = other.handle(FrameArrived("B1", told), 0.0)
        assert [effect.incarnation for effect in answer if isinstance(effect, Restart)] == [7] * (incarnation == 7)
        core.handle(FrameArrived("B2", hellos(answer)[-1]), 0.0)
    core.handle(FrameArrived("B2", Hello(SessionEpoch(8, 0), ours.epoch, 0, 0, True)), 0.0)
    assert core.established_neighbours() == ["B2"]


def test_what_a_neighbour_has_settled_of_an_earlier_life_settles_nothing_of_this_one():
    core = BrokerCore("B1", PROTOCOLS["filter"].make("B1", chain(2)), ["B2"], incarnation=5)
    (ours,) = hellos(core.handle(PeerConnected("B2"), 0.0))
    effects = core.handle(FrameArrived("B2", Hello(SessionEpoch(7, 0), ours.epoch, 1, 2, False)), 0.0)
    assert effects == [Restart(5)]
    assert core.established_neighbours() == []


def greeted(incarnation):
    """A broker with a neighbour that has said hello with an incarnation, and the effects of that."""
    core = BrokerCore("B1", PROTOCOLS["filter"].make("B1", chain(2)), ["B2"], incarnation=5)
    core.handle(PeerConnected("B2"), 0.0)
    return core, core.handle(FrameArrived("B2", Hello(SessionEpoch(incarnation, 0), NO_EPOCH, 0, 0, False)), 0.0)


@pytest.mark.parametrize("incarnation", [INCARNATIONS_MAX, 1_800_000_000_000_000, (1 << 64) - 1])
def test_an_implausible_incarnation_of_a_neighbour_is_rejected_and_not_stored(incarnation):
    core, effects = greeted(incarnation)
    assert [(effect.peer, effect.code, effect.forget) for effect in effects if isinstance(effect, Reject)] == [
        ("B2", "bad-frame", False)
    ]
    assert core._sessions["B2"].peer_epoch == NO_EPOCH


@pytest.mark.parametrize("incarnation", [INCARNATIONS_MAX - 2, INCARNATIONS_MAX - 1])
def test_a_neighbour_can_always_follow_an_imposter(incarnation):
    """It restarts above the imposter's incarnation, or begins again if there is none above."""
    core, _ = greeted(incarnation)
    real = BrokerCore("B2", PROTOCOLS["filter"].make("B2", chain(2)), ["B1"], incarnation=7)
    core.handle(PeerConnected("B2"), 0.0)
    frames = [("B1", effect.frame) for effect in real.handle(PeerConnected("B1"), 0.0) if isinstance(effect, SendFrame)]
    restarted = False
    for _ in range(20):
        if not frames:
            break
        to, frame = frames.pop(0)
        receiver, sender = (core, "B2") if to == "B1" else (real, "B1")
        for effect in receiver.handle(FrameArrived(sender, frame), 0.0):
            if isinstance(effect, Restart):
                restarted, frames = True, []
                above = effect.incarnation + 1
                real = BrokerCore("B2", PROTOCOLS["filter"].make("B2", chain(2), above), ["B1"], incarnation=above)
                core.handle(PeerConnected("B2"), 0.0)
                frames = [("B1", each.frame) for each in real.handle(PeerConnected("B1"), 0.0) if isinstance(each, SendFrame)]
                break
            if isinstance(effect, SendFrame):
                frames.append((sender, effect.frame))
        if not frames and not core.established_neighbours():
            frames = [("B2", core._sessions["B2"].inbound.hello(0))]  # as on connecting
    assert core.established_neighbours() == ["B2"]
    assert real.established_neighbours() == ["B1"]
    assert restarted == (incarnation + 1 < INCARNATIONS_MAX)


def test_an_implausible_link_state_does_not_replace_that_of_the_broker_itself():
    core = BrokerCore("B1", PROTOCOLS["destination"].make("B1", chain(3)), ["B2"], incarnation=5)
    core.handle(PeerConnected("B2"), 0.0)
    epoch = core._sessions["B2"].epoch
    core.handle(FrameArrived("B2", Hello(SessionEpoch(7, 0), epoch, 0, 0, True)), 0.0)
    for sequence, incarnation in enumerate((INCARNATIONS_MAX, 9)):
        state = LinkState("B3", 2, incarnation, 1, ("B2",))
        core.handle(FrameArrived("B2", ControlFrame(SessionEpoch(7, 0), epoch, sequence, 0, state)), 0.0)
    assert [state.incarnation for state in core.routing.snapshot_for("B2") if state.id == "B3"] == [9]
