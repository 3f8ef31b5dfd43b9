"""The host of modules: environments, messages to neighbours, watching on demand, decisions, order, traffic, forged control."""

import numpy as np
import pyarrow.parquet
import pytest

from overweave.batches.objects import Rows
from overweave.broker.modules import MODULES, make_modules
from overweave.broker.modules.load_report import LoadReportOptions
from overweave.broker.modules.self_organise import SelfOrganiseOptions
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import SetTimer
from overweave.contract.frames import BatchFrame, ControlFrame, ModuleMessage, SessionEpoch, UrgentMessageFrame
from overweave.contract.modules import (
    Capacity,
    ControlApplied,
    Decide,
    Delivered,
    Environment,
    Module,
    NeighbourMessage,
    NeighboursChanged,
    PublishControl,
    Routed,
    SendControl,
    SendToNeighbour,
    Started,
    Unwatch,
    Watch,
)
from overweave.contract.records import Decision
from overweave.contract.stimuli import FrameArrived, PeerDisconnected, TimerFired
from overweave.contract.wire import HEAD, decode, encode
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.tcp.admission import check_frame
from overweave.drivers.tcp.security import ALL
from overweave.drivers.tracing.files import TraceWriter
from overweave.drivers.tracing.live import LiveTrace
from overweave.errors import Refused
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Publish, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Role
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

CALL = parse_filter("[class,eq,'CALL'],[from,isPresent,'']")
CALL_OF = {"class": "CALL"}


class Scripted(Module):
    """Yields the effects that a test has put under the name of a timer, and records its stimuli."""

    def __init__(self, broker, watches=(), on=lambda *_: ()):
        self.broker, self._watches, self._on = broker, watches, on
        self.seen, self.script = [], {}

    @property
    def watches(self):
        return self._watches

    def handle(self, stimulus, now_s):
        self.seen.append(stimulus)
        if isinstance(stimulus, Started):
            yield SendControl(Advertise(f"{self.broker}/a", CALL))
            yield SendControl(Subscribe(f"{self.broker}/s", CALL))
            for name, (at_s, _) in self.script.items():
                yield SetTimer(name, at_s)
        elif isinstance(stimulus, TimerFired):
            yield from self.script[stimulus.name][1]
        yield from self._on(self, stimulus)

    def of(self, kind):
        return [each for each in self.seen if isinstance(each, kind)]


def network(overlay, scripts=None, protocol="filter", config=None, **options):
    made = {}

    def modules(at):
        module = made[at.broker] = Scripted(at.broker, **options)
        module.script = {str(number): each for number, each in enumerate((scripts or {}).get(at.broker, ()))}
        return {"scripted": module}

    return SimulatedNetwork(overlay, PROTOCOLS[protocol].make, make_modules=modules, config=config), made


CHAIN = make_overlay("chain", brokers=3)


def call(broker="B1"):
    return Publication({"class": "CALL", "from": broker})


# ---- environment


def test_the_simulator_describes_the_environment():
    seen = {}
    overlay = Overlay([Broker("B1", cluster="C1", role=Role.EDGE, url="tcp://h:1"), "B2"], [("B1", "B2")])
    own = {"B1": Costs(output_bandwidth_bytes_per_s=5e6, matching_delay_base_s=0.05, matching_delay_per_subscription_s=0.01)}
    SimulatedNetwork(
        overlay, PROTOCOLS["filter"].make, seed=7, own_costs=own, make_modules=lambda at: seen.setdefault(at.broker, at) and {}
    )
    capacity = Capacity(5e6, 0.05, 0.01, None)
    assert seen["B1"] == Environment("B1", ("B2",), "C1", Role.EDGE, capacity, {"B1": "tcp://h:1"}, 7)
    assert seen["B2"].neighbours == ("B1",)


def test_random_numbers_of_modules_are_stable_and_differ():
    seeds = {(broker, name): Environment(broker, seed=1).of_module(name).seed for broker in ("B1", "B2") for name in "ab"}
    assert len(set(seeds.values())) == 4
    again = Environment("B1", ("B2",), seed=1).of_module("a").seed
    assert np.random.default_rng(again).random() == np.random.default_rng(seeds["B1", "a"]).random()


