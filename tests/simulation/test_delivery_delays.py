"""Observations have the delays of deliveries since they began to ask for them, and what is unsettled."""

import msgspec
import pytest
from test_collector import answer, simulated

from overweave.contract.observation import OBSERVE, Observation, ObserveRequest
from overweave.drivers.sim.costs import Costs
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.reweave.deliveries import DeliveryMeter

FILTER = parse_filter("[x,>,0]")


def asked(network, delays_s=30.0):
    body = msgspec.msgpack.encode(ObserveRequest(delays_s)) if delays_s else b""
    return msgspec.msgpack.decode(answer(network, "B1", OBSERVE, body), type=Observation)


def market(**options):
    """A publisher at one end of a chain and a subscriber at the other."""
    network = simulated(make_overlay("chain", brokers=3), **options)
    network.add_client("market", "B1")
    network.add_client("reader", "B3")
    network.say("market", Advertise("market/a", FILTER))
    network.say("reader", Subscribe("reader/1", FILTER))
    network.scheduler.run(2.0)
    return network


def publish(network, count, every_s=0.01):
    for number in range(1, count + 1):
        network.publish("market", Publication({"x": number}))
        network.scheduler.run(network.scheduler.now_s + every_s)


def watched(network):
    return [id for id in network.overlay.ids if network.broker(id)._context.modules.watches_routed]


def test_delays_are_counted_only_while_somebody_asks():
    network = market()
    publish(network, 50)
    found = asked(network, 0.0)
    assert watched(network) == []
    assert all(not each.delays for each in found.brokers.values())
    asked(network)
    assert watched(network) == list(network.overlay.ids)
    publish(network, 50)
    found = asked(network, 0.0)
    assert {id: sum(each.delays.values()) for id, each in found.brokers.items()} == {"B1": 0, "B2": 0, "B3": 50}
    network.scheduler.run(network.scheduler.now_s + 40.0)
    assert watched(network) == []


@pytest.mark.parametrize("costs", [Costs(matching_delay_base_s=0.02), Costs(output_bandwidth_bytes_per_s=5e3)])
def test_a_slow_broker_shows_in_the_delays_and_in_what_is_unsettled(costs):
    network, meter = market(own_costs={"B2": costs}), DeliveryMeter()
    meter.measure(asked(network, 1_000.0))
    publish(network, 50, every_s=0.2)
    calm = meter.measure(asked(network))
    publish(network, 150, every_s=0.002)
    token = network.ask("B2", "collector", OBSERVE)
    while not network.answers[token]:
        network.scheduler.run(network.scheduler.now_s + 0.1)
    queued = msgspec.msgpack.decode(network.answers[token][0].body, type=Observation)
    busy = meter.measure(asked(network))
    assert calm.delay_s < 0.1
    assert calm.unsettled == 0
    assert busy.delay_s > 5 * calm.delay_s
    assert meter.measure(queued).unsettled > 50


def test_those_who_ask_at_the_same_time_do_not_disturb_each_other():
    network, one, other = market(), DeliveryMeter(), DeliveryMeter()
    one.measure(asked(network))
    other.measure(asked(network))
    publish(network, 15)
    assert one.measure(asked(network)).delay_s is None, "too few"
    publish(network, 15)
    assert one.measure(asked(network)).delay_s is not None
    assert other.measure(asked(network)).delay_s is not None
    assert one.measure(asked(network)).delay_s is None, "none since then"


def test_a_time_out_of_bounds_is_rejected():
    network = market()
    error = answer(network, "B1", OBSERVE, msgspec.msgpack.encode(ObserveRequest(1e9)))
    assert error == "observe: delays_s: expected a time from 0 to 3600 s, got 1e+09"
    assert "observe: " in answer(network, "B1", OBSERVE, b"\xc1")
