"""The broker core through its one door."""

import pytest

from overweave.batches.base import BatchHead
from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.core import BrokerCore
from overweave.broker.registry import Registry
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Persist, Reject, SendFrame
from overweave.contract.frames import BatchFrame, Hello, SessionEpoch
from overweave.contract.stimuli import FrameArrived, PeerLeft
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import at_generation
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.routing.base import Engine
from overweave.routing.dedup import DedupWindow
from overweave.routing.filter import FilterBased

STOCK = parse_filter("[class,eq,'STOCK'],[x,isPresent,0]")


def network(protocol="filter", brokers=3):
    made = SimulatedNetwork(make_overlay("chain", brokers=brokers), PROTOCOLS[protocol].make)
    made.add_client("p", "B1")
    made.add_client("s", f"B{brokers}")
    made.say("p", Advertise("a", STOCK))
    made.run_until_quiescent()
    return made


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_publication_crosses_the_network_under_every_protocol(protocol):
    made = network(protocol)
    made.say("s", Subscribe("s1", parse_filter("[x,>,5]")))
    made.say("s", Subscribe("s2", parse_filter("[x,>,7]")))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    for x in (3, 6, 9):
        made.publish("p", parse_publication(f"[class,'STOCK'],[x,{x}]"))
    made.run_until_quiescent()
    assert made.deliveries == {("p", 1, "s1"): 1, ("p", 2, "s1"): 1, ("p", 2, "s2"): 1}


def test_statistics_count_what_happened():
    made = network()
    made.say("s", Subscribe("s1", parse_filter("[x,>,5]")))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
    made.run_until_quiescent()
    middle, last = made.broker("B2").statistics(), made.broker("B3").statistics()
    assert (middle.publications_in, middle.publications_out, middle.publications_to_clients) == (1, 1, 0)
    assert (last.publications_in, last.publications_out, last.publications_to_clients) == (1, 0, 1)
    assert last.tables == {"advertisements": 1, "subscriptions": 1, "forwarded_subscriptions": 1}


def test_rows_that_are_not_sound_are_refused_and_not_asked_for_again():
    made = network("destination")
    rows = encode_rows([Publish(parse_publication("[class,'STOCK'],[x,9]"), Header("p", 7))])
    number = make_overlay("chain", brokers=3).ids.index("B3")
    session, effects, last = made.broker("B2")._sessions["B3"], [], made.broker("B3")
    for data in (b"\xff" + rows[1:], rows):
        session.outbound.send(RawRows(data, 1, BatchHead(0, 9, 0, 1 << number)), None, effects, window_exempt=True)
    broken, sound = (effect.frame for effect in effects)
    assert [effect.code for effect in last.handle(FrameArrived("B2", broken), 1.0) if isinstance(effect, Reject)] == ["bad-frame"]
    assert (last.statistics().publications_in, last.unsettled_inbound_rows("B2")) == (0, 0)
    last.handle(FrameArrived("B2", sound), 1.0)
    assert last.statistics().publications_in == 1


def test_a_client_that_sends_twice_does_not_suffer_from_garbage_that_passes():
    made = network("destination")
    made.add_client("c", "B2")
    made.say("c", Advertise("b", STOCK))
    made.run_until_quiescent()
    row = encode_rows([Publish(parse_publication("[class,'STOCK'],[x,9]"), Header("c", 7))])
    middle, effects = made.broker("B2"), []
    garbage = RawRows(b"\xff" + row[1:], 1, BatchHead(0, 9, 0, 1 << make_overlay("chain", brokers=3).position("B3")))
    made.broker("B1")._sessions["B2"].outbound.send(garbage, None, effects, window_exempt=True)
    passed = middle.handle(FrameArrived("B1", effects[0].frame), 1.0)
    assert [effect.peer for effect in passed if isinstance(effect, SendFrame)] == ["B3"]
    session = middle._sessions["c"]
    for _ in range(2):
        frame = BatchFrame(session.peer_epoch, session.epoch, session.inbound.expected, 0, RawRows(row, 1))
        middle.handle(FrameArrived("c", frame), 2.0)
    assert (middle.statistics().publications_in, middle.statistics().duplicates) == (3, 1)


def test_a_publisher_without_an_advertisement_is_refused_where_one_is_needed():
    made = network("filter-general")
    made.publish("p", parse_publication("[class,'OTHER'],[x,9]"))
    made.run_until_quiescent()
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("p", "not-advertised")]


