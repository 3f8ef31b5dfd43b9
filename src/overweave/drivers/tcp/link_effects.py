"""Links and addresses as the core has them: links that it opens and closes, and states of the overlay that it adopts."""

import asyncio

from overweave.broker.core import BrokerCore
from overweave.contract.effects import CloseLink, OpenLink, OverlayChanged
from overweave.drivers.effect_runner import Performers
from overweave.drivers.tcp.contact import Contact
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.outbound_handshake import HandshakeOwner
from overweave.drivers.tcp.peers import Peers
from overweave.drivers.tcp.unavailable import LEFT_OVERLAY, NOT_JOINED
from overweave.errors import Refused

#: The delay after which clients get changed addresses: several changes are announced once.
ANNOUNCE_DELAY_S = 0.1


class LinkEffects:
    """The performers of effects on the links and the directory of one broker."""

    def __init__(self, host: CoreHost, links: Links, peers: Peers, log: Log) -> None:
        self._host, self._links, self._peers, self._log = host, links, peers, log
        self._announcement: asyncio.TimerHandle | None = None
        #: Only of a broker that joins.
        self._contact: Contact | None = None
        host.directory.observe(self._on_directory_changed)

    def performers(self) -> Performers:
        """How each effect is carried out."""
        return {OpenLink: self._open, CloseLink: self._close, OverlayChanged: self._on_overlay_changed}

    def restore(self, core: BrokerCore) -> None:
        """Begin with the links and addresses of a new core, which may have a later state than the network file."""
        state, first = core.overlay_state(), self._host.settings.overlay_state
        if state.version > first.version:
            self._host.directory.adopt(state.members)
            if [set(tree.links) for tree in state] != [set(tree.links) for tree in first]:
                epochs = {"file": first.version.epoch, "journal": state.version.epoch}
                self._log.warning(
                    "overlay-differs", text="the links in the journal are newer than those in the network file", **epochs
                )
        self._links.reset(core.neighbour_kinds(), core.overlay_record())

    def start(self, owner: HandshakeOwner) -> None:
        """Dial the neighbours, and the contact."""
        self._links.start(owner)
        url = self._host.settings.join
        if url is not None:
            self._contact = Contact(owner, url, self._links, self._log)

    def leave(self) -> None:
        """Leave the network as a guest without registrations of clients: the links disappear at once."""
        core = self._host.core
        if self._links.is_member or core.registration_count("subscription") or core.registration_count("advertisement"):
            return
        if self._contact is not None:
            self._contact.leave()
        for neighbour in self._links.neighbours:
            self._links.remove(neighbour)
            self._peers.disconnect_link(neighbour)
        self._log.info("left")

    def problem(self) -> str | None:
        """Why the broker has no links though there are other brokers; None if it has some, or needs none."""
        core, settings = self._host.core, self._host.settings
        if not core.is_isolated:
            return None
        state = core.overlay_state()
        if state.version.epoch and any(settings.id in tree.brokers for tree in state):
            return None
        if settings.join is not None:
            return f"it has not joined the network at {settings.join}"
        return f"this broker is not in the overlay (epoch {state.version.epoch})" if state.version.epoch else None

    def check_serves(self) -> None:
        """Raise `Refused` while the broker is outside the overlay: publications of its clients would reach nobody else."""
        problem = self.problem()
        if problem is not None:
            id, join = self._host.settings.id, self._host.settings.join
            raise Refused(LEFT_OVERLAY if join is None else NOT_JOINED, f"broker {id}: {problem}")

    def expel_clients(self) -> None:
        """Disconnect all clients if the broker has left the overlay, so that they fail over at once."""
        problem = self.problem()
        if problem is not None:
            self._peers.expel_clients(Refused(LEFT_OVERLAY, f"broker {self._host.settings.id}: {problem}"))

    def cancel(self) -> None:
        """Announce nothing more, and dial no contact."""
        if self._announcement is not None:
            self._announcement.cancel()
        if self._contact is not None:
            self._contact.cancel()

    def _open(self, effect: OpenLink) -> None:
        if effect.url:
            self._host.directory.learn(effect.peer, effect.url)
        self._links.open(effect.peer, effect.kind)

    def _close(self, effect: CloseLink) -> None:
        """Remove the link now; disconnect when the core has handled its stimulus."""
        self._links.remove(effect.peer)
        asyncio.get_running_loop().call_soon(self._disconnect, effect.peer)

    def _disconnect(self, neighbour: str) -> None:
        self._peers.disconnect_link(neighbour)
        self.expel_clients()

    def _on_overlay_changed(self, effect: OverlayChanged) -> None:
        version = effect.state.version
        self._log.info("overlay", epoch=version.epoch, phase=version.phase.name.lower(), current=effect.state.current)
        self._host.directory.adopt(effect.state.members)
        self._links.adopt(self._host.core.overlay_record())
        self.expel_clients()

    def _on_directory_changed(self) -> None:
        if self._announcement is None:
            self._announcement = asyncio.get_running_loop().call_later(ANNOUNCE_DELAY_S, self._announce)

    def _announce(self) -> None:
        """Tell clients the new addresses; no client has the name of a broker."""
        self._announcement = None
        for broker in self._host.directory:
            self._peers.expel_namesake(broker)
        self._peers.announce_addresses()
