"""The checks of ``python -m overweave.testing.live_reweave`` fail on what they are for."""

import asyncio
import random

import pytest

from overweave.cli.client_options import Credentials
from overweave.cli.operators import Target
from overweave.cli.overlay_processes import ToldProcesses
from overweave.contract.modules import Capacity
from overweave.contract.observation import BrokerObservation, Observation, ObservedClient
from overweave.contract.overlay_state import OverlayStatus, first_state
from overweave.drivers.tcp.network_file import read_network
from overweave.overlay.graph import Overlay
from overweave.reweave.hysteresis import BUDGET_S
from overweave.testing.live_reweave import brokers, changes
from overweave.testing.live_reweave.acting import CALM_S, Places, add_budget, add_turns
from overweave.testing.live_reweave.brokers import SingleBrokers
from overweave.testing.live_reweave.changes import Applied, Applier
from overweave.testing.live_reweave.results import PHASES, Report, phases_left

STATE = first_state(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]), {})
TURNS = [0.0, 120.0, 240.0, 360.0]


def failed(add, *arguments):
    """The lines that fail."""
    report = Report()
    add(report, *arguments)
    return [row.step for row in report.rows if not row.ok]


@pytest.mark.parametrize(
    ("acted_s", "lines"),
    [
        ([20.0, 150.0, 260.0], []),
        ([20.0, 60.0, 150.0, 260.0, 400.0], []),
        ([], ["turns with a change"]),
        ([20.0], ["turns with a change"]),
        ([20.0, 30.0, 40.0, 150.0], ["turns with a change"]),
        ([20.0, 241.0 - CALM_S, 260.0], ["turn 2"]),
    ],
)
def test_most_turns_have_a_change_that_ends_in_time(acted_s, lines):
    assert failed(add_turns, acted_s, TURNS, 480.0) == lines


def observation(**places):
    """Clients by broker."""
    status = OverlayStatus(STATE.version, "", STATE.current, (), {}, {})
    return Observation(
        STATE,
        {
            id: BrokerObservation(id, "", Capacity(), status, tuple(ObservedClient(name, True, 1, 0) for name in names.split()))
            for id, names in places.items()
        },
    )


def test_moves_are_counted_from_observations():
    places = Places()
    places.see(observation(B1="a b c"), 0.0)
    assert places.moves_max == 0
    places.see(observation(B1="b c", B2="a b"), 10.0)  # b is at both for a moment
    places.see(observation(B1="c", B2="a b"), 20.0)
    assert places.moves_max == 2
    places.see(observation(B2="a", B3="c"), 30.0)
    assert places.moves_max == 3
    places.see(observation(B1="a", B2="b", B3="c"), 20.0 + BUDGET_S)
    assert places.moves_max == 3  # the first two are more than an hour ago


@pytest.mark.parametrize(("moves_max", "lines"), [(2, []), (1, ["budget of moves"])])
def test_moves_above_the_budget_fail_whatever_is_reported(moves_max, lines):
    places = Places()
    places.see(observation(B1="a b c"), 0.0)
    places.see(observation(B1="c", B2="a b"), 10.0)
    assert failed(add_budget, places, 0, moves_max) == lines


class Brokers(SingleBrokers):
    """Brokers that take no time to kill."""

    def __init__(self):
        pass

    async def running(self):
        return ["B1"]

    async def kill(self, broker, away_s):
        await asyncio.sleep(0)

    def on_line(self, line):
        pass


class Network:
    brokers = Brokers()


def test_a_kill_counts_only_in_the_phase_in_which_it_happens(monkeypatch):
    monkeypatch.setattr(changes, "_INTO_S", 0.0)

    async def apply():
        applier = Applier(Network(), random.Random(1))
        applier._applied, applier._phases = Applied(), set(PHASES)
        for line in ("starting N1", "epoch 1, phase prepared; waiting: B2", "epoch 1, phase used", "moving clients: 3 moved"):
            applier._on_line(line)
            if line != "epoch 1, phase used":  # it is over before its broker is killed
                await asyncio.gather(*applier._tasks)
        return applier._applied.broker_kills

    kills = asyncio.run(apply())
    assert kills.keys() == {"starting", "prepared", "moving clients"}
    assert phases_left([kills]) == ["used", "closed", "writing", "trimmed", "stopping"]
    assert phases_left([kills, dict.fromkeys(PHASES[2:], "B1")]) == []


def test_brokers_are_started_and_stopped_as_apply_tells_the_operator(tmp_path, capsys):
    """The texts of `apply` are those that the runs with single brokers look for."""
    file = tmp_path / "network.toml"
    file.write_text('[network]\nshape = "chain"\nbrokers = 2\nport = 7400\n')
    told = ToldProcesses(file, Target(read_network(file), Credentials()))
    asyncio.run(told.start("B2", "tcp://127.0.0.1:7401"))
    asyncio.run(told.stop("B2"))
    started, left = capsys.readouterr().err.splitlines()
    assert brokers._STARTED.search(started).groups() == ("B2", "tcp://127.0.0.1:7401")
    assert brokers._LEFT.search(left).groups() == ("B2",)
