"""Recovery from failed, removed and retired links: one class for protocols with link events, one for all others."""

from typing import Protocol

from overweave.batches.base import Batch
from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.deferred import Deferred
from overweave.broker.duplicate_acks import DuplicateAcks
from overweave.broker.orphans import Orphans
from overweave.broker.pending_ack import PendingAck
from overweave.broker.redirection import redirect_in_flight
from overweave.language.messages import Control
from overweave.routing.base import LinkEvents, Output

#: Unsettled messages of a link, with their acks.
Reclaimed = list[tuple[Control | Batch, PendingAck | None]]


class Recovery(Protocol):
    """The reaction of a broker to changes of its links."""

    def start(self) -> None:
        """Before the first stimulus."""

    def on_link_up(self, neighbour: str) -> None:
        """A session with a neighbour is established."""

    def on_link_draining(self, neighbour: str) -> None:
        """Use a link for no new publications; those in flight drain."""

    def on_link_removed(self, neighbour: str, reclaimed: Reclaimed) -> None:
        """A neighbour is removed, with unsettled messages."""

    def on_heartbeat(self) -> None:
        """A heartbeat period has passed."""

    def on_paused(self, paused_s: float) -> None:
        """The broker itself was paused: extend its deadlines."""

    def on_routes_changed(self) -> None:
        """Routing tables may have changed."""


def make_recovery(context: BrokerContext, control: ControlPlane, duplicates: DuplicateAcks, orphans: Orphans) -> Recovery:
    """The recovery that suits the protocol of a broker."""
    links = context.engine.links
    if links is not None:
        return LinkRecovery(context, control, duplicates, links)
    return StaticRecovery(context, control, duplicates, orphans)


class StaticRecovery:
    """Messages wait for a failed link. Those of a removed link are orphans."""

    def __init__(self, context: BrokerContext, control: ControlPlane, duplicates: DuplicateAcks, orphans: Orphans) -> None:
        self._context, self._control, self._duplicates, self._orphans = context, control, duplicates, orphans
        self._ticks = context.engine.ticks or _no_outputs

    def start(self) -> None:
        """See `Recovery.start`: where there are heartbeats, the protocol gets a first tick."""
        if self._context.detector.tick_s is not None:
            self._ticks()

    def on_link_up(self, neighbour: str) -> None:
        """See `Recovery.on_link_up`."""

    def on_link_draining(self, neighbour: str) -> None:
        """See `Recovery.on_link_draining`: routing forgets the neighbour, the session drains."""
        self._control.drain_neighbour(neighbour)

    def on_link_removed(self, neighbour: str, reclaimed: Reclaimed) -> None:  # noqa: ARG002
        """See `Recovery.on_link_removed`."""
        for what, ack in reclaimed:
            if not isinstance(what, Control):
                self._orphans.add(what, ack)

    def on_heartbeat(self) -> None:
        """See `Recovery.on_heartbeat`."""
        before_s = self._context.undeliverable_before_s
        self._context.sync.tick()
        self._control.on_sync_progress()
        self._control.perform_all(self._ticks())
        self._duplicates.expire(before_s)
        self._context.counters.undeliverable += self._context.deferred.expire_addressed(before_s)
        self._control.settlement.expire(before_s)

    def on_paused(self, paused_s: float) -> None:
        """See `Recovery.on_paused`."""
        self._context.deferred.shift(paused_s)
        self._duplicates.shift(paused_s)

    def on_routes_changed(self) -> None:
        """See `Recovery.on_routes_changed`: deferred messages wait for neighbours, not for routes."""


class LinkRecovery:
    """Failures are detected by heartbeats, and messages of failed or removed links are routed again."""

    def __init__(self, context: BrokerContext, control: ControlPlane, duplicates: DuplicateAcks, links: LinkEvents) -> None:
        self._context, self._control, self._duplicates, self._links = context, control, duplicates, links
        redirector = context.engine.redirect
        self._redirects = _no_redirect if redirector is None else redirector.redirects

    def start(self) -> None:
        """See `Recovery.start`."""

    def on_link_up(self, neighbour: str) -> None:
        """See `Recovery.on_link_up`."""
        self._context.detector.restored(neighbour)
        self._control.perform_all(self._links.link_up(neighbour))
        self.on_routes_changed()

    def on_link_draining(self, neighbour: str) -> None:
        """See `Recovery.on_link_draining`."""
        self._control.perform_all(self._links.link_down(neighbour))
        self.on_routes_changed()

    def on_link_removed(self, neighbour: str, reclaimed: Reclaimed) -> None:
        """See `Recovery.on_link_removed`."""
        for what, ack in reclaimed:
            self._context.deferred.resume(Deferred(what, neighbour, ack, self._context.step.now_s))

    def on_heartbeat(self) -> None:
        """See `Recovery.on_heartbeat`."""
        context, peers = self._context, self._context.peers
        for neighbour in peers.neighbours:
            peers.sessions[neighbour].acknowledge(context.step.effects, selective=True)
        for neighbour in context.detector.expired(list(peers.neighbours), context.step.now_s):
            self._on_link_down(neighbour)
        if context.detector.stop_listening(context.step.now_s):
            self.on_routes_changed()
        self._control.perform_all(self._links.tick())
        self._control.settlement.on_sync_progress()
        self._duplicates.expire(context.undeliverable_before_s)
        context.counters.undeliverable += context.deferred.expire_addressed(context.undeliverable_before_s)

    def on_paused(self, paused_s: float) -> None:
        """See `Recovery.on_paused`: neighbours may have given this broker up, so all links have to come up again."""
        self._context.deferred.shift(paused_s)
        self._duplicates.shift(paused_s)
        established = self._context.peers.established()
        self._context.detector.listen(established, self._context.step.now_s)
        for neighbour in established:
            self._on_link_down(neighbour)

    def on_routes_changed(self) -> None:
        """See `Recovery.on_routes_changed`."""
        redirect = self._redirects()
        if redirect is not None:
            redirect_in_flight(self._context, redirect)
        if self._context.deferred:
            self._context.deferred.flush()

    def _on_link_down(self, neighbour: str) -> None:
        self._control.perform_all(self._links.link_down(neighbour))
        session = self._context.peers.sessions[neighbour]
        self.on_link_removed(neighbour, session.reclaim(self._context.step.effects))
        self.on_routes_changed()


def _no_redirect() -> None:
    return None


def _no_outputs() -> tuple[Output, ...]:
    return ()
