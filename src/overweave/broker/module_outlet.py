"""The effects of modules on the other parts of their broker."""

from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.broker.control_plane import ControlPlane
from overweave.broker.forwarder import Forwarder
from overweave.broker.retirement import LinkRetirement
from overweave.broker.urgent_lane import UrgentLane
from overweave.language.headers import Priority
from overweave.language.messages import Control


class BrokerOutlet(NamedTuple):
    """The parts of one broker that its modules act on (see `ModuleOutlet`)."""

    control: ControlPlane
    forwarder: Forwarder
    urgent: UrgentLane
    retirement: LinkRetirement

    def send_control(self, module: str, message: Control) -> None:
        """Apply a control message of a module; it is not traced, nor held by an ack."""
        self.control.apply_local(message, module)

    def publish(self, module: str, batch: Batch) -> None:
        """Route a publication of a module."""
        if batch.priority() is Priority.URGENT:
            self.urgent.publish(batch)
        else:
            self.forwarder.publish_local(batch, module)

    def retire_link(self, neighbour: str) -> None:
        """Retire a link."""
        self.retirement.retire(neighbour)
