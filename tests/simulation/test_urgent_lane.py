"""Urgent control publications do not wait behind data; everything else keeps its order and arrives once."""

from collections import Counter

import pytest

from overweave.batches.objects import Rows
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Reject, SetTimer
from overweave.contract.frames import BatchFrame, SessionEpoch, UrgentFrame
from overweave.contract.modules import Delivered, PublishControl, SendControl, Started
from overweave.contract.stimuli import FrameArrived, TimerFired
from overweave.drivers.sim.costs import Costs, frame_bytes
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Publish, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

CHAIN = Overlay(["B1", "B2"], [("B1", "B2")])
EPOCH = SessionEpoch(1, 0)


class Caller:
    """Publishes ordered and urgent control at times, and records the delay of each call from others."""

    watches = ()

    def __init__(self, broker, calls, period_s=1.0):
        self._broker, self._calls, self._period_s = broker, calls, period_s

    def handle(self, stimulus, now_s):
        if isinstance(stimulus, Started):
            filter = f"[class,eq,'CALL'],[from,eq,'{self._broker}'],[at,>=,0],[urgent,>=,0]"
            yield SendControl(Advertise(f"{self._broker}/a", parse_filter(filter)))
            yield SendControl(Subscribe(f"{self._broker}/s", parse_filter("[class,eq,'CALL']")))
            yield SetTimer("call", now_s + self._period_s)
        elif isinstance(stimulus, TimerFired):
            for urgent in (False, True):
                call = {"class": "CALL", "from": self._broker, "at": now_s, "urgent": int(urgent)}
                yield PublishControl(Publication(call), urgent=urgent)
            yield SetTimer("call", now_s + self._period_s)
        elif isinstance(stimulus, Delivered):
            call = stimulus.publish.publication
            key = call["from"], self._broker, bool(call["urgent"])
            self._calls.setdefault(key, []).append((call["at"], now_s - call["at"]))


def network(overlay, protocol, calls, **options):
    make_modules = options.pop("make_modules", lambda at: {"caller": Caller(at.broker, calls)})
    return SimulatedNetwork(overlay, PROTOCOLS[protocol].make, make_modules=make_modules, **options)


def loaded(costs):
    """A network with more data from B1 to B2 than ``costs`` allow: 20 a second for 60 seconds; and the calls."""
    calls = {}
    config = BrokerConfig(SessionConfig(window=1 << 16))
    made = network(CHAIN, "filter", calls, config=config, own_costs=costs)
    made.add_client("p", "B1")
    made.add_client("s", "B2")
    made.say("p", Advertise("a", parse_filter("[x,isPresent,0],[text,isPresent,'']")))
    made.scheduler.run(1.0)
    made.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    made.scheduler.run(2.0)
    for number in range(1200):
        made.scheduler.at(2.0 + number / 20, lambda number: made.publish("p", data(number)), number)
    made.scheduler.run(140.0)
    return made, calls


def data(number):
    """A publication that is large beside its acknowledgement."""
    return Publication({"x": number, "text": "t" * 1000})


def data_bytes():
    """The bytes of a data frame on a link."""
    return frame_bytes(BatchFrame(EPOCH, EPOCH, 0, 0, Rows((Publish(data(1), Header("p", 0)),))))


@pytest.mark.parametrize(
    "costs",
    [
        pytest.param({"B2": Costs(matching_delay_base_s=1.2 / 20)}, id="input-1.2"),
        pytest.param({"B2": Costs(matching_delay_base_s=1.5 / 20)}, id="input-1.5"),
        pytest.param({"B1": Costs(output_bandwidth_bytes_per_s=20 * data_bytes() / 1.5)}, id="uplink-1.5"),
    ],
)
def test_urgent_control_overtakes_the_data_of_its_session(costs):
    made, calls = loaded(costs)
    for ends in (("B1", "B2"), ("B2", "B1")):  # to and from the loaded broker
        during = [delay_s for at_s, delay_s in calls[*ends, True] if at_s < 62.0]
        assert len(during) >= 58
        assert max(during) < 1.0
        ordered = [at_s for at_s, _ in calls[*ends, False]]
        assert ordered == sorted(set(ordered))
    # Ordered control waits with the data.
    assert max(delay_s for ends in (("B1", "B2"), ("B2", "B1")) for _, delay_s in calls[*ends, False]) > 8.0
    made.scheduler.run(240.0)  # acknowledgements to the publisher share the uplink, and go first
    assert made.deliveries == Counter({("p", number, "s"): 1 for number in range(1200)})


RING = Overlay([Broker(f"B{i}") for i in range(1, 5)], [Link(f"B{i}", f"B{i % 4 + 1}") for i in range(1, 5)])
CLUSTERS = Overlay(
    [Broker("B1", cluster="C1"), Broker("B2", cluster="C1", other_clusters=("C2",)), Broker("B3", cluster="C2")],
    [Link("B1", "B2"), Link("B2", "B3")],
)
NETWORKS = [
    ("filter", make_overlay("balanced", brokers=7, degree=3)),
    ("filter-general", RING),
    ("destination", RING),
    ("merc", CLUSTERS),
]


