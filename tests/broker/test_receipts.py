"""How many publications of a client matched nobody at its broker, as it is told with what is settled."""

import pytest

from overweave.batches.objects import Rows
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Notify
from overweave.contract.frames import Acknowledgement, BatchFrame
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

ADVERTISED = [name for name, protocol in PROTOCOLS.items() if protocol.needs_advertisements]
SUBSCRIPTIONS = {("near", "B1"): "[x,<,4]", ("near2", "B1"): "[x,>,8]", ("far", "B3"): "[x,>,6]"}


def network(protocol, faults=None, seed=1):
    made = SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS[protocol].make, seed=seed, faults=faults)
    made.add_client("p", "B1")
    made.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    made.scheduler.run(1.0)
    for (client, broker), filter in SUBSCRIPTIONS.items():
        made.add_client(client, broker)
        made.say(client, Subscribe(f"{client}/s", parse_filter(filter)))
    made.scheduler.run(3.0)
    return made


def unmatched(made):
    return made.client("p").unmatched_publications()


def is_wanted(publication):
    return any(matches(parse_filter(filter), publication) for filter in SUBSCRIPTIONS.values())


def publications():
    return [parse_publication(f"[x,{number % 11}]") for number in range(60)]


@pytest.mark.parametrize("size", [1, 7, 60])
@pytest.mark.parametrize("protocol", [*ADVERTISED, "simple", "covering-peer"])
def test_rows_in_no_forward_are_counted(protocol, size):
    made = network(protocol)
    for first in range(0, 60, size):
        made.publish("p", *publications()[first : first + size])
    made.run_until_quiescent()
    assert unmatched(made) == sum(not is_wanted(each) for each in publications()) > 0
    assert made.client("p").settled_publications() == 60


@pytest.mark.parametrize("faults", [Faults(loss=0.2, until_s=20), Faults(cut_every_s=1.0, until_s=20)], ids=["loss", "cuts"])
@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_counts_survive_what_goes_wrong(protocol, faults):
    """Copies of what was counted already count as forwarded, so there may be fewer; there are never more."""
    for seed in range(5):
        made = network(protocol, faults, seed)
        for each in publications():
            made.publish("p", each)
            made.scheduler.run(made.scheduler.now_s + 0.05)
        made.run_until_quiescent()
        made.scheduler.run(made.scheduler.now_s + 2.0)
        made.run_until_quiescent()
        expected = sum(not is_wanted(each) for each in publications())
        assert unmatched(made) == expected if protocol == "filter" else unmatched(made) <= expected


def test_a_broker_that_restarts_counts_anew_and_nothing_is_counted_twice():
    made = network("filter")
    for number in range(4):
        made.publish("p", parse_publication("[x,5]"), parse_publication("[x,1]"))
        made.run_until_quiescent()
        assert (unmatched(made), made.client("p").settled_publications()) == (number + 1, 2 * (number + 1))
        made.crash("B1", 1.0)
        made.run_until_quiescent()
        made.scheduler.run(made.scheduler.now_s + 1.0)


def rows(count):
    return Rows(tuple(Publish(parse_publication("[x,1]"), Header("p", number)) for number in range(count)))


def established(acknowledge_every=64):
    """Two sessions that know each other."""
    left, right = (
        Session(peer, EpochCounter(1), SessionConfig(acknowledge_every=acknowledge_every), AckScheduler()) for peer in ("r", "l")
    )
    effects = []
    left.connect(effects)
    right.connect(effects)
    for _ in range(4):
        frames, effects = effects, []
        for effect in frames:
            (right if effect.peer == "r" else left).on_hello(effect.frame, (), effects)
    assert left.established
    assert right.established
    return left, right


def test_what_is_settled_out_of_order_is_counted_in_order():
    client, broker = established()
    client.outbound.send(rows(8), None, [])
    broker.inbound.expected = 8
    for sequence, count in ((2, 1), (6, 2), (4, 0)):
        broker.inbound.settle(sequence, 2, unmatched=count)
        broker.validate()
    effects = []
    broker.acknowledge(effects)
    assert (effects[-1].frame.acknowledged, effects[-1].frame.unmatched) == (0, 0)
    broker.inbound.settle(0, 2, unmatched=1)
    broker.validate()
    broker.acknowledge(effects)
    assert (effects[-1].frame.acknowledged, effects[-1].frame.unmatched) == (8, 4)
    client.on_acknowledgement(effects[-1].frame, [])
    assert (client.peer_unmatched, client.outbound.unsettled_windowed_rows()) == (4, 0)


