"""The rate of migrations of a live change follows deliveries, which are sampled while clients move."""

import asyncio
import time
from collections import Counter

import pytest

from overweave.contract.delays import bucket_of
from overweave.contract.modules import Capacity
from overweave.contract.observation import BrokerObservation, Observation
from overweave.contract.overlay_state import OverlayStatus, first_state
from overweave.drivers.tcp import apply
from overweave.errors import OverweaveError
from overweave.overlay.graph import Overlay
from overweave.reweave.situation import Move

STATE = first_state(Overlay(["B1", "B2"], [("B1", "B2")]))
#: The interval between samples in these tests.
SAMPLE_S = 0.03


class SlowNetwork:
    """Operators of a network whose deliveries take long, or are unsettled, during some migrations."""

    def __init__(self, slow_moves=range(0), unsettled_moves=range(0), silent_moves=range(0)):
        self.slow, self.full, self.silent = slow_moves, unsettled_moves, silent_moves
        self.delays, self.moved_at_s, self.asked = Counter(), [], 0

    async def observe(self, preferred, delays_s=0.0):
        return await self.observe_again(delays_s)

    async def observe_again(self, delays_s):
        assert delays_s > 0
        self.asked += 1
        moved = len(self.moved_at_s)
        if moved in self.silent:
            raise OverweaveError("no answer")
        self.delays[bucket_of(0.4 if moved in self.slow else 0.01)] += 100
        status = OverlayStatus(STATE.version, "", STATE.current, STATE.epochs, {}, {})
        brokers = {
            id: BrokerObservation(id, "", Capacity(), status, (), 900 if moved in self.full else 10, dict(self.delays))
            for id in ("B1", "B2")
        }
        return Observation(STATE, brokers)

    async def migrate(self, client, source, to, within_s):
        self.moved_at_s.append(time.monotonic())

    def rate_hz(self, first, last):
        """The rate from one migration to another."""
        return (last - first) / (self.moved_at_s[last] - self.moved_at_s[first])


def moved(network, monkeypatch, count, rate_hz=200.0):
    """Move clients in one step, after a few observations."""
    monkeypatch.setattr(apply, "SAMPLE_S", SAMPLE_S)
    found = []

    async def scenario():
        change = apply.LiveApply(network, None, None, lambda _: None, ("B1",), rate_hz, found.append)
        for _ in range(5):
            await asyncio.sleep(SAMPLE_S)
            await change._observe()
        await change._move(tuple(Move(f"c{n}", "B1", "B2") for n in range(count)))

    asyncio.run(scenario())
    return [each.rate_hz for each in found]


@pytest.mark.parametrize("trouble", ["slow_moves", "unsettled_moves", "silent_moves"])
def test_the_rate_falls_within_one_step_while_deliveries_are_in_trouble_and_recovers(monkeypatch, trouble):
    network = SlowNetwork(**{trouble: range(50, 60)})
    rates = moved(network, monkeypatch, 120)
    assert len(network.moved_at_s) == 120
    assert rates[40] == 200.0
    assert min(rates) <= 50.0
    assert network.rate_hz(52, 60) < 0.7 * network.rate_hz(10, 45)
    assert rates[-1] == 200.0


def test_nothing_slows_down_a_calm_network(monkeypatch):
    network = SlowNetwork()
    assert set(moved(network, monkeypatch, 60)) == {200.0}
    assert network.asked > 10


def test_a_step_ends_although_the_rate_has_become_low(monkeypatch):
    """The coordinator observes again, and Ctrl-C does not wait for the rest."""
    monkeypatch.setattr(apply, "STEP_S", 0.2)
    network = SlowNetwork(slow_moves=range(5, 10_000))
    moved(network, monkeypatch, 1_000)
    assert 5 < len(network.moved_at_s) < 100
