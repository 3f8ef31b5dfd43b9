"""Deferred messages: what expires is counted, and its acknowledgement is released."""

import numpy as np

from overweave.batches.destinations import with_destinations
from overweave.batches.objects import Rows
from overweave.broker.deferred import Deferred, DeferredMessages, Stage
from overweave.broker.step import StepContext
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

ANY = parse_filter("[x,>=,0]")


class Ack:
    released = 0

    def release(self):
        self.released += 1


def test_addressed_publications_expire_and_are_counted():
    step, ack = StepContext(), Ack()
    deferred = DeferredMessages(step)
    batch = Rows(tuple(Publish(Publication({"x": number}), Header("p", number)) for number in range(3)))
    addressed = with_destinations(batch, [(4, np.arange(3))])
    deferred.add(addressed, "p", ack)
    deferred.add(addressed, "p", None, Stage.UNSYNCED)
    deferred.add(batch, "p", None)
    deferred.add(Unsubscribe("s", Header(destinations=(4,))), "B2", None)
    assert deferred.expire_addressed(step.now_s) == 0
    step.now_s += 1.0
    assert (deferred.expire_addressed(step.now_s), ack.released) == (3, 1)
    assert [entry.count for entry, _ in deferred.batches()] == [3, 3]


def test_early_subscriptions_wait_without_being_looked_at_again_and_again(monkeypatch):
    """Clients come back before their restarted broker is synchronised: each message costs the same, however many wait."""
    resumed, looked, clients = [], [], 40
    resume, has = DeferredMessages.resume, Deferred.has_destinations.fget
    monkeypatch.setattr(DeferredMessages, "resume", lambda self, entry: (resumed.append(entry), resume(self, entry)))
    monkeypatch.setattr(Deferred, "has_destinations", property(lambda self: (looked.append(self), has(self))[1]))
    made = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS["destination"].make)
    made.add_client("p", "B1")
    made.say("p", Advertise("a", ANY))
    made.run_until_quiescent()
    made.crash("B1")
    made.crash("B2")
    made.restart("B2")
    for number in range(clients):
        made.add_client(f"s{number}", "B2")
        made.say(f"s{number}", Subscribe(f"s{number}/kept", ANY))
    made.scheduler.run(made.scheduler.now_s + 0.3)
    broker = made.broker("B2")
    assert broker.registration_count("subscription") == 0
    assert len(broker._context.deferred._entries) == clients
    assert not resumed
    assert len(looked) < 6 * clients**2
    for message in (Subscribe("s0/dropped", ANY), Unsubscribe("s0/dropped")):  # the second one waits behind the first one
        made.say("s0", message)
        made.scheduler.run(made.scheduler.now_s + 0.3)
    made.add_client("gone", "B2")
    made.say("gone", Subscribe("gone/s", ANY))
    made.scheduler.run(made.scheduler.now_s + 0.3)
    made.remove_client("gone")
    made.scheduler.run(made.scheduler.now_s + 0.3)
    broker.validate()
    assert [entry.peer for entry in broker._context.deferred._entries if entry.peer in ("s0", "gone")] == ["s0"] * 3
    made.restart("B1")
    made.run_until_quiescent()
    broker.validate()
    assert broker.registration_count("subscription") == clients
    made.publish("p", parse_publication("[x,1]"))
    made.run_until_quiescent()
    assert {key[2] for key in made.deliveries} == {f"s{number}/kept" for number in range(clients)}
