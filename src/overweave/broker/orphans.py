"""Orphans: publications that were in flight on a closed link, for protocols that do not route around failures."""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from overweave.batches.base import Batch, Identity
from overweave.broker.context import BrokerContext
from overweave.broker.pending_ack import PendingAck
from overweave.errors import InvalidInput
from overweave.routing.base import Forward

#: The timer of the next attempt, and its period.
ORPHANS, ORPHANS_S = "orphans", 0.5


class _Orphan(NamedTuple):
    batch: Batch
    ack: PendingAck
    since_s: float


class Orphans:
    """Publications without a link; they are routed again until one leads on, or they are undeliverable."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        #: The orphans, oldest first.
        self.pending: list[_Orphan] = []

    def add(self, batch: Batch, ack: PendingAck | None) -> None:
        """Route a batch of a closed link."""
        if ack is not None:
            self._route(_Orphan(batch, ack, self._context.step.now_s))

    def retry(self) -> None:
        """Route all orphans again, and drop those that are too old."""
        orphans, self.pending = self.pending, []
        for orphan in orphans:
            if orphan.since_s < self._context.undeliverable_before_s:
                self._context.counters.undeliverable += orphan.batch.count
                orphan.ack.release()
            else:
                self._route(orphan)

    def validate(self) -> None:
        """Check the invariants."""
        assert all(not orphan.ack.acked or orphan.ack.expired for orphan in self.pending)

    def _route(self, orphan: _Orphan) -> None:
        context, (batch, ack, since_s) = self._context, orphan
        forwards: list[Forward] = []
        with suppress(InvalidInput):  # its advertisement is withdrawn: it has no tree
            forwards = context.engine.routing.route(batch, context.peers.origin_of(ack.peer))
        sent: set[Identity] = set()
        for to, some in forwards:
            if to is not None and to in context.peers.neighbours:
                ack.retain()
                context.peers.sessions[to].outbound.send(some, ack, context.step.effects, window_exempt=True)
                context.counters.rows_out += some.count
                sent.update(some.identities())
        left = np.array([row for row, identity in enumerate(batch.identities()) if identity not in sent], np.int64)
        if len(left):
            self.pending.append(_Orphan(batch.take(left), ack, since_s))
        else:
            ack.release()
