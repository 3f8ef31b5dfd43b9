"""The migrations of a change: which of their ends count as failures of the client."""

import asyncio

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import first_state
from overweave.drivers.tcp import apply
from overweave.drivers.tcp.apply import LiveApply
from overweave.errors import OverweaveError
from overweave.overlay.fixed_shapes import chain
from overweave.reweave.coordinator import Done, MoveClients
from overweave.reweave.situation import Move


class Operators:
    """Orders with given ends."""

    def __init__(self, ends):
        self._ends = list(ends)

    async def observe(self, preferred, delays_s=0.0):
        return Observation(first_state(chain(2), {}), {})

    async def migrate(self, *_):
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


class Nothing:
    """No processes, and a file that is current."""

    async def running(self):
        return frozenset()

    def is_current(self, state):
        return True


def failures_after(ends):
    """The failures that a coordinator sees before each order, and at the end."""
    seen = []

    def step(situation):
        seen.append(situation.failures.get("c", 0))
        return MoveClients((Move("c", "B1", "B2"),)) if len(seen) <= len(ends) else Done()

    ended = asyncio.run(LiveApply(Operators(ends), Nothing(), Nothing(), step, ("B1",), 1000.0, lambda _: None).run())
    assert ended == Done()
    return seen


def test_only_reasons_of_the_broker_count_as_failures():
    lost, moving, slow = OverweaveError("B1: connection lost"), "'c' is moving already", "'c' is a slow consumer"
    assert failures_after([lost, moving, lost, slow, None]) == [0, 0, 0, 0, 1, 1]


def test_a_broker_that_never_answers_an_order_counts_after_a_while(monkeypatch):
    monkeypatch.setattr(apply, "_SILENCE_S", 0.0)
    lost = OverweaveError("B1: connection lost")
    assert failures_after([lost, lost]) == [0, 1, 2]