def test_contents_that_go_out_do_not_settle_what_is_still_to_be_counted():
    """Else the client would take it for forwarded before the acknowledgement says that it was not."""
    client, broker = established()
    client.outbound.send(rows(3), None, [])
    broker.inbound.expected = 3
    PendingAck(broker.inbound, broker.inbound.stream, 0, 3).release()
    effects = []
    broker.outbound.send(rows(1), None, effects)
    assert effects[-1].frame.acknowledged == 3
    client.outbound.send(rows(2), None, [])
    broker.inbound.expected = 5
    ack = PendingAck(broker.inbound, broker.inbound.stream, 3, 2)
    ack.unmatched = 1
    ack.release()
    broker.outbound.send(rows(1), None, effects)
    assert isinstance(effects[-1].frame, BatchFrame)
    assert effects[-1].frame.acknowledged == 3
    assert broker.inbound.has_unacknowledged()
    broker.acknowledge(effects)
    assert isinstance(effects[-1].frame, Acknowledgement)
    broker.outbound.send(rows(1), None, effects)
    assert effects[-1].frame.acknowledged == 5


@pytest.mark.parametrize("protocol", ADVERTISED)
def test_what_no_advertisement_covers_reaches_nobody(protocol):
    """Not even subscribers of the same broker, so that nobody believes that it works."""
    made = network(protocol)
    made.publish("p", *map(parse_publication, ("[x,1]", "[x,1],[y,1]", "[x,9]", "[x,'text']")))
    made.run_until_quiescent()
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("p", "not-advertised")]
    text = "publication [x,1],[y,1]: not covered by any advertisement of 'p'; 2 publications were dropped"
    assert text in made.refusals[0].text
    assert made.deliveries == {("p", 0, "near/s"): 1, ("p", 2, "near2/s"): 1, ("p", 2, "far/s"): 1}
    assert made.broker("B1").statistics().unadvertised == unmatched(made) == 2


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - set(ADVERTISED)))
def test_where_advertisements_do_not_matter_none_are_needed(protocol):
    made = network(protocol)
    made.publish("p", parse_publication("[x,1],[y,1]"))
    made.run_until_quiescent()
    assert (made.refusals, set(made.deliveries)) == ([], {("p", 0, "near/s")})


@pytest.mark.parametrize("protocol", ADVERTISED)
def test_what_was_published_before_goes_by_what_was_advertised_then(protocol):
    """Also when the broker held it meanwhile, because it had just started."""
    made = network(protocol)
    made.crash("B1", 0.5)
    made.scheduler.run(made.scheduler.now_s + 0.1)
    made.publish("p", parse_publication("[x,1]"))
    made.scheduler.run(made.scheduler.now_s + 0.42)
    made.publish("p", parse_publication("[x,2]"))
    made.scheduler.run(made.scheduler.now_s + 5.0)
    made.run_until_quiescent()
    made.say("p", Unadvertise("a"))
    made.publish("p", parse_publication("[x,3]"))
    made.run_until_quiescent()
    assert set(made.deliveries) == {("p", 0, "near/s"), ("p", 1, "near/s")}
    assert [refusal.code for refusal in made.refusals] == ["not-advertised"]


def test_every_batch_has_a_notice_with_a_higher_number():
    made = network("filter")
    broker, numbers = made.broker("B1"), []
    handle = broker.handle

    def watched(stimulus, now_s):
        effects = handle(stimulus, now_s)
        numbers.extend(effect.number for effect in effects if isinstance(effect, Notify))
        return effects

    broker.handle = watched
    for _ in range(3):
        made.publish("p", parse_publication("[y,1]"), parse_publication("[y,2]"))
        made.run_until_quiescent()
    assert numbers == [2, 4, 6]
