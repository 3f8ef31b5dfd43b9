"""Modules: they watch, set timers and talk to each other through the network."""

from overweave.broker.modules.load_report import CLASS, LoadReporter, LoadReportOptions
from overweave.contract.effects import SetTimer
from overweave.contract.modules import ControlApplied, Delivered, PublishControl, Routed, SendControl, Started
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
    network.say("operator", Subscribe("status", parse_filter(f"[class,eq,'{CLASS}']")))
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