def test_an_id_belongs_to_one_client():
    made = network()
    made.add_client("other", "B3")
    made.say("s", Subscribe("s1", STOCK))
    made.run_until_quiescent()
    made.say("other", Subscribe("s1", STOCK))
    made.say("other", Unsubscribe("s1"))
    made.run_until_quiescent()
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("other", "id-in-use")]
    assert made.broker("B3").statistics().tables["subscriptions"] == 1


def test_an_id_is_free_again_when_it_was_withdrawn():
    made = network()
    made.say("s", Subscribe("s1", STOCK))
    made.say("s", Unsubscribe("s1"))
    made.run_until_quiescent()
    made.add_client("other", "B3")
    made.say("other", Subscribe("s1", STOCK))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
    made.run_until_quiescent()
    assert made.refusals == []
    assert made.deliveries == {("p", 0, "s1"): 1}


def test_what_a_client_says_is_kept_and_restored():
    journal = {("subscription", "s1"): ("c", STOCK), ("advertisement", "a1"): ("c", STOCK)}
    for neighbours in ([], ["B2"]):
        core = BrokerCore("B1", Engine(FilterBased(), needs_advertisements=True), neighbours, incarnation=2, journal=journal)
        assert core.statistics().tables == {"advertisements": 1, "subscriptions": 1, "forwarded_subscriptions": 0}
        gone = core.handle(PeerLeft("c"), 1.0)
        assert [effect.key for effect in gone if isinstance(effect, Persist) and effect.value is None] == list(journal)
        # B2 may have a later generation of the advertisement: it is withdrawn when B2 has sent its state.
        assert core.statistics().tables == {"advertisements": len(neighbours), "subscriptions": 0, "forwarded_subscriptions": 0}


def test_strangers_are_not_heard():
    core = BrokerCore("B1", Engine(FilterBased(), needs_advertisements=True), [])
    assert core.handle(FrameArrived("nobody", None), 0.0) == []
    assert not [effect for effect in core.handle(PeerLeft("nobody"), 0.0) if isinstance(effect, Reject)]


def test_seen_forgets_nothing_it_may_need():
    seen = DedupWindow(window=100)
    assert [seen.add("p", 1, number) for number in (3, 0, 1, 3, 2, 2, 4)] == [True, True, True, False, True, False, True]
    assert seen.add("q", 1, 3)
    assert seen.add("p", 2, 3)


def subscribed(on_delivery=None, **config):
    made = SimulatedNetwork(
        make_overlay("chain", brokers=3), PROTOCOLS["filter"].make, config=BrokerConfig(**config), on_delivery=on_delivery
    )
    for client, broker in (("p", "B1"), ("s", "B3"), ("slow", "B3")):
        made.add_client(client, broker)
    made.say("p", Advertise("a", STOCK))
    made.scheduler.run(2.0)
    made.say("s", Subscribe("s1", parse_filter("[x,>,5]")))
    made.say("slow", Subscribe("s2", parse_filter("[x,>,5]")))
    made.scheduler.run(4.0)
    return made


def test_a_story_is_told_by_id():
    made = subscribed(story_length=100)
    made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
    made.publish("p", parse_publication("[class,'STOCK'],[x,3]"))
    made.run_until_quiescent()
    assert [(step.what, step.peer, step.to) for step in made.broker("B2").story("p:0")] == [("publish", "B1", ("B3",))]
    assert [(step.what, step.peer) for step in made.broker("B1").story("s1")] == [("subscribe", "B2")]
    assert [step.to for step in made.broker("B1").story("p:1")] == [()]
    assert made.broker("B1").story("nothing") == []


def test_a_story_has_all_generations_by_the_stable_id():
    made = subscribed(story_length=100)
    made.say("s", Subscribe(at_generation("s1", 1), parse_filter("[x,>,7]")))
    made.say("s", Unsubscribe("s1"))
    made.run_until_quiescent()
    assert [step.what for step in made.broker("B3").story("s1")] == ["subscribe", "subscribe", "unsubscribe", "unsubscribe"]


def test_a_generation_does_not_give_a_client_the_id_of_another():
    registry, effects, filter = Registry(), [], parse_filter("[x,>,5]")
    first, second = Subscribe("s1", filter), Subscribe(at_generation("s1", 1), filter)
    for client in ("s", "t"):
        registry.add(client)

    def registered(client, message):
        done = registry.register(client, message, effects)
        registry.validate()
        return done

    assert registered("s", first)
    assert not registered("t", second)
    assert effects.pop() == Reject("t", "id-in-use", "subscription 's1': expected an id that nobody else uses")
    assert not registered("t", Unsubscribe(second.id))
    assert not registered("t", Unsubscribe("s1"))
    assert registered("s", second)
    assert registered("s", Unsubscribe("s1"))
    assert not registered("t", first)
    # The last generation that is withdrawn frees the id.
    assert registered("s", Unsubscribe(second.id))
    assert registered("t", first)
    assert registry.count("subscription") == registry.count("subscription", "t") == 1


