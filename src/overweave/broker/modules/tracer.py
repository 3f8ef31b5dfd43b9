"""The tracer: a row of the table ``deliveries`` per subscription that a publication reached, or one for a pure forward, and
a row of the table ``statements`` for all that clients advertise, subscribe to and withdraw.

What modules say to each other is control and not traced. Routing says which clients got which rows. Of a client with one
subscription that says it all; only where one has several, they are matched to find out which.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, Identity
from overweave.batches.contents import matched_ids
from overweave.batches.raw import RawRows
from overweave.batches.trace_fields import Columns, Receivers, trace_columns, trace_fields
from overweave.broker.modules.client_subscriptions import ClientSubscriptions
from overweave.contract.effects import Trace, TraceColumns, TraceStatement
from overweave.contract.modules import ControlApplied, Module, ModuleEffect, ModuleStimulus, Routed
from overweave.contract.records import Record, Statement
from overweave.language.generations import stable_id
from overweave.language.headers import Priority
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

_KINDS = {Advertise: "advertise", Unadvertise: "unadvertise", Subscribe: "subscribe", Unsubscribe: "unsubscribe"}


class Tracer(Module):
    """Watches one broker."""

    watches = (Routed, ControlApplied)

    def __init__(self, broker: str, run: str) -> None:
        self._broker = broker
        self._run = run
        self._clients: dict[str, ClientSubscriptions] = {}

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterator[ModuleEffect]:
        """See `Module.handle`."""
        if isinstance(stimulus, ControlApplied):
            if stimulus.client:
                self._note(stimulus)
                yield from self._statements(stimulus, now_s)
        elif isinstance(stimulus, Routed) and stimulus.arrived is not None and stimulus.batch.priority() is not Priority.CONTROL:
            batch = stimulus.arrived
            delivered = [(peer, some) for peer, some in stimulus.to if peer in self._clients]
            raw = [(peer, some) for peer, some in delivered if isinstance(some, RawRows)]
            if isinstance(batch, RawRows) and len(raw) == len(delivered):
                yield TraceColumns(self._columns(batch, raw, now_s, stimulus.peer))
            else:
                for record in self._records(batch, delivered, now_s, stimulus.peer):
                    yield Trace(record)

    def _note(self, heard: ControlApplied) -> None:
        message = heard.message
        if isinstance(message, Subscribe):
            self._clients.setdefault(heard.peer, ClientSubscriptions()).add(message.id, message.filter)
        elif isinstance(message, Unsubscribe) and heard.peer in self._clients:
            client = self._clients[heard.peer]
            client.remove(message.id)
            if not client.filters:
                del self._clients[heard.peer]

    def _statements(self, heard: ControlApplied, now_s: float) -> Iterator[TraceStatement]:
        """The trace rows of a client's registrations; names with a slash are those of modules."""
        message = heard.message
        if "/" in heard.peer or not isinstance(message, Advertise | Unadvertise | Subscribe | Unsubscribe):
            return
        filter = str(message.filter) if isinstance(message, Advertise | Subscribe) else None
        kind, id = _KINDS[type(message)], stable_id(message.id)
        yield TraceStatement(Statement(self._run, now_s, self._broker, heard.peer, kind, id, filter, filter is None))

    def _records(self, batch: Batch, delivered: list[tuple[str, Batch]], now_s: float, peer: str) -> Iterator[Record]:
        found: dict[Identity, list[tuple[str | None, str | None]]] = {}
        for name, some in delivered:
            client = self._clients[name]
            index = client.index()
            one = list(client.filters)
            rows: Iterable[Sequence[object]] = repeat(one, some.count) if index is None else matched_ids(some, index)
            for identity, ids in zip(some.identities(), rows, strict=True):
                found.setdefault(identity, []).extend((str(id), name) for id in ids)
        for identity, arrival in zip(batch.identities(), trace_fields(batch), strict=True):
            publisher, sequence, hops, published_at_s, size = arrival
            where = publisher, sequence, self._broker
            # What has taken no hop came from a client.
            previous_hop = peer if hops else None
            for subscription, of in found.get(identity) or [(None, None)]:
                yield Record(self._run, *where, subscription, of, hops, published_at_s, now_s, size, previous_hop)

    def _columns(self, batch: RawRows, delivered: list[tuple[str, RawRows]], now_s: float, peer: str) -> Columns:
        if len(delivered) == 1 and delivered[0][1].picked is None:
            # All rows went to one client, which is common where traffic is heavy.
            (name, _), *_ = delivered
            filters = self._clients[name].filters
            if len(filters) == 1:
                receivers = Receivers(list(filters), [name], np.zeros(batch.count, np.int32))
                return trace_columns(batch, slice(None), receivers, now_s, peer)
        texts: list[str] = []
        names: list[str] = []
        lonely = np.ones(batch.count, np.bool_)
        rows: list[NDArray[np.int64]] = []
        codes: list[NDArray[np.int32]] = []
        for name, some in delivered:
            client = self._clients[name]
            of = np.arange(some.count) if some.picked is None else some.picked
            lonely[of] = False
            index = client.index()
            if index is None:
                ids = list(client.filters)
                codes.append(np.full(some.count, len(texts), np.int32))
            else:
                slots, ends = index.slots(some.content_view())
                of = np.repeat(of, np.diff(ends, prepend=0))
                distinct, code = np.unique(slots, return_inverse=True)
                ids = [str(index.id_of(slot)) for slot in distinct]
                codes.append(code.astype(np.int32) + np.int32(len(texts)))
            rows.append(of)
            texts += ids
            names += [name] * len(ids)
        forwards = np.flatnonzero(lonely)
        rows.append(forwards)
        codes.append(np.full(len(forwards), -1, np.int32))
        receivers = Receivers(texts, names, np.concatenate(codes))
        return trace_columns(batch, np.concatenate(rows), receivers, now_s, peer)
