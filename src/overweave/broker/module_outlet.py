"""The effects of modules on the other parts of their broker."""

from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.forwarder import Forwarder
from overweave.broker.migration import MigrationControl
from overweave.broker.overlay_control import OverlayControl
from overweave.broker.retirement import LinkRetirement
from overweave.broker.urgent_lane import UrgentLane
from overweave.contract.frames import ModuleMessage
from overweave.contract.overlay_state import OverlayState
from overweave.contract.stimuli import MigrateClient
from overweave.language.headers import Priority
from overweave.language.messages import Control


class BrokerOutlet(NamedTuple):
    """The parts of one broker that its modules act on (see `ModuleOutlet`)."""

    context: BrokerContext
    control: ControlPlane
    forwarder: Forwarder
    urgent: UrgentLane
    retirement: LinkRetirement
    migration: MigrationControl
    overlay: OverlayControl

    def send_control(self, module: str, message: Control) -> None:
        """Apply a control message of a module; it is not traced, nor held by an ack."""
        self.control.apply_local(message, module)

    def publish(self, module: str, batch: Batch) -> None:
        """Route a publication of a module."""
        if batch.priority() is Priority.URGENT:
            self.urgent.publish(batch)
        else:
            self.forwarder.publish_local(batch, module)

    def send_message(self, neighbour: str, message: ModuleMessage, urgent: bool) -> None:
        """Send a message to a module of a neighbour; without a connection it is dropped: modules do not wait for ever."""
        peers, counters = self.context.peers, self.context.counters
        if neighbour not in peers.neighbours or not peers.sessions[neighbour].established:
            return
        session, effects = peers.sessions[neighbour], self.context.step.effects
        if urgent:
            session.send_urgent_message(message, effects)
        else:
            session.send_control(message, effects)
        counters.control_out += 1
        counters.traffic.count(message.module, message.kind, sent=1)

    def on_watches_changed(self) -> None:
        """Observe publications only while a module watches."""
        self.forwarder.refresh_observers()

    def publish_overlay(self, state: OverlayState) -> None:
        """Adopt a state of the overlay, and send it to the neighbours."""
        self.overlay.adopt(state)

    def retire_link(self, neighbour: str) -> None:
        """Retire a link."""
        self.retirement.retire(neighbour)

    def migrate(self, order: MigrateClient) -> None:
        """Order a client to move."""
        self.migration.on_order(order)