def test_a_client_that_does_not_read_is_cut_off_and_the_others_go_on():
    made = subscribed(slow_consumer_timeout_s=2.0)
    made.nodes["slow"].pause_reading()
    for _ in range(20):
        made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
        made.scheduler.run(made.scheduler.now_s + 0.5)
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("slow", "slow-consumer")]
    assert sum(count for (_, _, id), count in made.deliveries.items() if id == "s1") == 20
    assert made.unsettled() == 0
    assert "s2" not in str(made.broker("B3").statistics().tables)
    assert made.broker("B3").statistics().tables["subscriptions"] == 1


def publish_nines(made, count, every_s=0.05):
    for _ in range(count):
        made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
        made.scheduler.run(made.scheduler.now_s + every_s)


def got(made, subscription):
    return sum(count for (_, _, id), count in made.deliveries.items() if id == subscription)


@pytest.mark.parametrize("stall_timeout_s", [None, 0.1])
def test_a_client_that_stands_still_holds_its_publishers_back_only_for_a_moment(stall_timeout_s):
    made = subscribed(session=SessionConfig(window=8), stall_timeout_s=stall_timeout_s, slow_consumer_timeout_s=60.0)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 200)
    made.scheduler.run(made.scheduler.now_s + 1)
    if stall_timeout_s is None:
        assert got(made, "s1") < 20
    else:
        assert got(made, "s1") == 200
        assert made.unsettled() == 0
    made.nodes["slow"].resume_reading()
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    assert (got(made, "s1"), got(made, "s2"), made.refusals) == (200, 200, [])
    assert not made.broker("B3")._sessions["slow"].outbound.buffer.active


def test_a_connected_client_without_a_session_holds_its_publishers_back_only_for_a_moment():
    made = subscribed(stall_timeout_s=0.1, slow_consumer_timeout_s=60.0)
    made.nodes["slow"].pause_reading()
    session = made.broker("B3")._sessions["slow"]
    later = SessionEpoch(session.peer_epoch.incarnation + 1, 0)
    made.nodes["B3"].handle(FrameArrived("slow", Hello(later, SessionEpoch(5, 5), 0, 0, False)))
    assert not session.established
    publish_nines(made, 5)
    made.scheduler.run(made.scheduler.now_s + 0.5)
    assert (made.unsettled(), session.outbound.buffer.active) == (0, True)


def test_who_has_moved_again_holds_its_publishers_back_again():
    made = subscribed(session=SessionConfig(window=8), stall_timeout_s=0.1)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 50)
    made.nodes["slow"].resume_reading()
    made.scheduler.run(made.scheduler.now_s + 1)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 3, every_s=0.01)
    assert made.unsettled() > 0
    made.scheduler.run(made.scheduler.now_s + 1)
    assert made.unsettled() == 0


QUICK = SessionConfig(window=8, acknowledge_delay_s=0.001)


def test_who_has_half_a_window_to_settle_is_seen_to_stand_still_at_once():
    made = subscribed(session=QUICK, stall_timeout_s=10.0, slow_consumer_timeout_s=60.0)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 4, every_s=0.01)
    made.scheduler.run(made.scheduler.now_s + 1)
    assert made.unsettled() == 4
    publish_nines(made, 1, every_s=0.08)
    assert made.unsettled() == 5
    made.scheduler.run(made.scheduler.now_s + 0.05)
    assert (made.unsettled(), made.broker("B3")._sessions["slow"].outbound.buffer.active) == (0, True)
    publish_nines(made, 100, every_s=0.001)
    made.scheduler.run(made.scheduler.now_s + 0.1)
    assert (got(made, "s1"), made.unsettled()) == (105, 0)


def read_one(node):
    channel, frame = node.waiting.pop(0)
    waiting, node.waiting = node.waiting, None
    channel.arrive(frame)
    node.waiting = waiting


def test_who_settles_something_all_the_time_holds_its_publishers_back():
    made = subscribed(session=QUICK, stall_timeout_s=10.0, slow_consumer_timeout_s=60.0)
    made.nodes["slow"].pause_reading()
    for _ in range(100):
        publish_nines(made, 4, every_s=0.001)
        made.scheduler.run(made.scheduler.now_s + 0.07)
        read_one(made.nodes["slow"])
    assert made.unsettled() >= 300
    assert got(made, "s1") <= 100 + 2 * QUICK.window
    assert made.broker("B3")._sessions["slow"].outbound.buffer.bytes == 0


