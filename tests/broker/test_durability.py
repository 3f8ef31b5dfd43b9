"""What a client said is acknowledged when the journal has it; while the journal fails, what is new is rejected."""

import pytest

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.contract.effects import Persist, Rejection, SendFrame, SetTimer
from overweave.contract.frames import ControlFrame
from overweave.contract.stimuli import (
    FrameArrived,
    JournalFailed,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Persisted,
    TimerFired,
)
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

FILTER, OTHER = parse_filter("[x,>,1]"), parse_filter("[x,>,2]")


class Pair:
    """A broker and one client, whose frames arrive at once, without a clock: timers fire when all is quiet."""

    def __init__(self, confirms_persist=True, journal=None, client=None, incarnation=1, pending_persists=0):
        overlay = Overlay(("B1",))
        make = PROTOCOLS["filter"].make
        self.broker = BrokerCore(
            "B1",
            make("B1", overlay),
            (),
            incarnation=incarnation,
            journal=journal,
            confirms_persist=confirms_persist,
            pending_persists=pending_persists,
        )
        self.client = client or ClientCore("c", "B1")
        #: Whether words of the broker get lost.
        self.loses_words = False
        self.kept, self.rejected, self.queue, self.timers = [], [], [], []
        self.connect()

    def connect(self):
        self.broker_does(PeerConnected("c", client=True))
        self.client_does(PeerConnected("B1"))

    def broker_does(self, stimulus):
        self._carry_out(self.broker, self.broker.handle(stimulus, 0.0))

    def client_does(self, stimulus):
        self._carry_out(self.client, self.client.handle(stimulus, 0.0))

    def say(self, message):
        self._carry_out(self.client, self.client.send_control(message, 0.0))

    def _carry_out(self, core, effects):
        self._enqueue(core, effects)
        while self.queue or self.timers:
            target, stimulus = self.queue.pop(0) if self.queue else self.timers.pop(0)
            self._enqueue(target, target.handle(stimulus, 0.0))
        self.broker.validate()

    def _enqueue(self, core, effects):
        for effect in effects:
            if isinstance(effect, SendFrame):
                if self.loses_words and core is self.broker and isinstance(effect.frame, ControlFrame):
                    continue
                to, peer = (self.client, "B1") if core is self.broker else (self.broker, "c")
                self.queue.append((to, FrameArrived(peer, effect.frame)))
            elif isinstance(effect, SetTimer):
                self.timers.append((core, TimerFired(effect.name)))
            elif isinstance(effect, Persist):
                self.kept.append((effect.key, effect.value))
            elif isinstance(effect, Rejection):
                self.rejected.append(effect)

    @property
    def in_force(self):
        return sorted(id for _, id in self.broker._registry._owners)


@pytest.mark.parametrize("message", [Subscribe("c/1", FILTER), Advertise("c/1", FILTER)])
def test_nothing_is_acknowledged_before_it_is_durable(message):
    pair = Pair()
    pair.say(message)
    assert (pair.in_force, pair.client.unsettled()) == (["c/1"], 1)
    pair.broker_does(Persisted(0))
    assert pair.client.unsettled() == 1
    pair.broker_does(Persisted(1))
    assert pair.client.unsettled() == 0


@pytest.mark.parametrize(("message", "withdrawal"), [(Subscribe, Unsubscribe), (Advertise, Unadvertise)])
def test_withdrawals_wait_too_and_each_for_its_own_record(message, withdrawal):
    pair = Pair()
    for n in range(3):
        pair.say(message(f"c/{n}", FILTER))
    pair.say(withdrawal("c/0"))
    for count, unsettled in ((1, 3), (2, 2), (3, 1), (3, 1), (4, 0)):
        pair.broker_does(Persisted(count))
        assert pair.client.unsettled() == unsettled


def test_without_a_journal_nothing_waits():
    pair = Pair(confirms_persist=False)
    pair.say(Subscribe("c/1", FILTER))
    assert pair.client.unsettled() == 0


def test_what_is_said_again_and_known_needs_no_record_but_waits_for_the_one_that_is_pending():
    pair = Pair()
    pair.say(Advertise("c/1", FILTER))
    pair.say(Advertise("c/1", FILTER))
    assert (len(pair.kept), pair.client.unsettled()) == (1, 2)
    pair.broker_does(Persisted(1))
    assert pair.client.unsettled() == 0
    pair.say(Advertise("c/1", OTHER))
    assert (len(pair.kept), pair.client.unsettled()) == (2, 1)


def test_the_withdrawal_of_what_a_client_does_not_say_again_is_acknowledged_when_it_is_durable():
    key, value = ("subscription", "c/1"), ("c", FILTER)
    pair = Pair(journal={key: value})
    assert (pair.in_force, pair.kept) == ([], [(key, None)])
    assert pair.client.unsettled() == 1  # that all is said
    pair.broker_does(Persisted(1))
    assert pair.client.unsettled() == 0


