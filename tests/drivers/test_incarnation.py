"""Incarnations go up, whatever clocks say."""

import time

import pytest

from overweave.broker.control_plane import INCARNATIONS_MAX
from overweave.broker.core import BrokerCore
from overweave.contract.effects import Restart
from overweave.contract.frames import NO_EPOCH, Hello, SessionEpoch
from overweave.contract.stimuli import FrameArrived, PeerConnected
from overweave.drivers.tcp.incarnation import next_incarnation
from overweave.overlay.fixed_shapes import chain
from overweave.routing import PROTOCOLS


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
    assert restarts("B2", SessionEpoch((1 << 64) - 1, 0)) == []
    assert restarts("B2", SessionEpoch(6, 0)) == [6]
    assert restarts("c", SessionEpoch(6, 0)) == []