@pytest.mark.parametrize(("protocol", "overlay"), NETWORKS, ids=[name for name, _ in NETWORKS])
def test_urgent_control_reaches_the_modules_of_all_brokers_once(protocol, overlay):
    calls = {}
    heartbeat = {} if PROTOCOLS[protocol].acyclic else {"config": BrokerConfig(heartbeat_s=0.5)}
    made = network(overlay, protocol, calls, **heartbeat)
    made.add_client("c", overlay.ids[0])
    made.say("c", Subscribe("c", parse_filter("[class,eq,'CALL']")))
    made.scheduler.run(12.5)
    for source in overlay.ids:
        for target in overlay.ids:
            for urgent in (False, True):
                at_s = [at_s for at_s, _ in calls[source, target, urgent] if at_s > 5.0]
                assert len(at_s) == len(set(at_s)) >= 7, (source, target, urgent)
    # Clients get ordered control only.
    got = [sequence for publisher, sequence, _ in made.deliveries if publisher == f"{overlay.ids[0]}/caller"]
    assert got
    assert len({sequence % 2 for sequence in got}) == 1


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_faults_lose_urgent_control_at_most_and_nothing_else(protocol):
    faults = Faults(loss=0.1, duplication=0.2, reordering=0.2, cut_every_s=3.0, until_s=15)
    lost = 0
    for seed in range(3):
        calls = {}
        made = network(make_overlay("chain", brokers=3), protocol, calls, seed=seed, faults=faults)
        made.scheduler.run(30.0)
        made.run_until_quiescent()
        for source, target in (("B1", "B3"), ("B3", "B1")):
            ordered = [at_s for at_s, _ in calls[source, target, False]]
            urgent = [at_s for at_s, _ in calls[source, target, True]]
            assert len(ordered) == len(set(ordered))
            assert len(urgent) == len(set(urgent))
            lost += len(set(ordered) - set(urgent))
        for id in ("B1", "B2", "B3"):
            made.broker(id).validate()
    assert lost > 0


def urgent_rows(sequence=0, priority=Priority.URGENT):
    call = Publication({"class": "CALL", "from": "B1", "at": 0, "urgent": 1})
    return Rows((Publish(call, Header("B1/caller", sequence, priority=priority)),))


def established():
    calls = {}
    made = network(CHAIN, "filter", calls, make_modules=lambda at: {"caller": Caller(at.broker, calls, 1e6)})
    made.scheduler.run(1.0)
    core = made.broker("B2")
    return core, core._sessions["B1"], calls


def test_stale_urgent_frames_are_dropped_and_duplicates_too():
    core, session, calls = established()
    for epochs in ((EPOCH, EPOCH), (session.peer_epoch, SessionEpoch(0, 9)), (SessionEpoch(9, 9), session.epoch)):
        if epochs != (session.peer_epoch, session.epoch):
            assert core.handle(FrameArrived("B1", UrgentFrame(*epochs, urgent_rows())), 1.0) is not None
            assert calls == {}
    for _ in range(2):
        core.handle(FrameArrived("B1", UrgentFrame(session.peer_epoch, session.epoch, urgent_rows())), 1.0)
    assert len(calls["B1", "B2", True]) == 1


def test_other_rows_in_an_urgent_frame_are_rejected():
    core, session, calls = established()
    for priority in (Priority.CONTROL, Priority.PUBLICATION):
        frame = UrgentFrame(session.peer_epoch, session.epoch, urgent_rows(0, priority))
        effects = core.handle(FrameArrived("B1", frame), 1.0)
        assert [effect.code for effect in effects if isinstance(effect, Reject)] == ["bad-frame"]
    assert calls == {}


def test_many_urgent_publications_do_not_push_ordered_ones_out_of_the_dedup_window():
    core, session, calls = established()
    for sequence in range(1, 40_000, 37):
        core.handle(FrameArrived("B1", UrgentFrame(session.peer_epoch, session.epoch, urgent_rows(sequence))), 1.0)
    frame = BatchFrame(session.peer_epoch, session.epoch, session.inbound.expected, 0, urgent_rows(0, Priority.CONTROL))
    before = len(calls["B1", "B2", True])
    core.handle(FrameArrived("B1", frame), 1.0)
    assert len(calls["B1", "B2", True]) == before + 1


def test_without_a_connection_urgent_control_is_lost_not_deferred():
    calls = {}
    made = network(CHAIN, "filter", calls, make_modules=lambda at: {"caller": Caller(at.broker, calls, 1e6)})
    session, effects = made.broker("B1")._sessions["B2"], []  # nothing has arrived yet: it is not established
    before = session.outbound.unsettled_entries()
    session.send_urgent(urgent_rows(), effects)
    assert (effects, session.outbound.unsettled_entries()) == ([], before)