def test_while_the_journal_fails_what_is_new_is_rejected_and_what_was_before_goes_on():
    pair = Pair()
    pair.say(Subscribe("c/1", FILTER))
    pair.broker_does(Persisted(1))
    pair.say(Subscribe("c/2", FILTER))  # applied, not durable
    pair.broker_does(JournalFailed("no space left"))
    for message in (Subscribe("c/3", FILTER), Advertise("c/a", FILTER), Unsubscribe("c/1"), Subscribe("c/1", OTHER)):
        pair.say(message)
    assert pair.in_force == ["c/1", "c/2"]
    assert [(each.id, each.withdrawal) for each in pair.rejected] == [
        ("c/3", False), ("c/a", False), ("c/1", True), ("c/1", False),
    ]  # fmt: skip
    assert {each.code for each in pair.rejected} == {"journal-unavailable"}
    assert pair.rejected[0].text == "'c/3' is not in force: the broker cannot write its journal (no space left)"
    assert pair.client.unsettled() == 5  # behind c/2
    assert len(pair.kept) == 2
    pair.say(Subscribe("c/1", FILTER))
    pair.say(Unsubscribe("c/unknown"))
    assert len(pair.rejected) == 4
    pair.broker_does(Persisted(2))
    assert pair.client.unsettled() == 0
    pair.say(Subscribe("c/3", FILTER))
    assert pair.in_force == ["c/1", "c/2", "c/3"]


def test_a_client_does_not_say_again_what_was_rejected_and_hears_it_though_its_connection_broke():
    pair = Pair()
    pair.broker_does(JournalFailed("no space left"))
    pair.broker.handle(PeerDisconnected("c"), 0.0)
    pair.client.handle(PeerDisconnected("B1"), 0.0)
    pair.client.send_control(Subscribe("c/1", FILTER), 0.0)
    pair.connect()
    assert [each.id for each in pair.rejected] == ["c/1"]
    assert pair.client.unsettled() == 0
    again = Pair(client=pair.client, incarnation=2)
    assert (again.in_force, again.kept) == ([], [])


def test_a_client_that_has_withdrawn_what_is_rejected_does_not_hear_it():
    """Nobody waits for it any more, and a rejection for which nobody waits would end the client."""
    pair = Pair()
    pair.broker_does(JournalFailed("no space left"))
    pair.broker.handle(PeerDisconnected("c"), 0.0)
    pair.client.handle(PeerDisconnected("B1"), 0.0)
    pair.client.send_control(Subscribe("c/1", FILTER), 0.0)
    pair.client.send_control(Unsubscribe("c/1"), 0.0)
    pair.connect()
    assert not [each for each in pair.rejected if not each.withdrawal]
    assert (pair.in_force, pair.client.unsettled()) == ([], 0)


def test_nothing_is_settled_before_its_client_knows_that_it_is_rejected():
    pair = Pair()
    pair.broker_does(JournalFailed("no space left"))
    pair.loses_words = True
    pair.say(Subscribe("c/1", FILTER))
    assert (pair.rejected, pair.client.unsettled()) == ([], 1)
    pair.loses_words = False
    pair.broker.handle(PeerDisconnected("c"), 0.0)
    pair.client.handle(PeerDisconnected("B1"), 0.0)
    pair.connect()
    assert ([each.id for each in pair.rejected], pair.client.unsettled()) == (["c/1"], 0)


def test_publications_of_others_go_on_while_the_journal_fails():
    pair = Pair()
    pair.say(Subscribe("c/1", FILTER))
    pair.say(Advertise("c/2", FILTER))
    pair.broker_does(Persisted(2))
    pair.broker_does(JournalFailed("no space left"))
    pair._carry_out(pair.client, pair.client.publish([parse_publication("[x,3]")], 0.0))
    assert pair.client.unsettled() == 0
    assert pair.broker.statistics().publications_to_clients == 1


def test_a_client_that_leaves_while_the_journal_fails_is_withdrawn():
    pair = Pair()
    pair.say(Subscribe("c/1", FILTER))
    pair.broker_does(Persisted(1))
    pair.broker_does(JournalFailed("no space left"))
    pair.broker_does(PeerLeft("c"))
    assert (pair.in_force, pair.kept[-1]) == ([], (("subscription", "c/1"), None))
    pair.broker_does(Persisted(2))


def test_a_core_that_takes_over_waits_for_what_the_one_before_it_asked_for():
    client = ClientCore("c", "B1")
    client.send_control(Advertise("c/1", FILTER), 0.0)
    pair = Pair(journal={("advertisement", "c/1"): ("c", FILTER)}, client=client, pending_persists=2)
    assert (pair.kept, pair.client.unsettled()) == ([], 2)
    pair.say(Advertise("c/2", FILTER))
    pair.broker_does(Persisted(2))
    assert pair.client.unsettled() == 1
    pair.broker_does(Persisted(3))
    assert pair.client.unsettled() == 0


def test_nobody_waits_for_the_records_of_others():
    pair = Pair()
    other = ClientCore("d", "B1")
    broker, frames = pair.broker, []

    def exchange(effects):
        frames.extend(effect.frame for effect in effects if isinstance(effect, SendFrame) and effect.peer == "B1")
        while frames:
            answers = broker.handle(FrameArrived("d", frames.pop(0)), 0.0)
            answers += broker.handle(TimerFired("acknowledge"), 0.0)
            for answer in answers:
                if isinstance(answer, SendFrame) and answer.peer == "d":
                    more = other.handle(FrameArrived("B1", answer.frame), 0.0)
                    frames.extend(effect.frame for effect in more if isinstance(effect, SendFrame))

    broker.handle(PeerConnected("d", client=True), 0.0)
    exchange(other.handle(PeerConnected("B1"), 0.0))
    pair.say(Subscribe("c/1", FILTER))
    exchange(other.send_control(Unsubscribe("d/unknown"), 0.0))
    assert (pair.client.unsettled(), other.unsettled()) == (1, 0)
