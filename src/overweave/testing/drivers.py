"""The driver conformance check: every driver means the same by the effects of a core.

A driver under test is a `DriverUnderTest`: a small adapter that hosts a `ScriptedCore`, with one peer that is a client and one
that is a neighbour. `check_driver` runs all properties of the contract (`overweave.contract.effects`) on it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from overweave.contract.effects import Effect, Reject, SendFrame, SetTimer
from overweave.contract.frames import ControlFrame, Frame, SessionEpoch, SyncEnd
from overweave.contract.stimuli import FrameArrived, PeerDisconnected, Stimulus, TimerFired

CLIENT, NEIGHBOUR = "client", "neighbour"
#: How the core answers a stimulus.
Answer = Callable[[Stimulus, float], list[Effect]]


class ScriptedCore:
    """A core that answers as a test wants, and remembers what happened to it and when."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _, __: []
        self.seen: list[tuple[Stimulus, float]] = []

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """Remember, and answer."""
        self.seen.append((stimulus, now_s))
        return self.answer(stimulus, now_s)

    def fired(self) -> list[tuple[str, float]]:
        """The timers that have fired, with their times."""
        return [(stimulus.name, at_s) for stimulus, at_s in self.seen if isinstance(stimulus, TimerFired)]


class DriverUnderTest(Protocol):
    """A driver with a scripted core in it, connected to `CLIENT` and `NEIGHBOUR`."""

    core: ScriptedCore

    def poke(self, frame: Frame) -> None:
        """Have a frame of the client arrive at the core."""

    def run(self, seconds: float) -> None:
        """Let time pass."""

    def received(self, peer: str) -> Sequence[Frame]:
        """The frames that have arrived at a peer from the core, in order."""

    def is_connected(self, peer: str) -> bool:
        """Whether the connection to a peer is open."""


def check_driver(make: Callable[[], DriverUnderTest]) -> None:
    """Check every property, each on a driver of its own."""
    for check in (
        check_timers_fire_once_in_order,
        check_a_timer_that_is_set_again_replaces_the_first,
        check_frames_keep_their_order,
        check_a_rejection_closes_the_connection,
        check_effects_of_a_performer_come_after_those_before,
    ):
        check(make())


def check_timers_fire_once_in_order(driver: DriverUnderTest) -> None:
    """Timers of different names fire once each, by time, and not before it."""
    start_s = _answer_once(driver, lambda now_s: [SetTimer("b", now_s + 0.2), SetTimer("a", now_s + 0.1)])
    driver.run(0.6)
    fired = driver.core.fired()
    assert [name for name, _ in fired] == ["a", "b"]
    assert all(at_s >= start_s + least_s - 1e-3 for (_, at_s), least_s in zip(fired, (0.1, 0.2), strict=True))


def check_a_timer_that_is_set_again_replaces_the_first(driver: DriverUnderTest) -> None:
    """One of the same name that was set before is forgotten, whether it was due earlier or later."""
    for first_s, second_s in ((0.1, 0.3), (0.3, 0.1)):
        driver.core.seen.clear()
        start_s = _answer_once(driver, partial(_twice, first_s, second_s))
        driver.run(0.7)
        assert [name for name, _ in driver.core.fired()] == ["t"]
        assert driver.core.fired()[0][1] >= start_s + second_s - 1e-3


def check_frames_keep_their_order(driver: DriverUnderTest) -> None:
    """Frames to one peer arrive in the order of the effects, whatever is between them."""
    frames = [_frame(number) for number in range(5)]
    _answer_once(
        driver,
        lambda now_s: [
            effect for frame in frames for effect in (SendFrame(NEIGHBOUR, frame), SetTimer("t", now_s), SendFrame(CLIENT, frame))
        ],
    )
    driver.run(0.3)
    for peer in (NEIGHBOUR, CLIENT):
        assert [frame for frame in driver.received(peer) if frame in frames] == frames


def check_a_rejection_closes_the_connection(driver: DriverUnderTest) -> None:
    """Whatever its code, a rejection closes the connection, and the core hears of it."""
    _answer_once(driver, lambda _: [Reject(CLIENT, "id-in-use", "an id of somebody else")])
    driver.run(0.3)
    assert not driver.is_connected(CLIENT)
    assert any(isinstance(stimulus, PeerDisconnected) and stimulus.peer == CLIENT for stimulus, _ in driver.core.seen)


def check_effects_of_a_performer_come_after_those_before(driver: DriverUnderTest) -> None:
    """What the core asks for while effects are carried out comes after them."""
    first, second = _frame(1), _frame(2)

    def answer(stimulus: Stimulus, _: float) -> list[Effect]:
        if isinstance(stimulus, PeerDisconnected) and stimulus.peer == CLIENT:
            return [SendFrame(NEIGHBOUR, second)]
        if isinstance(stimulus, FrameArrived) and stimulus.peer == CLIENT:
            return [Reject(CLIENT, "id-in-use", "an id of somebody else"), SendFrame(NEIGHBOUR, first)]
        return []

    driver.core.answer = answer
    driver.poke(_frame(0))
    driver.run(0.3)
    assert [frame for frame in driver.received(NEIGHBOUR) if frame in (first, second)] == [first, second]


def _answer_once(driver: DriverUnderTest, effects: Callable[[float], list[Effect]]) -> float:
    """Have the core ask for effects when the next frame of the client arrives; when that was."""
    at: list[float] = []

    def answer(stimulus: Stimulus, now_s: float) -> list[Effect]:
        if at or not (isinstance(stimulus, FrameArrived) and stimulus.peer == CLIENT):
            return []
        at.append(now_s)
        return effects(now_s)

    driver.core.answer = answer
    driver.poke(_frame(0))
    driver.run(0.05)
    assert at, "expected the frame of the client to arrive"
    return at[0]


def _twice(first_s: float, second_s: float, now_s: float) -> list[Effect]:
    return [SetTimer("t", now_s + first_s), SetTimer("t", now_s + second_s)]


def _frame(number: int) -> Frame:
    return ControlFrame(SessionEpoch(1, 0), SessionEpoch(1, 0), number, 0, SyncEnd())
