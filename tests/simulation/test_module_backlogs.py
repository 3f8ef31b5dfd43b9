"""Publications of modules are not kept for a broker that is down: nothing grows meanwhile, and later ones arrive."""

import pytest

from overweave.broker.modules.load_report import LoadReporter, LoadReportOptions
from overweave.broker.session import module_rows
from overweave.contract.config import BrokerConfig
from overweave.contract.modules import BROKER_STATUS
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

EVERY_S, DOWN_S, LIMIT = 0.5, 100.0, 30
REPORTS = {f"B{number}/report" for number in range(1, 5)}


def reporting(protocol):
    """A chain of four brokers that report, with a subscriber of the reports at each end; and what subscribers have received."""
    received = []

    def on_delivery(parts):
        received.extend((subscription, publish.header) for subscription, batch in parts for publish in batch.publishes())

    network = SimulatedNetwork(
        make_overlay("chain", brokers=4),
        PROTOCOLS[protocol].make,
        config=BrokerConfig(heartbeat_s=0.5),
        make_modules=lambda at: {"report": LoadReporter(at.broker, LoadReportOptions(EVERY_S))},
        on_delivery=on_delivery,
    )
    network.add_client("p", "B1")
    network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
    for client, broker in (("near", "B1"), ("far", "B4")):
        network.add_client(client, broker)
        network.say(client, Subscribe(f"{client}/status", parse_filter(f"[class,eq,'{BROKER_STATUS}']")))
    network.say("far", Subscribe("far/x", parse_filter("[x,>=,0]")))
    network.scheduler.run(5.0)
    return network, received


def sent(network):
    """The number of messages that neighbours of running brokers have not settled."""
    counts = [network.broker(id).statistics().unsettled for id in network.running()]
    return sum(unsettled.get(id, 0) for unsettled in counts for id in network.overlay.ids)


def after_an_outage(network, received, restarted=()):
    """What is in flight at the end of an outage of B4; some brokers restart meanwhile. Subscribers get more afterwards."""
    network.crash("B4")
    for broker in restarted:
        network.crash(broker)
    for broker in restarted:
        network.restart(broker)
    network.scheduler.run(network.scheduler.now_s + DOWN_S)
    assert not [batch for id in network.running() for batch in network.broker(id)._context.deferred.batches()]
    at_the_end = sent(network)
    received.clear()
    network.restart("B4")
    network.scheduler.run(network.scheduler.now_s + 20.0)
    for id in network.running():
        network.broker(id).validate()
    return at_the_end


@pytest.mark.parametrize("protocol", ["filter", "filter-general", "destination"])
def test_reports_are_dropped_while_a_broker_on_their_way_is_down(protocol):
    network, received = reporting(protocol)
    assert {(subscription, header.publisher) for subscription, header in received} == {
        (subscription, report) for subscription in ("near/status", "far/status") for report in REPORTS
    }
    down_s = network.scheduler.now_s
    assert after_an_outage(network, received) < 12
    reports = [header for subscription, header in received if subscription == "far/status"]
    assert {header.publisher for header in reports} == REPORTS
    assert not [header for header in reports if down_s + 3.0 < header.published_at_s < down_s + DOWN_S - 3.0]


def test_dropped_reports_are_counted():
    network, received = reporting("filter")
    assert [network.broker(id).statistics().control_dropped for id in network.overlay.ids] == [0, 0, 0, 0]
    after_an_outage(network, received)
    assert network.broker("B3").statistics().control_dropped == pytest.approx(3 * DOWN_S / EVERY_S, abs=10)


@pytest.mark.parametrize("restarted", [("B3",), ("B2", "B3")], ids=["one", "two"])
@pytest.mark.parametrize("protocol", ["filter", "filter-general"])
def test_reports_are_not_deferred_at_a_broker_that_waits_for_a_neighbour(protocol, restarted, monkeypatch):
    """Control messages wait, and reports behind them are limited."""
    monkeypatch.setattr(module_rows, "MODULE_ROWS_MAX", LIMIT)
    network, received = reporting(protocol)
    assert after_an_outage(network, received, restarted) < 4 * LIMIT + 24
    assert {header.publisher for subscription, header in received if subscription == "far/status"} == REPORTS


@pytest.mark.parametrize("protocol", ["filter", "filter-general"])
def test_reports_behind_a_publication_that_waits_are_limited(protocol, monkeypatch):
    """Brokers acknowledge in order: all that comes after it is kept, though it has arrived."""
    monkeypatch.setattr(module_rows, "MODULE_ROWS_MAX", LIMIT)
    network, received = reporting(protocol)
    network.cut_link(("B3", "B4"), 1.0)
    network.publish("p", parse_publication("[x,1]"))
    network.scheduler.run(network.scheduler.now_s + 0.5)
    assert after_an_outage(network, received) < 4 * LIMIT + 24
    assert [subscription for subscription, header in received if header.publisher == "p"] == ["far/x"]
    assert {header.publisher for subscription, header in received if subscription == "far/status"} == REPORTS
