"""The migrations of a change: which of their ends count as failures of the client."""

import asyncio

import msgspec
import pytest

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import OverlayVersion, Phase, first_state
from overweave.drivers.tcp import apply
from overweave.drivers.tcp.apply import LiveApply
from overweave.drivers.tcp.operator import Rejected
from overweave.errors import OverweaveError
from overweave.overlay.fixed_shapes import chain
from overweave.reweave.coordinator import Done, Failed, MoveClients, PublishState, Wait
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

    def named(self, observation):
        return observation

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


class Rejecting(Operators):
    """A broker that does not adopt states; a lost connection is no answer."""

    def __init__(self, errors):
        super().__init__([])
        self.errors, self.version = list(errors), OverlayVersion(0, Phase.TRIMMED)

    async def observe(self, preferred, delays_s=0.0):
        state = msgspec.structs.replace(first_state(chain(2), {}), version=self.version)
        return Observation(state, {})

    async def publish(self, state):
        error = self.errors.pop(0)
        if error == "later":
            self.version = OverlayVersion(0, Phase(self.version.phase + 1))
            raise Rejected("B1: knows a later state")
        if error is not None:
            raise error


def end_of_publication(monkeypatch, errors):
    """The end of a change that publishes one state until that is adopted, and its pauses."""
    operators, clock = Rejecting(errors), Clock()
    state = msgspec.structs.replace(first_state(chain(2), {}), version=OverlayVersion(0, Phase.REVERTED))

    def step(_):
        return PublishState(state) if operators.errors else Done()

    change = LiveApply(operators, Nothing(), Nothing(), step, ("B1",), 1000.0, lambda _: None)
    monkeypatch.setattr(change, "_pause", clock.pause)
    return asyncio.run(change.run()), clock.pauses_s


def test_a_state_that_is_rejected_twice_ends_the_change(monkeypatch):
    no = Rejected("B1: expected the root")
    assert end_of_publication(monkeypatch, [no, no, no]) == (Failed("epoch 0, phase reverted: B1: expected the root"), [1.0])
    # The network has changed meanwhile, or the connection was lost.
    lost = OverweaveError("B1: connection lost")
    assert end_of_publication(monkeypatch, [lost, lost, lost, no, None]) == (Done(), [1.0] * 4)
    assert end_of_publication(monkeypatch, ["later", no, None]) == (Done(), [1.0] * 2)


class Clock:
    """A clock that goes on in pauses and while brokers answer."""

    def __init__(self):
        self.now_s, self.pauses_s = 0.0, []

    def monotonic(self):
        return self.now_s

    async def pause(self, time_s):
        self.pauses_s.append(time_s)
        self.now_s += time_s


def pauses_during(monkeypatch, reasons, answer_s=0.0):
    """The pauses after observations that show these reasons to wait."""
    clock, left = Clock(), list(reasons)

    class Slow(Operators):
        async def observe(self, preferred, delays_s=0.0):
            clock.now_s += answer_s
            return await super().observe(preferred, delays_s)

    monkeypatch.setattr(apply, "time", clock)
    change = LiveApply(
        Slow([]), Nothing(), Nothing(), lambda _: Wait(left.pop(0)) if left else Done(), ("B1",), 1000.0, lambda _: None
    )
    monkeypatch.setattr(change, "_pause", clock.pause)
    assert asyncio.run(change.run()) == Done()
    return clock.pauses_s


def test_observations_are_rarer_while_they_show_the_same(monkeypatch):
    pauses_s = pauses_during(monkeypatch, ["quiet"] * 60)
    assert pauses_s[:5] == [0.2] * 5
    assert pauses_s[-1] == 2.0
    assert pauses_s == sorted(pauses_s)
    assert sum(pauses_s[:25]) < 10.0
    again = pauses_during(monkeypatch, [*["quiet"] * 30, "2 left", "1 left", "1 left"])
    assert again[-3:] == [0.2] * 3


def test_brokers_that_answer_slowly_are_observed_rarely(monkeypatch):
    assert pauses_during(monkeypatch, ["3 left", "2 left", "1 left"], answer_s=0.7) == [pytest.approx(0.7)] * 3
