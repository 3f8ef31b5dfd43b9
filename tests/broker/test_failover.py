"""Failover in the core of a client: registrations, unsettled publications and barriers go to another broker."""

from itertools import count

import numpy as np
import pytest

from overweave.batches.objects import Rows
from overweave.broker.client import ClientCore
from overweave.broker.client.migration import MIGRATE
from overweave.broker.client.received import ReceivedPublications
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Attach, Deliver, Detach, SendFrame
from overweave.contract.frames import (
    Acknowledgement,
    BarrierKind,
    BarrierRequest,
    BatchFrame,
    ControlFrame,
    Hello,
    Migrate,
    MigrationResult,
    StreamEnd,
    SyncEnd,
)
from overweave.contract.stimuli import FailOver, FrameArrived, PeerConnected, PeerDisconnected, TimerFired
from overweave.language.generations import STABLE_LIFE, split_generation
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.routing.dedup import DeliveryWindow

FILTER = parse_filter("[n,>=,0]")
ADVERTISE, SUBSCRIBE = Advertise("c/a1", FILTER), Subscribe("c/s1", FILTER)


class Brokers:
    """A client with brokers that are sessions alone; they settle what arrives, unless told to hold it."""

    def __init__(self):
        self.client = ClientCore("c", "B1", SessionConfig(acknowledge_every=1))
        self._sessions, self.effects, self._incarnations = {}, [], count(7)
        #: What each broker has received: control messages and sequence numbers of publications.
        self.received, self.holds = {}, set()
        #: The lives of publications, as they arrived.
        self.lives = []

    def do(self, effects):
        """Carry out effects of the client until nothing is left."""
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            self.effects.append(effect)
            if isinstance(effect, SendFrame) and effect.peer in self._sessions:
                for answer in self._arrive(effect.peer, effect.frame):
                    queue += self.client.handle(FrameArrived(effect.peer, answer.frame), 0.0)

    def connect(self, peer):
        self._sessions[peer] = Session("c", EpochCounter(next(self._incarnations)), SessionConfig(), AckScheduler())
        self.received.setdefault(peer, [])
        effects = []
        self._sessions[peer].connect(effects)
        self.do(self.client.handle(PeerConnected(peer), 0.0))
        for each in effects:
            self.do(self.client.handle(FrameArrived(peer, each.frame), 0.0))

    def send(self, peer, message):
        effects = []
        self._sessions[peer].send_control(message, effects)
        for each in effects:
            self.do(self.client.handle(FrameArrived(peer, each.frame), 0.0))

    def lose(self, peer):
        del self._sessions[peer]
        self.do(self.client.handle(PeerDisconnected(peer), 0.0))

    def fail_over(self, peer, to):
        self.do(self.client.handle(FailOver(peer, to), 0.0))

    def control(self, peer, kind):
        return [each for each in self.received[peer] if isinstance(each, kind)]

    def numbers(self, peer):
        return [each for each in self.received[peer] if isinstance(each, int)]

    def _arrive(self, peer, frame):
        session, effects = self._sessions[peer], []
        if isinstance(frame, Hello):
            session.on_hello(frame, (), effects)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, effects)
        elif isinstance(frame, BatchFrame | ControlFrame):
            rows = frame.batch.count if isinstance(frame, BatchFrame) else 1
            if session.receive(frame, rows, effects):
                if isinstance(frame, BatchFrame):
                    self.received[peer] += [each.header.sequence for each in frame.batch.publishes()]
                    self.lives += [each.header.life for each in frame.batch.publishes()]
                else:
                    self.received[peer].append(frame.message)
                if peer not in self.holds:
                    session.inbound.settle(frame.sequence, rows)
                    session.acknowledge(effects)
        return [each for each in effects if isinstance(each, SendFrame)]


@pytest.fixture
def brokers():
    made = Brokers()
    made.connect("B1")
    for message in (ADVERTISE, SUBSCRIBE):
        made.do(made.client.send_control(message, 0.0))
    return made


def publish(brokers, count):
    for number in range(count):
        brokers.do(brokers.client.publish([Publication({"n": number})], 0.0))


def settle_all(brokers, peer, holds_next=False):
    """A broker that has held everything settles it."""
    session, effects = brokers._sessions[peer], []
    if not holds_next:
        brokers.holds.discard(peer)
    for number in range(session.inbound._settled, session.inbound.expected):
        session.inbound.settle(number, 1)
    session.acknowledge(effects)
    for each in effects:
        brokers.do(brokers.client.handle(FrameArrived(peer, each.frame), 0.0))


def generations(messages):
    return [split_generation(each.id) for each in messages]


