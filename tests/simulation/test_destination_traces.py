"""Traces of what is routed by destination: a row for each subscription that got a publication, or for a broker it passed."""

from collections import Counter

from overweave.broker.modules.tracer import Tracer
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


def test_a_broker_that_delivers_and_passes_on_is_in_the_trace_once():
    overlay = make_overlay("chain", brokers=5)
    network = SimulatedNetwork(
        overlay, PROTOCOLS["destination"].make, make_modules=lambda at: {"tracer": Tracer(at.broker, "run")}
    )
    for client, broker in (("p", "B1"), ("s3", "B3"), ("s5", "B5")):
        network.add_client(client, broker)
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.say("s3", Subscribe("s3", parse_filter("[x,>,4]")))
    network.say("s5", Subscribe("s5", parse_filter("[x,<,9]")))
    network.scheduler.run()
    network.publish("p", *(parse_publication(f"[x,{x}]") for x in (3, 7, 9)))
    network.scheduler.run()
    rows = Counter((record.sequence, record.broker, record.subscription, record.hops) for record in network.records)
    expected = [(0, "B3", None, 2), (1, "B3", "s3", 2), (2, "B1", None, 0), (2, "B2", None, 1), (2, "B3", "s3", 2)]
    for sequence in (0, 1):
        expected += [(sequence, "B1", None, 0), (sequence, "B2", None, 1), (sequence, "B4", None, 3), (sequence, "B5", "s5", 4)]
    assert rows == Counter(expected)
