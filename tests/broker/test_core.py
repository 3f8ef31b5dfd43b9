"""The broker core through its one door."""

import pytest

from overweave.broker.core import BrokerCore
from overweave.broker.seen import Seen
from overweave.contract.effects import Keep, Refuse
from overweave.contract.stimuli import FrameArrived, PeerLeft
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.routing.filter import FilterBased

STOCK = parse_filter("[class,eq,'STOCK'],[x,isPresent,0]")


def network(protocol="filter", brokers=3):
    made = SimulatedNetwork(make_overlay("chain", brokers=brokers), PROTOCOLS[protocol].make)
    made.add_client("p", "B1")
    made.add_client("s", f"B{brokers}")
    made.say("p", Advertise("a", STOCK))
    made.settle()
    return made


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_publication_crosses_the_network_under_every_protocol(protocol):
    made = network(protocol)
    made.say("s", Subscribe("s1", parse_filter("[x,>,5]")))
    made.say("s", Subscribe("s2", parse_filter("[x,>,7]")))
    made.settle()
    made.kernel.run(made.kernel.now_s + 1)
    for x in (3, 6, 9):
        made.publish("p", parse_publication(f"[class,'STOCK'],[x,{x}]"))
    made.settle()
    assert made.deliveries == {("p", 1, "s1"): 1, ("p", 2, "s1"): 1, ("p", 2, "s2"): 1}


def test_statistics_count_what_happened():
    made = network()
    made.say("s", Subscribe("s1", parse_filter("[x,>,5]")))
    made.settle()
    made.kernel.run(made.kernel.now_s + 1)
    made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
    made.settle()
    middle, last = made.broker("B2").statistics(), made.broker("B3").statistics()
    assert (middle.publications_in, middle.publications_out, middle.pure_forwards, middle.deliveries) == (1, 1, 1, 0)
    assert (last.publications_in, last.publications_out, last.pure_forwards, last.deliveries) == (1, 0, 0, 1)
    assert last.tables == {"advertisements": 1, "subscriptions": 1, "offers": 1}


def test_a_publisher_without_an_advertisement_is_refused_where_one_is_needed():
    made = network("filter-general")
    made.publish("p", parse_publication("[class,'OTHER'],[x,9]"))
    made.settle()
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("p", "not-advertised")]


def test_an_id_belongs_to_one_client():
    made = network()
    made.add_client("other", "B3")
    made.say("s", Subscribe("s1", STOCK))
    made.settle()
    made.say("other", Subscribe("s1", STOCK))
    made.say("other", Unsubscribe("s1"))
    made.settle()
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("other", "id-in-use")]
    assert made.broker("B3").statistics().tables["subscriptions"] == 1


def test_an_id_is_free_again_when_it_was_withdrawn():
    made = network()
    made.say("s", Subscribe("s1", STOCK))
    made.say("s", Unsubscribe("s1"))
    made.settle()
    made.add_client("other", "B3")
    made.say("other", Subscribe("s1", STOCK))
    made.settle()
    made.kernel.run(made.kernel.now_s + 1)
    made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
    made.settle()
    assert made.refusals == []
    assert made.deliveries == {("p", 0, "s1"): 1}


def test_what_a_client_says_is_kept_and_restored():
    journal = {("subscription", "s1"): ("c", STOCK), ("advertisement", "a1"): ("c", STOCK)}
    core = BrokerCore("B1", FilterBased(), ["B2"], incarnation=2, journal=journal)
    assert core.statistics().tables == {"advertisements": 1, "subscriptions": 1, "offers": 0}
    gone = core.handle(PeerLeft("c"), 1.0)
    assert [effect.key for effect in gone if isinstance(effect, Keep) and effect.value is None] == list(journal)
    assert not any(core.statistics().tables.values())


def test_strangers_are_not_heard():
    core = BrokerCore("B1", FilterBased(), [])
    assert core.handle(FrameArrived("nobody", None), 0.0) == []
    assert not [effect for effect in core.handle(PeerLeft("nobody"), 0.0) if isinstance(effect, Refuse)]


def test_seen_forgets_nothing_it_may_need():
    seen = Seen()
    assert [seen.add("p", number) for number in (3, 0, 1, 3, 2, 2, 4)] == [True, True, True, False, True, False, True]
    assert seen.add("q", 3)