def test_everything_goes_to_the_other_broker_and_unsettled_publications_are_sent_again(brokers):
    client = brokers.client
    publish(brokers, 2)
    brokers.holds.add("B1")
    publish(brokers, 3)
    barrier = client.barrier()
    brokers.lose("B1")
    publish(brokers, 1)
    assert (client.settled_publications(), client.unsettled_rows()) == (2, 4)
    brokers.holds.add("B2")
    brokers.fail_over("B1", "B2")
    assert (client.peers(), client.broker, client.settled_publications()) == (["B2"], "B2", 2)
    assert Detach("B1") in brokers.effects
    brokers.connect("B2")
    for kind, id in ((Advertise, "c/a1"), (Subscribe, "c/s1")):
        ((stable, generation),) = generations(brokers.control("B2", kind))
        assert (stable, generation > 0) == (id, True)
    assert brokers.numbers("B2") == [], "the advertisement is not in force"
    assert not barrier.settled
    settle_all(brokers, "B2")
    assert brokers.numbers("B2") == [2, 3, 4, 5]
    assert barrier.settled
    assert (client.settled_publications(), client.unsettled_rows()) == (6, 0)


def test_a_second_failover_loses_nothing_either(brokers):
    brokers.holds.add("B1")
    publish(brokers, 3)
    barrier = brokers.client.barrier()
    brokers.lose("B1")
    brokers.fail_over("B1", "B2")
    brokers.fail_over("B2", "B1")
    brokers.holds.clear()
    brokers.connect("B1")
    assert generations(brokers.control("B1", Subscribe))[-1][1] > 1
    assert brokers.numbers("B1") == [0, 1, 2, 0, 1, 2]
    assert barrier.settled
    brokers.do(brokers.client.send_control(Unsubscribe("c/s1"), 0.0))
    assert [each.id for each in brokers.client.registered("B1")] == [brokers.control("B1", Advertise)[-1].id]


def test_publications_are_in_another_generation_each_time_they_are_sent_again(brokers):
    """Brokers that have seen some copies must not drop later ones. What was not sent before is in the first generation."""
    brokers.holds.update(("B1", "B2"))
    publish(brokers, 1)
    for failed, to in (("B1", "B2"), ("B2", "B3")):
        brokers.lose(failed)
        brokers.fail_over(failed, to)
        publish(brokers, 1)
        brokers.connect(to)
        settle_all(brokers, to, holds_next=True)
    assert [brokers.numbers(peer) for peer in ("B1", "B2", "B3")] == [[0], [0, 1], [0, 1, 2]]
    assert [life >> 56 for life in brokers.lives] == [0, 1, 0, 2, 1, 0]
    assert {life & STABLE_LIFE for life in brokers.lives} == {0}


@pytest.mark.parametrize("moves", [False, True], ids=["at one broker", "at two brokers"])
def test_a_receiver_gets_each_publication_in_one_generation(brokers, moves):
    if moves:
        brokers.send("B1", Migrate("t", "B2", None, True, BarrierKind.STREAM))
        assert len(brokers.client.peers()) == 2
    batch = Rows(tuple(Publish(Publication({"n": number}), Header("p", number, life=7)) for number in range(3)))
    for some in (batch.take(np.array([0, 1])), batch.next_generation(), batch):
        effects = []
        brokers._sessions["B1"].outbound.send(some, None, effects)
        for each in effects:
            brokers.do(brokers.client.handle(FrameArrived("B1", each.frame), 0.0))
    delivered = [part for each in brokers.effects if isinstance(each, Deliver) for _, part in each.parts]
    assert [publish.header.sequence for part in delivered for publish in part.publishes()] == [0, 1, 2]


def test_a_receiver_at_two_brokers_remembers_publications_in_any_generation():
    """One is in no dedup window any more: publications of another broker have pushed it out."""
    received = ReceivedPublications(DeliveryWindow(window=64))
    first, second, last = (Rows((Publish(Publication({"n": n}), Header("p", n, life=7)),)) for n in (0, 1, 1000))
    arriving = first, last, first.next_generation(), second.next_generation(), second
    found = [received.mark_received(each).tolist() for each in arriving]
    assert found == [[0], [0], [], [0], []]


def test_a_move_in_progress_ends_at_its_target_when_the_old_broker_fails(brokers):
    client = brokers.client
    brokers.holds.add("B1")
    publish(brokers, 2)
    brokers.send("B1", Migrate("t", "B2", None, True, BarrierKind.STREAM))
    assert Attach("B2", "B1") in brokers.effects
    assert (client.view.is_secondary("B2"), client.view.is_secondary("B1")) == (True, False)
    brokers.connect("B2")
    assert (client.view.subscriptions("B1"), client.view.subscriptions("B2")) == ({"c/s1"}, set())
    brokers.lose("B1")
    brokers.fail_over("B1", "B2")
    assert generations(brokers.control("B2", Subscribe)) == [("c/s1", 1)], "the move has subscribed already"
    assert client.view.subscriptions("B2") == {"c/s1"}
    assert brokers.numbers("B2") == [0, 1]
    assert (client.peers(), client.is_migrating, client.view.is_secondary("B2")) == (["B2"], False, False)


