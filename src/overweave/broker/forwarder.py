"""The data plane of a broker: publications from their arrival to the sessions of their next hops.

Each publication is routed once. Without a next hop, or before neighbours are synchronised, it is deferred. Its ack is pending
until the last copy is settled. One of a module is never kept for a broker that is down: no window limits modules.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from overweave.batches.base import Batch
from overweave.broker.advertised import Advertised, shown
from overweave.broker.context import BrokerContext
from overweave.broker.deferred import Deferred, Stage
from overweave.broker.duplicate_acks import DuplicateAcks
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session import Session
from overweave.broker.slow_consumers import SlowConsumerPolicy
from overweave.contract.effects import Notify, Reject
from overweave.contract.frames import BatchFrame
from overweave.contract.modules import Routed
from overweave.errors import InvalidInput, WireError
from overweave.language.headers import Priority
from overweave.language.messages import Control
from overweave.routing.base import Forward
from overweave.routing.ingress import Admitted

#: Publications of clients and of modules. Members of an enumeration are slow to look up.
_PUBLICATION, _CONTROL = Priority.PUBLICATION, Priority.CONTROL


class Forwarder:
    """The publications of one broker; ``advertised`` checks those of clients, where the protocol needs advertisements."""

    def __init__(self, context: BrokerContext, advertised: Advertised | None, slow_consumers: SlowConsumerPolicy) -> None:
        self._context, self._advertised, self._slow_consumers = context, advertised, slow_consumers
        self._routing, self._sync, self._failure_detector = context.engine.routing, context.sync, context.detector
        self._step, self._counters, self._deferred = context.step, context.counters, context.deferred
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._modules, self._story = context.modules, context.story
        self._ingress = context.engine.ingress(2 * max(context.config.session.window, context.config.publisher_window))
        #: Whether the story or a module observes where publications go.
        self._has_observers = False
        self.refresh_observers()
        self.duplicate_acks = DuplicateAcks(context)

    # ---- arrival

    def on_batch(self, frame: BatchFrame, peer: str, session: Session) -> None:
        """Accept and route a batch of a neighbour or a client."""
        batch = frame.batch
        count = batch.count
        if not session.receive(frame, count, self._step.effects):
            return
        inbound = session.inbound
        ack = PendingAck(inbound, inbound.stream, frame.sequence, count)
        origin, priority = peer if peer in self._neighbours else None, batch.priority()
        try:
            if origin is None and priority is not _PUBLICATION:
                raise WireError(0, "publications of a client without the priority of control")
            admitted = self._ingress.admit(batch, origin)
            if (
                admitted is not batch
                and isinstance(admitted, Admitted)
                and admitted.transit is not None
                and admitted.transit.ttl <= 1
            ):
                admitted.transit.validate_layout()  # its rows are examined when they expire
        except InvalidInput as error:
            # It is settled all the same: its sender would repeat it for ever.
            self._step.effects.append(Reject(peer, "bad-frame", str(error)))
            ack.release()
            return
        if priority is _CONTROL:
            self._counters.control_in += count
            self._counters.traffic.count_batch(batch, is_sent=False)
        else:
            self._counters.rows_in += count
        if isinstance(admitted, Admitted):
            self._route_admitted(admitted, peer, ack)
        else:
            self._route_fresh(admitted, peer, ack, True)

    def _route_admitted(self, admitted: Admitted, peer: str, ack: PendingAck) -> None:
        """Route an arriving batch with rows that are in transit, or duplicates."""
        if admitted.transit is not None:
            ack.retain()
            self._forward_transit(admitted.transit, admitted, peer, ack)
        if admitted.duplicates is not None:
            self.duplicate_acks.link(admitted.duplicates, peer, ack)
        for some, to_clients in admitted.fresh:
            ack.retain()
            self._route_fresh(some, peer, ack, to_clients)
        ack.release()

    def refresh_observers(self) -> None:
        """Observe publications from now on if a module watches them, or if there is a story."""
        self._has_observers = self._story.length > 0 or self._modules.watches_routed

    def publish_local(self, batch: Batch, module: str) -> None:
        """Route a publication of a module of this broker."""
        self._ingress.admit(batch, None)
        self._route_fresh(batch, module, None, True)

    def resume(self, entry: Deferred) -> None:
        """Route again a deferred batch, or one that was in flight on a failed link; it may be deferred again."""
        batch, peer = entry.what, entry.peer
        assert not isinstance(batch, Control)
        if entry.stage is Stage.UNSYNCED:
            self._route_fresh(batch, peer, entry.ack, entry.to_clients)
        elif self._is_ready(batch, peer):
            self._reroute(batch, peer, entry.ack, entry.to_clients)
        else:
            self._deferred.add(batch, peer, entry.ack, Stage.UNROUTABLE, entry.to_clients)

    # ---- routing

    def _is_ready(self, batch: Batch, peer: str) -> bool:
        """False while another neighbour is unsynchronised, and for new batches of clients after a pause of this broker."""
        if self._sync.unsynced:
            plane = self._context.engine.epochs
            epoch = None if plane is None else plane.epoch_of(batch, self._context.peers.origin_of(peer))
            if not self._sync.synced_except(peer, epoch):
                return False
        return not self._failure_detector.awaited or peer in self._neighbours or batch.has_destinations()

    def _route_fresh(self, batch: Batch, peer: str, ack: PendingAck | None, to_clients: bool) -> None:
        """Route publications that are fresh here: their hop is counted, and they are observed."""
        if (self._sync.unsynced or self._failure_detector.awaited) and not self._is_ready(batch, peer):
            if batch.priority() is _CONTROL:
                self._drop_control(batch, ack)
            else:
                self._deferred.add(batch, peer, ack, Stage.UNSYNCED, to_clients)
            return
        is_relayed = peer in self._neighbours
        if not is_relayed and self._advertised is not None and peer in self._sessions:
            covered = self._drop_unadvertised(self._advertised, batch, peer, ack)
            if covered is None:
                return
            batch = covered
        hopped = batch.next_hop()
        forwards = self._forwards(hopped, peer, to_clients)
        if self._has_observers:
            self._observe(Routed(batch, peer, forwards, batch), hopped)
        self._send(hopped, forwards, peer, ack, is_relayed, to_clients)

    def _forward_transit(self, batch: Batch, admitted: Admitted, peer: str, ack: PendingAck) -> None:
        """Forward rows by their destinations. Modules observe only rows that are not also matched here."""
        hopped = batch.next_hop()
        forwards = self._forwards(hopped, peer, True)
        if self._has_observers:
            with suppress(InvalidInput):  # malformed rows are rejected where they are matched
                batch.validate_layout()
                self._observe(Routed(batch, peer, forwards, _transit_only(batch, admitted)), hopped)
        self._send(hopped, forwards, peer, ack, True, True)

    def _reroute(self, batch: Batch, peer: str, ack: PendingAck | None, to_clients: bool) -> None:
        """Route again without counting a hop. Batches with destinations count as relayed, even from local clients."""
        is_relayed = peer in self._neighbours or batch.has_destinations()
        if not is_relayed and self._advertised is not None and peer in self._sessions:
            covered = self._drop_unadvertised(self._advertised, batch, peer, ack)
            if covered is None:
                return
            batch = covered
        forwards = self._forwards(batch, peer, to_clients)
        if self._modules.watches_routed:
            self._modules.notify_watchers(Routed(batch, peer, forwards, None))
        self._send(batch, forwards, peer, ack, is_relayed, to_clients)

    def _forwards(self, batch: Batch, peer: str, to_clients: bool) -> list[Forward]:
        """What the protocol forwards, without clients here unless ``to_clients``; malformed batches are rejected."""
        neighbours = self._neighbours
        try:
            forwards = self._routing.route(batch, peer if peer in neighbours else None)
        except InvalidInput as error:
            code = "bad-frame" if isinstance(error, WireError) else "not-advertised"
            self._step.effects.append(Reject(peer, code, str(error)))
            return []
        return forwards if to_clients else [(to, some) for to, some in forwards if to is None or to in neighbours]

    def _drop_unadvertised(self, advertised: Advertised, batch: Batch, client: str, ack: PendingAck | None) -> Batch | None:
        """The rows that an advertisement of their client covers; None if there are none: the ack is released then."""
        uncovered = advertised.uncovered(client, batch)
        if uncovered is None:
            return batch
        self._counters.unadvertised += len(uncovered)
        first = shown(batch.take(uncovered[:1]).publishes()[0].publication)
        dropped = "1 publication was dropped" if len(uncovered) == 1 else f"{len(uncovered):,} publications were dropped"
        text = f"publication {first}: not covered by any advertisement of {client!r}; {dropped}"
        self._step.effects.append(Notify(client, "not-advertised", text, self._counters.unadvertised))
        if ack is not None:
            ack.unmatched += len(uncovered)
        if len(uncovered) < batch.count:
            return batch.take(np.setdiff1d(np.arange(batch.count), uncovered))
        if ack is not None:
            ack.release()
        return None

    def _observe(self, routed: Routed, hopped: Batch) -> None:
        """Show routed publications to the story and to modules."""
        if self._story.length:
            self._story.routed(self._step.now_s, routed.peer, hopped, routed.to)
        if self._modules.watches_routed:
            self._modules.notify_watchers(routed)

    # ---- sending

    def _send(
        self, batch: Batch, forwards: list[Forward], peer: str, ack: PendingAck | None, window_exempt: bool, to_clients: bool
    ) -> None:
        """Send forwards to sessions. Relayed rows are ``window_exempt``: brokers might wait for each other in a cycle."""
        sessions, neighbours, effects = self._sessions, self._neighbours, self._step.effects
        is_control = batch.priority() is _CONTROL
        if batch.head.ttl_written <= batch.head.hops_added:
            forwards = list(self._drop_expired(forwards))
        if ack is not None:
            if not window_exempt:  # they are of a client, which is told
                ack.unmatched += _unmatched(batch, forwards)
            if len(forwards) != 1:  # mostly there is one next hop, and nothing to count
                ack.fan_out(len(forwards))
        for to, some in forwards:
            if to is None:
                self._deferred.add(some, peer, ack, Stage.UNROUTABLE, to_clients)
                continue
            session = sessions.get(to)
            if session is None:
                self._modules.deliver(to, some)
                if ack is not None:
                    ack.release()
                continue
            if to not in neighbours:
                session.outbound.send(some, ack, effects)
                self._counters.rows_to_clients += some.count
                if self._slow_consumers.needed:
                    self._slow_consumers.watch(session, self._step.now_s)
                continue
            if not is_control:
                session.outbound.send(some, ack, effects, window_exempt)
                self._counters.rows_out += some.count
            elif session.outbound.send_of_module(some, ack, effects, window_exempt):
                self._counters.control_out += some.count
                self._counters.traffic.count_batch(some, is_sent=True)
            else:
                self._drop_control(some, ack)

    def _drop_control(self, batch: Batch, ack: PendingAck | None) -> None:
        """Drop publications of a module that would wait for a broker."""
        self._counters.control_dropped += batch.count
        if ack is not None:
            ack.release()

    def _drop_expired(self, forwards: list[Forward]) -> Iterator[Forward]:
        """Drop rows with an expired TTL from forwards to neighbours; clients still receive them."""
        for to, some in forwards:
            unexpired = some.unexpired() if to in self._neighbours else some
            if unexpired is not None:
                yield to, unexpired

    def validate(self) -> None:
        """Check the invariants."""
        self._slow_consumers.validate()
        self._deferred.validate()
        self.duplicate_acks.validate()
        self._ingress.validate()
        assert self._has_observers == (self._story.length > 0 or self._modules.watches_routed)


def _transit_only(batch: Batch, admitted: Admitted) -> Batch | None:
    """The transit rows that are not also matched at this broker."""
    matched = {identity for some, _ in admitted.fresh for identity in some.identities()}
    if admitted.duplicates is not None:
        matched.update(admitted.duplicates.identities())
    if not matched:
        return batch
    rows = np.array([row for row, identity in enumerate(batch.identities()) if identity not in matched], np.int64)
    return batch.take(rows) if len(rows) else None


def _unmatched(batch: Batch, forwards: list[Forward]) -> int:
    """The number of rows of a client's batch in no forward; they differ in their sequence numbers."""
    count = batch.count
    for _, some in forwards:
        if some.count == count:
            return 0
    if len(forwards) > 1:
        sequences = np.concatenate([some.sequences() for _, some in forwards])
        sequences.sort()
        return count - 1 - int(np.count_nonzero(sequences[1:] != sequences[:-1]))
    return count - forwards[0][1].count if forwards else count
