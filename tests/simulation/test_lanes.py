"""Urgent frames are served before data, at input and uplink, and no session loses its order."""

import pytest

from overweave.batches.objects import Rows
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import SetTimer
from overweave.contract.frames import NO_EPOCH, Acknowledgement, BatchFrame, ControlFrame, Hello, SessionEpoch, UrgentFrame
from overweave.contract.modules import Delivered, PublishControl, SendControl, Started
from overweave.contract.stimuli import TimerFired
from overweave.drivers.sim.costs import FRAME_BYTES, Costs
from overweave.drivers.sim.lanes import LaneQueue, is_urgent
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.uplink import Uplink
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Publish, Subscribe, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

EPOCH = SessionEpoch(1, 0)


def batch(priority=Priority.PUBLICATION):
    return BatchFrame(EPOCH, EPOCH, 0, 0, Rows((Publish(Publication({"x": 1}), Header("p", 0, priority=priority)),)))


DATA, CONTROL_DATA = batch(), batch(Priority.CONTROL)
WORD = ControlFrame(EPOCH, EPOCH, 1, 0, Unsubscribe("s"))
ACK, HELLO = Acknowledgement(EPOCH, EPOCH, 0, 0), Hello(EPOCH, NO_EPOCH, 0, 0, False)
URGENT = UrgentFrame(EPOCH, EPOCH, batch(Priority.URGENT).batch)


@pytest.mark.parametrize(
    ("frame", "urgent"), [(DATA, False), (CONTROL_DATA, True), (WORD, True), (ACK, True), (HELLO, True), (URGENT, True)]
)
def test_urgent_frames(frame, urgent):
    assert is_urgent(frame) is urgent


def served(*jobs):
    queue = LaneQueue()
    for session, frame in jobs:
        queue.put(session, frame)
    assert len(queue) == len(jobs)
    return [queue.pop() for _ in jobs]


def test_unnumbered_frames_overtake_data_of_their_own_session():
    assert served(("a", DATA), ("a", ACK), ("a", HELLO)) == [("a", ACK), ("a", HELLO), ("a", DATA)]
    assert served(("a", DATA), ("a", URGENT)) == [("a", URGENT), ("a", DATA)]


def test_numbered_frames_overtake_data_of_other_sessions_only():
    jobs = ("a", DATA), ("a", WORD), ("b", WORD), ("a", CONTROL_DATA), ("b", CONTROL_DATA)
    assert served(*jobs) == [("b", WORD), ("b", CONTROL_DATA), ("a", DATA), ("a", WORD), ("a", CONTROL_DATA)]


def test_a_session_without_waiting_data_is_urgent_again():
    queue = LaneQueue()
    queue.put("a", DATA)
    assert queue.pop() == ("a", DATA)
    queue.put("b", DATA)
    queue.put("a", WORD)
    assert queue.pop() == ("a", WORD)


class Line:
    """One direction of a connection that writes down when frames leave."""

    def __init__(self, scheduler):
        self._scheduler, self.open, self.left = scheduler, True, []

    def begin_departure(self):
        pass

    def depart(self, frame):
        self.left.append((round(self._scheduler.now_s, 6), type(frame).__name__))


def test_an_uplink_finishes_the_frame_it_sends_and_then_sends_urgent_ones():
    scheduler = Scheduler()
    uplink, line = Uplink(scheduler, bandwidth_bytes_per_s=FRAME_BYTES), Line(scheduler)
    for frame in (WORD, ACK, WORD, ACK):
        uplink.send(line, frame)
    scheduler.run()
    assert line.left == [(1.0, "ControlFrame"), (2.0, "Acknowledgement"), (3.0, "ControlFrame"), (4.0, "Acknowledgement")]
    line.left.clear()
    data_s = (FRAME_BYTES + DATA.batch.size_bytes()) / FRAME_BYTES
    for frame in (DATA, DATA, ACK):
        uplink.send(line, frame)
    scheduler.run()
    assert [name for _, name in line.left] == ["BatchFrame", "Acknowledgement", "BatchFrame"]
    assert uplink.offered_s == pytest.approx(5 + 2 * data_s)