# ---- control publications and messages


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize(("ttl", "reached"), [(1, {"B1"}), (2, {"B1", "B2"}), (3, {"B1", "B2", "B3"}), (255, {"B1", "B2", "B3"})])
def test_a_publication_has_a_ttl_and_a_payload(ttl, reached, urgent):
    made_network, made = network(CHAIN, {"B1": [(1.0, [PublishControl(call(), b"body", ttl, urgent)])]})
    made_network.scheduler.run(2.0)
    assert {broker for broker, module in made.items() if module.of(Delivered)} == reached
    assert {each.publish.payload for module in made.values() for each in module.of(Delivered)} == {b"body"}


@pytest.mark.parametrize("urgent", [False, True])
def test_a_message_reaches_the_same_module_of_a_neighbour_only(urgent):
    sent = [SendToNeighbour("B2", "hi", b"x", urgent), SendToNeighbour("B3", "hi", b"no link", urgent)]
    made_network, made = network(CHAIN, {"B1": [(1.0, sent)]})
    made_network.scheduler.run(0.9)
    tables = {id: made_network.broker(id).routing.table_sizes() for id in CHAIN.ids}
    made_network.scheduler.run(2.0)
    assert made["B2"].of(NeighbourMessage) == [NeighbourMessage("B1", "hi", b"x")]
    assert not made["B1"].of(NeighbourMessage) + made["B3"].of(NeighbourMessage)
    assert tables == {id: made_network.broker(id).routing.table_sizes() for id in CHAIN.ids}


def test_messages_keep_their_order():
    sent = [SendToNeighbour("B2", "hi", bytes([number])) for number in range(50)]
    made_network, made = network(CHAIN, {"B1": [(1.0, sent)]})
    made_network.scheduler.run(2.0)
    assert [each.body for each in made["B2"].of(NeighbourMessage)] == [bytes([number]) for number in range(50)]


def test_messages_do_not_pile_up_for_a_neighbour_without_a_connection():
    sent = [SendToNeighbour("B2", "hi", bytes([number])) for number in range(50)]
    made_network, _ = network(CHAIN, {"B1": [(1.0, sent)]})
    made_network.scheduler.run(0.9)
    core = made_network.broker("B1")
    core.handle(PeerDisconnected("B2"), 0.9)
    made_network.scheduler.run(1.5)
    assert core.unsettled_outbound_rows("B2") == 0


def test_messages_have_a_wire_form():
    epoch = (7, 1)
    for frame in (
        ControlFrame(epoch, epoch, 3, 2, ModuleMessage("m", "k", b"x")),
        UrgentMessageFrame(epoch, epoch, ModuleMessage("m", "k", b"x")),
    ):
        data = b"".join(encode(frame))
        assert decode(data[HEAD.size - 1], data[HEAD.size :]) == frame


def test_modules_are_notified_of_new_neighbours():
    made_network, made = network(CHAIN)
    made_network.scheduler.run(1.0)
    assert made["B2"].of(Started)[0].neighbours == ("B1", "B3")
    made_network.close_link(("B2", "B3"))
    made_network.scheduler.run(2.0)
    assert made["B2"].of(NeighboursChanged) == [NeighboursChanged(("B1",))]


# ---- watching


def test_a_module_watches_for_some_time():
    made_network, made = network(
        CHAIN, {"B2": [(2.0, [Watch((Routed, ControlApplied))]), (3.0, [Unwatch((Routed, ControlApplied))])]}
    )
    made_network.add_client("p", "B1")
    made_network.add_client("s", "B3")
    made_network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    made_network.scheduler.run(1.0)
    made_network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    for number, at_s in enumerate((1.5, 2.5, 3.5)):
        made_network.scheduler.at(at_s, lambda number: made_network.publish("p", Publication({"x": number})), number)
    made_network.scheduler.at(2.6, lambda _: made_network.say("s", Subscribe("s2", parse_filter("[x,<,0]"))))
    forwarder = made_network.broker("B2")._forwarder
    observed = []
    for at_s in (1.9, 2.9, 3.9):
        made_network.scheduler.run(at_s)
        observed.append(forwarder._has_observers)
    assert observed == [False, True, False]
    assert [each.batch.publishes()[0].publication["x"] for each in made["B2"].of(Routed)] == [1]
    assert [each.message.id for each in made["B2"].of(ControlApplied)] == ["s2"]
    assert not made["B1"].of(Routed)
    assert len(made_network.deliveries) == 3


