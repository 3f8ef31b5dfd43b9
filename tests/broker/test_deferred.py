"""Deferred messages: what expires is counted, and its acknowledgement is released."""

import numpy as np

from overweave.batches.destinations import with_destinations
from overweave.batches.objects import Rows
from overweave.broker.deferred import DeferredMessages, Stage
from overweave.broker.step import StepContext
from overweave.language.headers import Header
from overweave.language.messages import Publish, Unsubscribe
from overweave.language.publications import Publication


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