def test_frames_of_a_closed_connection_take_no_bandwidth():
    scheduler = Scheduler()
    uplink, closed, other = Uplink(scheduler, bandwidth_bytes_per_s=FRAME_BYTES), Line(scheduler), Line(scheduler)
    uplink.send(other, ACK)
    uplink.send(closed, ACK)
    uplink.send(other, ACK)
    closed.open = False
    scheduler.run()
    assert (closed.left, [at_s for at_s, _ in other.left]) == ([], [1.0, 2.0])


class Caller:
    """Publishes control every second, and notes how long that of others takes."""

    watches = ()

    def __init__(self, broker, delays_s):
        self._broker, self._delays_s = broker, delays_s

    def handle(self, stimulus, now_s):
        if isinstance(stimulus, Started):
            filter = f"[class,eq,'CALL'],[from,eq,'{self._broker}'],[at,>=,0]"
            yield SendControl(Advertise(f"{self._broker}/a", parse_filter(filter)))
            yield SendControl(Subscribe(f"{self._broker}/s", parse_filter("[class,eq,'CALL']")))
            yield SetTimer("call", now_s + 1.0)
        elif isinstance(stimulus, TimerFired):
            yield PublishControl(Publication({"class": "CALL", "from": self._broker, "at": now_s}))
            yield SetTimer("call", now_s + 1.0)
        elif isinstance(stimulus, Delivered):
            call = stimulus.publish.publication
            self._delays_s.setdefault((call["from"], self._broker), []).append(now_s - call["at"])


def test_control_does_not_wait_behind_data_for_others_at_an_overloaded_uplink():
    """B1 sends more data to B2 than its uplink carries; B3 is its other neighbour."""
    delays_s = {}
    overlay = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B1", "B3")])
    network = SimulatedNetwork(
        overlay,
        PROTOCOLS["filter"].make,
        config=BrokerConfig(SessionConfig(window=1 << 16)),
        make_modules=lambda at: {"caller": Caller(at.broker, delays_s)},
        own_costs={"B1": Costs(output_bandwidth_bytes_per_s=5_000)},
    )
    network.add_client("p", "B1")
    network.add_client("s", "B2")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.scheduler.run(1.0)
    network.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    network.scheduler.run(2.0)
    for number in range(1000):
        network.scheduler.at(2.0 + number / 100, lambda _: network.publish("p", Publication({"x": 1})))
    network.scheduler.run(12.0)
    assert network.station("B1").uplink_offered_s() > 12.0
    for pair in (("B1", "B3"), ("B2", "B3"), ("B3", "B1"), ("B2", "B1")):
        assert len(delays_s[pair]) >= 10
        assert max(delays_s[pair]) < 0.2
    # The same session as the data: ordered control waits, and only urgent control does not (test_urgent_lane.py).
    network.scheduler.run(60.0)
    assert max(delays_s["B1", "B2"]) > 5.0


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_everything_is_delivered_once_under_overload_and_faults(protocol):
    scenario = scenario_of(
        {
            "duration_s": 6,
            "overlay": {"shape": "balanced", "brokers": 5, "degree": 3},
            "routing": {"protocol": protocol},
            "workload": {"publishers": 3, "subscriptions_per_publisher": 4, "rate_hz": 10},
            "costs": {"matching_delay_base_s": 0.02, "output_bandwidth_bytes_per_s": 30_000},
            "faults": {"loss": 0.01, "duplication": 0.02, "reordering": 0.02, "cut_every_s": 3},
        }
    )
    metrics = simulate(scenario)
    assert metrics.deliveries > 100
    assert metrics.faults.lost_frames > 0