def test_orders_are_rejected_until_publishing_goes_on(brokers):
    brokers.lose("B1")
    brokers.fail_over("B1", "B2")
    brokers.holds.add("B2")
    brokers.connect("B2")
    brokers.send("B2", Migrate("t", "B3", None, True, BarrierKind.STREAM))
    assert brokers.control("B2", MigrationResult) == [
        MigrationResult("t", "publishing is paused until its advertisements are in force at B2")
    ]
    assert brokers.control("B2", SyncEnd)


def test_an_order_with_a_long_id_gets_a_short_error():
    """A broker would refuse the client for a long one."""
    brokers = Brokers()
    brokers.connect("B1")
    brokers.send("B1", Migrate("m", "B2", ("x" * 10_000,), True, BarrierKind.STREAM))
    (result,) = brokers.control("B1", MigrationResult)
    assert result.error.startswith("the client has no subscription 'xxx")
    assert len(result.error) == 1000


def test_nothing_waits_for_the_target_of_a_failed_migration(brokers):
    """The target has the new subscriptions, which it never settles, and one of the application."""
    client = brokers.client
    brokers.send("B1", Migrate("t", "B2", None, True, BarrierKind.STREAM))
    brokers.holds.add("B2")
    brokers.connect("B2")
    brokers.lose("B2")
    publish(brokers, 2)
    assert client.barrier().settled, "nothing but the migration needs the target"
    brokers.do(client.send_control(Subscribe("c/s2", FILTER), 0.0))
    barrier = client.barrier()
    assert not barrier.settled
    brokers.do(client.send_control(Unsubscribe("c/s2"), 0.0))
    for now_s in (0.0, 121.0, 122.0, 160.0):
        brokers.do(client.handle(TimerFired(MIGRATE), now_s))
    assert client.peers() == ["B1"]
    assert Detach("B2") in brokers.effects
    assert barrier.settled


def test_a_barrier_waits_for_what_a_failover_registers_again(brokers):
    """The client publishes at another broker than the one that fails."""
    client = brokers.client
    brokers.send("B1", Migrate("t", "B2", (), True, BarrierKind.STREAM))
    brokers.connect("B2")
    assert (client.broker, sorted(client.peers())) == ("B2", ["B1", "B2"])
    brokers.lose("B1")
    brokers.do(client.send_control(Subscribe("c/s2", FILTER), 0.0))
    barrier = client.barrier()
    brokers.holds.add("B2")
    brokers.fail_over("B1", "B2")
    assert {id for id, _ in generations(brokers.control("B2", Subscribe))} == {"c/s1", "c/s2"}
    assert not barrier.settled, "the subscription is not in force"
    settle_all(brokers, "B2")
    assert barrier.settled


def test_a_stream_ends_only_by_a_barrier_behind_the_present_subscriptions(brokers):
    """The new broker restarts, and gets the subscriptions anew: a barrier from before says nothing about these."""
    brokers.send("B1", Migrate("t", "B2", None, False, BarrierKind.STREAM))
    brokers.connect("B2")
    (early,) = brokers.control("B2", BarrierRequest)
    brokers.lose("B2")
    brokers.connect("B2")
    late = brokers.control("B2", BarrierRequest)[-1]
    assert len(set(generations(brokers.control("B2", Subscribe)))) == 2, "before and after"
    brokers.send("B1", StreamEnd(early.token))
    assert brokers.control("B1", MigrationResult) == []
    brokers.send("B1", StreamEnd(late.token))
    assert brokers.control("B1", MigrationResult) == [MigrationResult("t")]


def test_a_stream_does_not_end_while_the_new_broker_has_no_subscriptions(brokers):
    brokers.send("B1", Migrate("t", "B2", None, False, BarrierKind.STREAM))
    brokers.holds.add("B2")
    brokers.connect("B2")
    settle_all(brokers, "B2", holds_next=True)
    (early,) = brokers.control("B2", BarrierRequest)
    brokers.lose("B2")
    brokers.connect("B2")
    brokers.send("B1", StreamEnd(early.token))
    assert brokers.control("B1", Unsubscribe) == []
    settle_all(brokers, "B2")
    assert brokers.control("B1", Unsubscribe) == []
    late = brokers.control("B2", BarrierRequest)[-1]
    brokers.send("B1", StreamEnd(late.token))
    assert brokers.control("B1", Unsubscribe) == [Unsubscribe("c/s1")]