@pytest.mark.parametrize("protocol", ["filter", "simple", "destination"])
def test_modules_are_notified_after_routing(protocol):
    """A publication made on the notification travels behind the subscription."""

    def on(module, stimulus):
        if module.broker == "B1" and isinstance(stimulus, ControlApplied) and stimulus.client:
            yield PublishControl(call())

    made_network, made = network(CHAIN, protocol=protocol, watches=(ControlApplied,), on=on)
    made_network.add_client("p", "B3")
    made_network.say("p", Advertise("p/a", parse_filter("[x,isPresent,0]")))
    made_network.add_client("s", "B1")
    made_network.scheduler.run(1.0)
    made_network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
    made_network.scheduler.run(2.0)
    for broker in ("B2", "B3"):
        seen = [
            "subscribe" if isinstance(each, ControlApplied) else "call"
            for each in made[broker].seen
            if isinstance(each, Delivered) or (isinstance(each, ControlApplied) and each.message.id == "s/1")
        ]
        assert seen == ["subscribe", "call"]


# ---- decisions and status


def test_a_decision_is_in_the_outcomes_and_in_the_story():
    effect = Decide("move", "c1", "because", {"gain": 2.0})
    made_network, _ = network(CHAIN, {"B1": [(1.0, [effect])]}, config=BrokerConfig(story_length=10))
    made_network.scheduler.run(2.0)
    assert made_network.decisions == [Decision(1.0, "B1", "scripted", "move", "c1", "because", {"gain": 2.0})]
    assert made_network.broker("B1").story("c1") == [(1.0, "decide move", "scripted", ())]


DECISIONS = [
    Decision(1.0, "B1", "m", "move", "c1", "because", {"gain": 2.0}),
    Decision(2.0, "B1", "m", "stay", "c2", "otherwise"),
]


def check_decisions(path):
    (file,) = (path / "_decisions").glob("*.parquet")
    rows = pyarrow.parquet.read_table(file).to_pylist()
    assert [row.pop("run") for row in rows] == ["r", "r"]
    assert [Decision(**{**row, "figures": dict(row["figures"])}) for row in rows] == DECISIONS


def test_decisions_of_a_simulation_are_a_table(tmp_path):
    writer = TraceWriter(tmp_path, "r")
    with writer:
        for decision in DECISIONS:
            writer.add_decision(decision)
    check_decisions(writer.path)


def test_decisions_of_a_live_broker_are_a_table(tmp_path):
    with LiveTrace(tmp_path, "r", "B1") as trace:
        for decision in DECISIONS:
            trace.add_decision(decision)
    assert trace.dropped == 0
    check_decisions(trace.path)


def test_modules_have_a_status():
    options = {"report": LoadReportOptions(), "self_organise": SelfOrganiseOptions()}
    assert options.keys() == MODULES.keys()
    made_network = SimulatedNetwork(CHAIN, PROTOCOLS["destination"].make, make_modules=lambda at: make_modules(at, options))
    made_network.scheduler.run(3.5)
    status = made_network.broker("B2").module_status()
    assert status["report"] == {"reports": 3, "every_s": 1.0}
    assert status["self_organise"]["links"] == 2


# ---- traffic


def test_control_is_counted_by_module_and_kind():
    sent = [PublishControl(call()), PublishControl(call(), urgent=True), SendToNeighbour("B2", "hi", b"")]
    made_network, _ = network(CHAIN, {"B1": [(1.0, sent)]})
    made_network.scheduler.run(2.0)
    counts = {
        id: {(each.module, each.kind): (each.received, each.sent) for each in made_network.broker(id).statistics().module_traffic}
        for id in CHAIN.ids
    }
    assert counts == {
        "B1": {("scripted", "CALL"): (0, 2), ("scripted", "hi"): (0, 1)},
        "B2": {("scripted", "CALL"): (2, 2), ("scripted", "hi"): (1, 0)},
        "B3": {("scripted", "CALL"): (2, 0)},
    }


