"""Modules: they watch, set timers and talk to each other through the network."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from overweave.broker.modules import with_collector
from overweave.broker.modules.load_report import LoadReporter, LoadReportOptions
from overweave.contract.effects import SetTimer
from overweave.contract.modules import BROKER_STATUS, ControlApplied, Delivered, PublishControl, Routed, SendControl, Started
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

GREETING = parse_filter("[class,eq,'GREETING'],[from,isPresent,'']")


class Greeter:
    """Greets everybody once, and notes what it sees."""

    watches = (Routed, ControlApplied)

    def __init__(self, broker):
        self._broker = broker
        self.greeted, self.passed, self.heard = [], [], []

    def handle(self, stimulus, now_s):
        match stimulus:
            case Started():
                yield SendControl(Advertise(f"{self._broker}/a", GREETING))
                yield SendControl(Subscribe(f"{self._broker}/s", GREETING))
                yield SetTimer("greet", now_s + 1)
            case TimerFired("greet"):
                yield PublishControl(Publication({"class": "GREETING", "from": self._broker}))
            case Delivered(publish, subscription):
                assert subscription == f"{self._broker}/s"
                self.greeted.append(publish.publication["from"])
            case Routed(batch, peer, to):
                self.passed.append((peer, batch.count, sorted(peer for peer, _ in to)))
            case ControlApplied(message, peer, client):
                self.heard.append((message.id, peer, client))


def test_modules_of_all_brokers_hear_each_other():
    made = {}

    def modules(at):
        return {"greeter": made.setdefault(at.broker, Greeter(at.broker))}

    overlay = make_overlay("balanced", brokers=7, degree=3)
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, make_modules=modules)
    network.scheduler.run()
    for greeter in made.values():
        assert sorted(greeter.greeted) == sorted(overlay.ids)


def test_a_module_watches_what_passes():
    made = {}

    def modules(at):
        return {"greeter": made.setdefault(at.broker, Greeter(at.broker))}

    network = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS["filter"].make, make_modules=modules)
    network.add_client("p", "B1")
    network.add_client("s", "B2")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.scheduler.run()
    network.say("s", Subscribe("s1", parse_filter("[x,>,1]")))
    network.scheduler.run()
    for module in made.values():
        module.passed.clear()
    network.publish("p", parse_publication("[x,2]"))
    network.scheduler.run()
    assert made["B1"].passed == [("p", 1, ["B2"])]
    assert made["B2"].passed == [("B1", 1, ["s"])]
    assert ("a", "p", True) in made["B1"].heard
    assert ("a", "B1", False) in made["B2"].heard
    assert ("s1", "B2", False) in made["B1"].heard


def test_brokers_report_to_whoever_subscribes():
    network = SimulatedNetwork(
        make_overlay("star", brokers=4),
        PROTOCOLS["filter"].make,
        make_modules=lambda at: {"report": LoadReporter(at.broker, LoadReportOptions(every_s=0.5))},
    )
    network.add_client("operator", "B2")
    network.say("operator", Subscribe("status", parse_filter(f"[class,eq,'{BROKER_STATUS}']")))
    network.scheduler.run(1.8)
    publishers = {publisher for publisher, _, _ in network.deliveries}
    assert publishers == {f"B{i}/report" for i in range(1, 5)}


def test_a_report_says_what_was_measured():
    report = LoadReporter("B1", LoadReportOptions())
    assert list(report.handle(LoadMeasured(7.0, 8.0, 0.1, 3), 0.0)) == []
    told, again = report.handle(TimerFired("report"), 4.0)
    assert told.publication["input_hz"] == 7.0
    assert again == SetTimer("report", 5.0)


def test_a_module_hears_nothing_that_a_client_publishes():
    made = {}

    def modules(at):
        return {"greeter": made.setdefault(at.broker, Greeter(at.broker))}

    network = SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS["filter"].make, make_modules=modules)
    network.add_client("forger", "B1")
    network.say("forger", Advertise("a", GREETING))
    network.scheduler.run()
    network.publish("forger", Publication({"class": "GREETING", "from": "forger"}))
    network.scheduler.run()
    assert all("forger" not in greeter.greeted for greeter in made.values())


def calls_of_a_batch(make_modules):
    """What the cores call from publishing a batch to its last acknowledgement, without the simulator's measures of load."""
    network = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS["filter"].make, make_modules=make_modules)
    network.add_client("p", "B1")
    network.add_client("s", "B2")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.scheduler.run(network.scheduler.now_s + 10)
    network.say("s", Subscribe("s1", parse_filter("[x,>,1]")))
    network.scheduler.run(network.scheduler.now_s + 10)
    calls, batches = Counter(), [[parse_publication(f"[x,{x}]") for x in range(20)] for _ in range(2)]

    def count(frame, event, argument):
        package = Path(frame.f_code.co_filename).parts
        if event == "call" and not {"broker", "routing", "matching"}.isdisjoint(package):
            calls[package[-1], frame.f_code.co_name] += 1

    network.publish("p", *batches[0])  # the first one compiles
    network.scheduler.run(40.2)  # between two measurements of the load, which modules get
    sys.setprofile(count)
    try:
        network.publish("p", *batches[1])
        network.scheduler.run(40.8)
    finally:
        sys.setprofile(None)
    assert sum(network.deliveries.values()) == 36
    return calls


@pytest.mark.unvalidated
def test_modules_that_watch_nothing_cost_publications_nothing():
    options = LoadReportOptions(every_s=1e6)
    plain = calls_of_a_batch(lambda _: {})
    idle = calls_of_a_batch(lambda at: with_collector(at, {"report": LoadReporter(at.broker, options)}))
    assert plain == idle
    watching = calls_of_a_batch(lambda at: {"greeter": Greeter(at.broker)})
    assert sum(watching.values()) > sum(plain.values())
