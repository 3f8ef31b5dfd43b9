"""Peers of a live broker: the connections of authenticated clients and neighbours, by name.

A peer's connection comes and goes here, and nowhere else; the core, the links and the client sessions are notified.
"""

from overweave.contract.stimuli import PeerConnected, PeerDisconnected, PeerLeft
from overweave.contract.wire import Addresses, Connect, Disconnect
from overweave.drivers.tcp.client_keys import taken_over
from overweave.drivers.tcp.client_sessions import ClientSessions
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.security import Identity
from overweave.errors import Refused


class Peers(dict[str, Connection]):
    """The connections by peer, as the effect runner needs them."""

    def __init__(self, host: CoreHost, links: Links, sessions: ClientSessions, log: Log) -> None:
        super().__init__()
        self._host, self._links, self._sessions, self._log = host, links, sessions, log
        self._bytes_closed = 0

    @property
    def bytes_out(self) -> int:
        """The bytes sent since the start, over all connections that were ever open."""
        return self._bytes_closed + sum(connection.bytes_out for connection in self.values())

    def pending_by_peer(self) -> dict[str, int]:
        """The bytes that the operating system has not accepted, by peer."""
        return {peer: connection.pending_bytes for peer, connection in self.items()}

    def sent_by_peer(self) -> dict[str, int]:
        """The bytes sent over the open connection of each peer."""
        return {peer: connection.bytes_out for peer, connection in self.items()}

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return sum(peer in self._sessions for peer in self)

    def connect_client(self, connection: Connection, message: Connect) -> None:
        """Attach a client whose session is open, and reply to it."""
        self._attach(connection, message.name)
        connection.send(self._sessions.reply(message))
        self._log.info("connected", peer=message.name, role="client")
        self._host.handle(PeerConnected(message.name, client=True))
        session = self._sessions.get(message.name)
        if session is not None and session.notice is not None:
            connection.send(session.notice)  # it may have been lost with the last connection

    def connect_broker(
        self, connection: Connection, message: Connect, dialled_by: str, identity: Identity | None, *, guest: bool
    ) -> None:
        """Attach a broker that has sent ``message``; ``identity`` is None if this broker dialled. A guest dials."""
        neighbour = message.name
        is_contact = guest and dialled_by == self._host.settings.id
        self._host.directory.learn(neighbour, message.listen)
        self._links.add(neighbour, message.link)
        self._attach(connection, neighbour)
        self._links.on_connected(neighbour, connection, dialled_by, identity)
        role = "contact" if is_contact else "guest" if guest else "broker"
        self._log.info("connected", peer=neighbour, role=role)
        kind = self._links.kinds[neighbour]
        self._host.handle(PeerConnected(neighbour, kind=kind, guest=guest and not is_contact, contact=is_contact))
        if guest:
            self._links.adopt(self._host.core.overlay_record())

    def _attach(self, connection: Connection, name: str) -> None:
        """Replace the older connection of a peer, which may be dead without this end knowing it."""
        old = self.get(name)
        if old is not None:
            self.detach(old, left=False)
            old.close()
        connection.peer = name
        connection.mark_authenticated()
        self[name] = connection

    def detach(self, connection: Connection, *, left: bool) -> None:
        """Remove a connection if it is its peer's current one; a peer that ``left`` does not return."""
        peer = connection.peer
        if self.get(peer) is not connection:
            return
        del self[peer]
        self._links.on_disconnected(peer)
        self._bytes_closed += connection.bytes_out
        self._log.info("disconnected", peer=peer)
        if left:
            self._sessions.end(peer)
        else:
            self._host.handle(PeerDisconnected(peer))
            if peer in self._sessions:
                self._sessions.start_expiry(peer)

    def reject(self, peer: str, error: Refused, *, left: bool) -> None:
        """Disconnect a peer with an error; ``left`` also ends the session of a client that is disconnected already."""
        connection = self.get(peer)
        if connection is not None:
            connection.refuse(error.code, error.text)
            self.detach(connection, left=left)
        elif left:
            self._sessions.end(peer)

    def take_over(self, client: str) -> None:
        """End the session of a client whose name another client claims."""
        self._log.warning("taken-over", peer=client)
        self.reject(client, taken_over(client), left=False)
        self._sessions.end(client)

    def leave(self, connection: Connection) -> None:
        """Disconnect a peer that sent `Disconnect`; a broker's link is removed."""
        if connection.peer not in self._sessions:
            self._links.remove(connection.peer)
            self._host.directory.forget(connection.peer)
        self.detach(connection, left=True)
        connection.close()

    def disconnect_link(self, neighbour: str) -> None:
        """Close the connection of a removed link, with notice to the other end."""
        connection = self.get(neighbour)
        self._host.directory.forget(neighbour)
        if connection is None:
            self._host.handle(PeerLeft(neighbour))
            return
        connection.send(Disconnect())
        self.detach(connection, left=True)
        connection.close()

    def expel_namesake(self, broker: str) -> None:
        """End the session of a client that had the name of a broker before this one knew of it."""
        if broker in self._sessions:
            refused = Refused("bad-name", f"client {broker!r}: expected a name that is no broker's")
            self._log.warning("refused", peer=broker, code=refused.code, text=refused.text)
            self._sessions.add_tombstone(broker, refused.code, refused.text)
            self.reject(broker, refused, left=True)

    def expel_clients(self, refused: Refused) -> None:
        """End the sessions of all clients, connected or not."""
        for client in self._host.core.clients():
            self._log.warning("refused", peer=client, code=refused.code, text=refused.text)
            self._sessions.add_tombstone(client, refused.code, refused.text)
            self.reject(client, refused, left=True)

    def announce_addresses(self) -> None:
        """Send the addresses of all brokers to connected clients."""
        addresses = Addresses(self._host.directory.others())
        for peer, connection in list(self.items()):
            if peer in self._sessions:
                connection.send(addresses)

    def close_all(self) -> None:
        """Close all connections without notice to the core, which is about to be replaced."""
        self._bytes_closed = self.bytes_out
        connections = list(self.values())
        self.clear()
        for connection in connections:
            connection.close()