# ---- forged control


def forger(made_network, name="forger"):
    made_network.add_client(name, "B1")
    made_network.say(name, Advertise(f"{name}/a", CALL))
    made_network.scheduler.run(1.0)


def test_a_publication_of_a_modules_class_by_a_client_is_ignored_and_recorded_once():
    made_network, made = network(CHAIN)
    forger(made_network)
    for _ in range(3):
        made_network.publish("forger", call())
    made_network.scheduler.run(2.0)
    assert not any(module.of(Delivered) for module in made.values())
    assert [(each.broker, each.what, each.about) for each in made_network.decisions] == [
        (broker, "ignore", "forger") for broker in CHAIN.ids
    ]
    assert made_network.broker("B3").statistics().forged == 3


@pytest.mark.parametrize("priority", [Priority.CONTROL, Priority.URGENT])
def test_a_client_that_publishes_control_is_rejected(priority):
    made_network, made = network(CHAIN)
    forger(made_network)
    session = made_network.broker("B1")._sessions["forger"]
    header = Header("B3/scripted", 0, 0.0, 9, priority=priority)
    frame = BatchFrame(session.peer_epoch, session.epoch, session.inbound.expected, 0, Rows((Publish(call(), header),)))
    made_network.nodes["B1"].handle(FrameArrived("forger", frame))
    made_network.scheduler.run(2.0)
    assert [(each.peer, each.code) for each in made_network.refusals] == [("forger", "bad-frame")]
    assert not any(module.of(Delivered) for module in made.values())


@pytest.mark.parametrize("urgent", [False, True])
def test_a_client_that_sends_a_modules_message_is_rejected(urgent):
    made_network, made = network(CHAIN)
    forger(made_network)
    session, message = made_network.broker("B1")._sessions["forger"], ModuleMessage("scripted", "hi", b"")
    numbers = session.peer_epoch, session.epoch, session.inbound.expected, 0
    frame = UrgentMessageFrame(*numbers[:2], message) if urgent else ControlFrame(*numbers, message)
    made_network.nodes["B1"].handle(FrameArrived("forger", frame))
    made_network.scheduler.run(2.0)
    assert [(each.peer, each.code) for each in made_network.refusals] == [("forger", "bad-frame")]
    assert not made["B1"].of(NeighbourMessage)


def test_a_client_with_the_name_of_a_module_is_rejected():
    made_network, _ = network(CHAIN)
    made_network.add_client("B2/scripted", "B1")
    made_network.scheduler.run(1.0)
    assert {(each.peer, each.code) for each in made_network.refusals} == {("B2/scripted", "bad-name")}
    assert "B2/scripted" not in made_network.broker("B1").clients()


def test_a_forger_does_not_stop_others():
    made_network, made = network(CHAIN, {"B1": [(3.0, [PublishControl(call())])]})
    forger(made_network)
    made_network.publish("forger", parse_publication("[class,'CALL'],[from,'B1']"))
    made_network.scheduler.run(4.0)
    assert [len(module.of(Delivered)) for module in made.values()] == [1, 1, 1]


EPOCH = SessionEpoch(1, 0)
MESSAGE = ModuleMessage("scripted", "hi", b"")


def raw(header):
    """Publications as they arrive over TCP."""
    data = b"".join(encode(BatchFrame(EPOCH, EPOCH, 0, 0, Rows((Publish(call(), header),)))))
    return decode(data[HEAD.size - 1], data[HEAD.size :])


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (ControlFrame(EPOCH, EPOCH, 0, 0, MESSAGE), "bad-frame"),
        (UrgentMessageFrame(EPOCH, EPOCH, MESSAGE), "bad-frame"),
        (raw(Header("forger", priority=Priority.CONTROL)), "bad-publication"),
        (raw(Header("forger", priority=Priority.URGENT)), "bad-publication"),
        (raw(Header("B2/scripted")), "bad-publication"),
    ],
)
def test_a_live_broker_rejects_forged_frames_before_its_core(frame, code):
    with pytest.raises(Refused) as refused:
        check_frame(frame, "forger", ALL, 0, 64, 0)
    assert refused.value.code == code
