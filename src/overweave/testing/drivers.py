"""The driver conformance check: every driver means the same by the effects of a core.

A driver under test is a small adapter that hosts a `ScriptedCore`: a `BrokerDriver` with one peer that is a client and one that
is a neighbour, or a `ClientDriver` that is attached to one broker. `check_broker_driver` and `check_client_driver` run all
properties of the contract (`overweave.contract.effects`) on it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from overweave.contract.effects import (
    Attach,
    CloseLink,
    Detach,
    Effect,
    OpenLink,
    Persist,
    Reject,
    Restart,
    SendFrame,
    SetTimer,
)
from overweave.contract.frames import ControlFrame, Frame, SessionEpoch, SyncEnd
from overweave.contract.stimuli import (
    FrameArrived,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Persisted,
    Stimulus,
    TimerFired,
)
from overweave.language.syntax import parse_filter

#: The peers of a broker, and the broker that a client may attach to as well.
CLIENT, NEIGHBOUR, OTHER = "client", "neighbour", "other"
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

    def heard_of(self, peer: str) -> list[type[Stimulus]]:
        """The kinds of stimuli about the connection to a peer, in order."""
        kinds = PeerConnected, PeerDisconnected, PeerLeft
        return [type(stimulus) for stimulus, _ in self.seen if isinstance(stimulus, kinds) and stimulus.peer == peer]


class DriverUnderTest(Protocol):
    """A driver with a scripted core in it."""

    core: ScriptedCore
    #: The connected peers; the first one is poked.
    peers: Sequence[str]

    def poke(self, frame: Frame) -> None:
        """Have a frame of the first peer arrive at the core."""

    def run(self, seconds: float) -> None:
        """Let time pass."""

    def received(self, peer: str) -> Sequence[Frame]:
        """The frames that have arrived at a peer from the core, in order."""

    def is_connected(self, peer: str) -> bool:
        """Whether the connection to a peer is open."""


class BrokerDriver(DriverUnderTest, Protocol):
    """A broker that is connected to `CLIENT` and `NEIGHBOUR`, with a journal that reports what is durable."""

    def incarnation(self) -> int:
        """The incarnation of the present core, which may be another one than the first."""


class ClientDriver(DriverUnderTest, Protocol):
    """A client that is attached to one broker, and may attach to `OTHER`."""

    def reject(self) -> None:
        """Have the broker reject the client."""


def check_broker_driver(make: Callable[[], BrokerDriver]) -> None:
    """Check every property of drivers of brokers, each on a driver of its own."""
    for check in _COMMON:
        check(make())
    for broker_check in (
        check_a_rejection_closes_the_connection,
        check_a_rejected_client_may_be_forgotten,
        check_effects_of_a_performer_come_after_those_before,
        check_a_rejected_neighbour_stays_a_neighbour,
        check_a_closed_link_is_gone_and_may_be_opened_again,
        check_what_is_persisted_is_reported_once_durable,
        check_a_restart_replaces_the_core,
    ):
        broker_check(make())


def check_client_driver(make: Callable[[], ClientDriver]) -> None:
    """Check every property of drivers of clients, each on a driver of its own."""
    for check in _COMMON:
        check(make())
    for client_check in (
        check_a_rejection_by_the_broker_closes_the_connection,
        check_a_client_attaches_to_another_broker,
        check_a_client_detaches_without_a_word,
    ):
        client_check(make())


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
            effect for frame in frames for peer in driver.peers for effect in (SendFrame(peer, frame), SetTimer("t", now_s))
        ],
    )
    driver.run(0.3)
    for peer in driver.peers:
        assert [frame for frame in driver.received(peer) if frame in frames] == frames


#: What all drivers have to mean.
_COMMON = (
    check_timers_fire_once_in_order,
    check_a_timer_that_is_set_again_replaces_the_first,
    check_frames_keep_their_order,
)

# ---- brokers


def check_a_rejection_closes_the_connection(driver: BrokerDriver) -> None:
    """Whatever its code, a rejection closes the connection, and the core hears of it."""
    _answer_once(driver, lambda _: [Reject(CLIENT, "id-in-use", "an id of somebody else")])
    driver.run(0.3)
    assert not driver.is_connected(CLIENT)
    assert PeerDisconnected in driver.core.heard_of(CLIENT)


def check_a_rejected_client_may_be_forgotten(driver: BrokerDriver) -> None:
    """A client that the core has removed is disconnected as well, and others are not."""
    _answer_once(driver, lambda _: [Reject(CLIENT, "slow-consumer", "too slow", rows=3, forget=True)])
    driver.run(0.3)
    assert not driver.is_connected(CLIENT)
    assert driver.is_connected(NEIGHBOUR)


def check_a_rejected_neighbour_stays_a_neighbour(driver: BrokerDriver) -> None:
    """The connection to a neighbour closes, but not the link: the core hears of a loss, not of an end."""
    _answer_once(driver, lambda _: [Reject(NEIGHBOUR, "bad-frame", "nobody can read it")])
    driver.run(0.02)
    heard = driver.core.heard_of(NEIGHBOUR)
    assert heard[:1] == [PeerDisconnected]
    assert PeerLeft not in heard


def check_a_closed_link_is_gone_and_may_be_opened_again(driver: BrokerDriver) -> None:
    """Both ends of a closed link part permanently, after the stimulus; an opened link is a new connection."""
    last = _frame(9)
    _answer_once(driver, lambda _: [CloseLink(NEIGHBOUR), SendFrame(NEIGHBOUR, last)])
    driver.run(0.3)
    assert not driver.is_connected(NEIGHBOUR)
    assert driver.core.heard_of(NEIGHBOUR) == [PeerLeft]
    _answer_once(driver, lambda _: [OpenLink(NEIGHBOUR)])
    driver.run(0.5)
    assert driver.is_connected(NEIGHBOUR)
    assert driver.core.heard_of(NEIGHBOUR) == [PeerLeft, PeerConnected]


def check_what_is_persisted_is_reported_once_durable(driver: BrokerDriver) -> None:
    """The core hears how many entries are durable, not before all effects are performed."""
    kept = ("client", parse_filter("[x,>,0]"))
    _answer_once(driver, lambda _: [Persist(("subscription", id), kept) for id in ("s1", "s2")])
    driver.run(0.5)
    counts = [stimulus.count for stimulus, _ in driver.core.seen if isinstance(stimulus, Persisted)]
    assert counts == sorted(counts)
    assert counts[-1:] == [2]


def check_a_restart_replaces_the_core(driver: BrokerDriver) -> None:
    """A core that has to restart is replaced by one of a later incarnation, and its timers do not fire."""
    later = driver.incarnation() + 5
    _answer_once(driver, lambda now_s: [SetTimer("t", now_s + 0.1), Restart(later)])
    driver.run(0.3)
    assert driver.incarnation() > later
    assert driver.core.fired() == []


def check_effects_of_a_performer_come_after_those_before(driver: BrokerDriver) -> None:
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


# ---- clients


def check_a_rejection_by_the_broker_closes_the_connection(driver: ClientDriver) -> None:
    """A client that its broker rejects is disconnected, and its core hears of it."""
    (broker,) = driver.peers
    driver.reject()
    driver.run(0.3)
    assert not driver.is_connected(broker)
    assert driver.core.heard_of(broker) == [PeerDisconnected]


def check_a_client_attaches_to_another_broker(driver: ClientDriver) -> None:
    """The connection to another broker is open when the core hears of it, and the first one stays open."""
    (broker,) = driver.peers
    frame = _frame(1)

    def answer(stimulus: Stimulus, _: float) -> list[Effect]:
        if isinstance(stimulus, FrameArrived) and stimulus.peer == broker:
            return [Attach(OTHER, broker)]
        return [SendFrame(OTHER, frame)] if isinstance(stimulus, PeerConnected) and stimulus.peer == OTHER else []

    driver.core.answer = answer
    driver.poke(_frame(0))
    driver.run(0.5)
    assert driver.is_connected(broker)
    assert driver.is_connected(OTHER)
    assert driver.core.heard_of(OTHER) == [PeerConnected]
    assert frame in driver.received(OTHER)


def check_a_client_detaches_without_a_word(driver: ClientDriver) -> None:
    """The connection closes, and the core, which has removed the attachment, hears nothing of it."""
    (broker,) = driver.peers
    _answer_once(driver, lambda _: [Detach(broker)])
    driver.run(0.3)
    assert not driver.is_connected(broker)
    assert driver.core.heard_of(broker) == []


# ---- helpers


def _answer_once(driver: DriverUnderTest, effects: Callable[[float], list[Effect]]) -> float:
    """Have the core ask for effects when the next frame of the first peer arrives; when that was."""
    at: list[float] = []

    def answer(stimulus: Stimulus, now_s: float) -> list[Effect]:
        if at or not (isinstance(stimulus, FrameArrived) and stimulus.peer == driver.peers[0]):
            return []
        at.append(now_s)
        return effects(now_s)

    driver.core.answer = answer
    driver.poke(_frame(0))
    driver.run(0.05)
    assert at, "expected the frame to arrive"
    return at[0]


def _twice(first_s: float, second_s: float, now_s: float) -> list[Effect]:
    return [SetTimer("t", now_s + first_s), SetTimer("t", now_s + second_s)]


def _frame(number: int) -> Frame:
    return ControlFrame(SessionEpoch(1, 0), SessionEpoch(1, 0), number, 0, SyncEnd())
