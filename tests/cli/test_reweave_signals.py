"""``overweave reweave`` at a signal during a change: it ends, and does not resume what the operator has stopped."""

import asyncio
import os
import signal
import threading

import msgspec
import pytest

from overweave.cli import apply_run, reweave
from overweave.cli.stopping import stopping
from overweave.contract.observation import Observation
from overweave.contract.overlay_state import first_state
from overweave.overlay.fixed_shapes import chain
from overweave.reweave.coordinator import Wait


class Waiting:
    """Operators of a network in which a change waits; the signal arrives at the second observation."""

    def __init__(self, number):
        self._number, self._asked = number, 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def observe(self, *_):
        self._asked += 1
        if self._asked == 2:
            os.kill(os.getpid(), self._number)
        await asyncio.sleep(0.01)
        return Observation(first_state(chain(2), {}), {})

    async def running(self):
        return frozenset()


@pytest.fixture
def change(tmp_path, monkeypatch):
    """Runs a change that waits until a signal."""
    file = tmp_path / "network.toml"
    file.write_text('[network]\nshape = "chain"\nbrokers = 2\nport = 7400\n')

    def run(number):
        network = Waiting(number)
        monkeypatch.setattr(apply_run, "operators_of", lambda _: network)
        monkeypatch.setattr(apply_run, "processes_of", lambda *_: network)
        ended, _ = apply_run.run_change(file, None, lambda _: Wait("quiet"), ("B1",), 50.0)
        return ended

    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_change_that_a_signal_stops_leaves_the_handlers_as_they_were(change, number):
    stopped = threading.Event()
    with stopping(stopped, signal.SIGINT, signal.SIGTERM):
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        assert change(number) is None
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_change_ends_reweave(change, run, tmp_path, monkeypatch, number):
    rounds = []

    def change_once(_):
        rounds.append(number)
        assert len(rounds) == 1, "it resumes the change"
        return reweave.Round(action="acted" if change(number) else reweave.STOPPED, reason="it saves 33.3%")

    monkeypatch.setattr(reweave.Reweaver, "round", change_once)
    status, out, _ = run(
        "reweave", tmp_path / "plan.json", "--network", tmp_path / "network.toml", "--act", "--every", 0.1, "--json"
    )
    assert status == 0
    assert msgspec.json.decode(out)["action"] == "stopped"
