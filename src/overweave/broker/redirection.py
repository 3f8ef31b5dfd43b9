"""Redirection of publications in flight to brokers that no longer lead to a subscription."""

from contextlib import suppress

import numpy as np

from overweave.batches.base import Batch, Identity
from overweave.batches.destinations import destination_counts, split_local, with_destinations
from overweave.broker.context import BrokerContext
from overweave.broker.pending_ack import PendingAck
from overweave.errors import InvalidInput
from overweave.routing.base import Redirect

#: The publications with copies in flight, by destination and tag.
_Known = dict[tuple[int, int], set[Identity]]


def redirect_in_flight(context: BrokerContext, redirect: Redirect) -> None:
    """Send copies of publications in flight to their new destinations, except where copies are in flight already."""
    peers = context.peers
    in_flight = [(batch, ack) for batch, ack in context.in_flight(peers.neighbours) if batch.has_destinations()]
    copies: list[tuple[Batch, PendingAck]] = []
    for batch, ack in in_flight:
        if ack is not None:
            with suppress(InvalidInput):  # malformed transit rows are rejected where they are matched
                copies += [(some, ack) for some in redirect(batch, peers.origin_of(ack.peer))]
    if not copies:
        return
    known: _Known = {}
    for batch, _ in in_flight:
        with suppress(InvalidInput):
            _not_in_flight(batch, known)
    for some, ack in copies:
        for new in _not_in_flight(some, known):
            for to, part in context.engine.routing.route(new, None):
                ack.retain()
                if to is None:
                    context.deferred.add(part, "", ack)
                else:
                    peers.sessions[to].outbound.send(part, ack, context.step.effects, window_exempt=True)
                    context.counters.rows_out += part.count


def _not_in_flight(batch: Batch, known: _Known) -> list[Batch]:
    """The rows of a batch by destination, as far as they are not known; they are from now on."""
    found: list[Batch] = []
    for number in destination_counts(batch):
        some, _ = split_local(batch, number)
        assert some is not None
        there = known.setdefault((number, batch.tag), set())
        identities = list(some.identities())
        rows = np.array([row for row, identity in enumerate(identities) if identity not in there], np.int64)
        if len(rows):
            there.update(identities)
            new = with_destinations(some.take(rows), [(number, np.arange(len(rows)))])
            assert new is not None
            found.append(new)
    return found
