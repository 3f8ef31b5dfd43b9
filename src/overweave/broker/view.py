"""The read-only view of a broker for its modules."""

from typing import NamedTuple

from overweave.broker.overlay_control import OverlayControl
from overweave.broker.peers import Peers
from overweave.broker.registry import Registrations, Registry
from overweave.contract.overlay_state import OverlayState, OverlayStatus


class View(NamedTuple):
    """The parts of one broker that its modules read (see `overweave.contract.modules.BrokerView`)."""

    overlay: OverlayControl
    registry: Registry
    peers: Peers

    def overlay_state(self) -> OverlayState:
        """The present state of the overlay."""
        return self.overlay.state

    def overlay_status(self) -> OverlayStatus:
        """The state of this broker in a change of the overlay."""
        return self.overlay.status()

    def check_overlay(self, state: OverlayState) -> None:
        """Raise an error if this broker cannot route on a state of the overlay."""
        self.overlay.check_supported(state)

    def clients(self) -> list[str]:
        """All clients with a session or registrations, connected or not."""
        return self.registry.clients()

    def is_connected(self, client: str) -> bool:
        """Whether a client has an established session."""
        return client in self.peers.sessions and self.peers.sessions[client].established

    def registered(self, kind: str, client: str) -> int:
        """The number of registrations of a kind of one client; all generations of one count once."""
        return self.registry.stable_count(kind, client)

    def registrations(self) -> Registrations:
        """Client and filter of each registration of clients, by its kind and id."""
        return self.registry.entries()

    def unsettled_rows(self) -> int:
        """The number of unsettled rows of neighbours and connected clients; those of clients that are away would only add up."""
        of = self.peers
        return sum(
            each.outbound.unsettled_rows() for peer, each in of.sessions.items() if each.established or peer in of.neighbours
        )