def test_who_pauses_again_and_again_gets_everything_in_order_and_little_is_kept_for_it():
    arrived = []
    made = subscribed(
        lambda parts: arrived.extend((to, identity[-1]) for to, batch in parts for identity in batch.identities()),
        session=QUICK, stall_timeout_s=1.0, slow_consumer_timeout_s=60.0, pending_bytes_max=20_000,
    )  # fmt: skip
    slow, session, most = made.nodes["slow"], made.broker("B3")._sessions["slow"], 0
    slow.pause_reading()
    for _ in range(20):
        for _ in range(10):
            publish_nines(made, 10, every_s=0.008)
            made.broker("B3").validate()
            most = max(most, session.outbound.buffer.bytes)
        read_one(slow)
        made.scheduler.run(made.scheduler.now_s + 0.05)
    slow.resume_reading()
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    assert made.refusals == []
    assert [sequence for to, sequence in arrived if to == "s2"] == list(range(2_000))
    assert [sequence for to, sequence in arrived if to == "s1"] == list(range(2_000))
    assert 20_000 <= most < 22_000
    assert session.outbound.buffer.bytes == 0


def test_who_stands_still_when_all_is_kept_that_may_be_is_cut_off():
    made = subscribed(session=QUICK, stall_timeout_s=1.0, slow_consumer_timeout_s=60.0, pending_bytes_max=20_000)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 90, every_s=0.01)
    assert made.refusals == []
    assert made.unsettled() > 0
    publish_nines(made, 90, every_s=0.01)
    assert [(refusal.peer, refusal.code) for refusal in made.refusals] == [("slow", "slow-consumer")]
    assert "bytes were pending, none was acknowledged for 1 s" in made.refusals[0].text
    made.run_until_quiescent()
    assert got(made, "s1") == 180


def test_who_has_no_connection_is_waited_for():
    made = subscribed(session=QUICK, stall_timeout_s=0.1, slow_consumer_timeout_s=60.0)
    made.cut_link(("slow", "B3"))
    publish_nines(made, 100, every_s=0.01)
    assert made.unsettled() > 50
    made._table.connect(("slow", "B3"))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    assert (got(made, "s1"), got(made, "s2")) == (100, 100)


def test_who_came_back_is_left_alone_with_the_rush_that_awaits_it_but_not_with_the_next():
    made = subscribed(session=QUICK, stall_timeout_s=1.0, slow_consumer_timeout_s=60.0)
    slow, session = made.nodes["slow"], made.broker("B3")._sessions["slow"]
    made.cut_link(("slow", "B3"))
    publish_nines(made, 20, every_s=0.01)
    made._table.connect(("slow", "B3"))
    made.scheduler.run(made.scheduler.now_s + 0.0015)  # they have greeted each other
    slow.pause_reading()
    made.scheduler.run(made.scheduler.now_s + 0.9)
    assert (session.established, session.outbound.buffer.active) == (True, False)
    slow.resume_reading()
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1.0)
    slow.pause_reading()
    publish_nines(made, 20, every_s=0.01)
    assert session.outbound.buffer.active


def test_who_was_idle_for_long_is_not_taken_to_stand_still():
    made = subscribed(stall_timeout_s=0.1, slow_consumer_timeout_s=1.0)
    publish_nines(made, 1)
    made.scheduler.run(made.scheduler.now_s + 100)
    publish_nines(made, 1, every_s=0.001)
    made.nodes["slow"].pause_reading()
    publish_nines(made, 1, every_s=0.5)
    assert made.refusals == []


def test_nobody_is_cut_off_who_has_nothing_to_settle_or_settles_slowly():
    made = subscribed(slow_consumer_timeout_s=2.0)
    for _ in range(20):
        made.nodes["slow"].pause_reading()
        made.publish("p", parse_publication("[class,'STOCK'],[x,9]"))
        made.scheduler.run(made.scheduler.now_s + 1.0)
        made.nodes["slow"].resume_reading()
        made.scheduler.run(made.scheduler.now_s + 0.1)
    made.scheduler.run(made.scheduler.now_s + 30)
    assert made.refusals == []


def test_publications_that_took_too_many_hops_stay():
    made = subscribed()
    core = made.broker("B1")
    header = Header("p", 0, ttl=1)
    session, batch = core._sessions["p"], Rows((Publish(parse_publication("[class,'STOCK'],[x,9]"), header),))
    frame = BatchFrame(session.peer_epoch, session.epoch, session.inbound.expected, 0, batch)
    effects = core.handle(FrameArrived("p", frame), 5.0)
    assert not any(isinstance(effect, SendFrame) and isinstance(effect.frame, BatchFrame) for effect in effects)
