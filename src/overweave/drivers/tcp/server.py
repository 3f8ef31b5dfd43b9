"""The server of a live broker: it accepts connections, authenticates and admits peers, and dispatches their messages."""

from overweave.contract.frames import BatchFrame, ControlFrame, Frame
from overweave.contract.requests import Request
from overweave.contract.wire import Connect, Disconnect, Error, Message, Ping
from overweave.drivers.tcp.acceptor import Acceptor
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.admission import check_frame
from overweave.drivers.tcp.client_keys import claim_name
from overweave.drivers.tcp.client_sessions import ClientSession, ClientSessions
from overweave.drivers.tcp.connect_checks import check_broker, check_connect
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.limits import CONNECTION_LIMIT, FILE_DESCRIPTORS, SPARE, Limits
from overweave.drivers.tcp.link_effects import LinkEffects
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.operator_requests import OperatorRequests
from overweave.drivers.tcp.peers import Peers
from overweave.drivers.tcp.read_throttle import ReadThrottle
from overweave.drivers.tcp.security import Authenticator, Identity, Permissions, server_context
from overweave.drivers.tcp.unavailable import NOT_JOINED, STOPPING
from overweave.errors import InvalidInput, Refused


class Server:
    """Handles all connections of one broker; implements `ConnectionHandler`, `Host` and `HandshakeOwner`."""

    def __init__(
        self,
        host: CoreHost,
        peers: Peers,
        links: Links,
        link_effects: LinkEffects,
        sessions: ClientSessions,
        limits: Limits,
        log: Log,
    ) -> None:
        self.settings, self.directory = host.settings, host.directory
        self._link_effects = link_effects
        self._host, self._peers, self._links, self._sessions = host, peers, links, sessions
        self._limits, self._log = limits, log
        self._authenticator = Authenticator(self.settings.security)
        self._acceptor: Acceptor | None = None
        #: All connections from when they are made until they are lost.
        self._open: set[Connection] = set()
        #: Connections whose peer has not sent `Connect`, the oldest first.
        self._unauthenticated: dict[Connection, None] = {}
        self._throttle = ReadThrottle()
        self.operators = OperatorRequests(host, peers.__contains__, log)
        self._draining = False

    async def listen(self) -> None:
        """Accept connections from now on."""
        host, port, tls = parse_address(self.settings.listen)
        self._acceptor = Acceptor(self, server_context(self.settings.security) if tls else None)
        await self._acceptor.listen(host, port)

    def drain(self) -> None:
        """Accept no more connections, and no more publications of clients."""
        self._draining = True
        self.stop_accepting()

    def stop_accepting(self) -> None:
        """Accept no more connections."""
        if self._acceptor is not None:
            self._acceptor.close()

    def close(self) -> None:
        """Close the connections of unauthenticated peers and cancel all timers."""
        self._throttle.close()
        for connection in list(self._unauthenticated):
            connection.close()

    @property
    def is_draining(self) -> bool:
        """Whether the broker is stopping."""
        return self._draining

    @property
    def connection_count(self) -> int:
        """The number of connections, those in a TLS handshake included."""
        return len(self._open) + (0 if self._acceptor is None else self._acceptor.opening)

    @property
    def unauthenticated(self) -> list[Connection]:
        """The connections whose peer has not sent `Connect`."""
        return list(self._unauthenticated)

    # ---- connections

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        self._open.add(connection)
        self._unauthenticated[connection] = None

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        is_peer = self._peers.get(connection.peer) is connection
        if is_peer and isinstance(message, Frame):
            self._on_frame(connection, message)
        elif isinstance(message, Connect):
            self._on_connect(connection, message)
        elif isinstance(message, Ping):
            return
        elif not is_peer:
            connection.refuse("not-open", "expected Connect as the first message")
        elif isinstance(message, Request):
            self._on_request(connection, message)
        elif isinstance(message, Disconnect):
            self._peers.leave(connection)
            self._link_effects.expel_clients()
        elif isinstance(message, Error):
            self._log.warning("refused by peer", peer=connection.peer, code=message.code, text=message.text)
            connection.close()

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        self._open.discard(connection)
        self._unauthenticated.pop(connection, None)
        self._throttle.cancel(connection)
        self.operators.forget(connection)
        self._peers.detach(connection, left=False)

    def dialled(self, connection: Connection, answer: Connect, *, guest: bool) -> None:
        """See `HandshakeOwner.dialled`."""
        check_broker(answer.name, self.settings, self.directory)
        self._links.check_collision(answer.name, dialled_by=self.settings.id)
        self._open.add(connection)
        self._peers.connect_broker(connection, answer, self.settings.id, None, guest=guest)

    def may_accept(self) -> bool:
        """See `Host.may_accept`: the oldest unauthenticated connection makes room, as it may never authenticate."""
        count = self.connection_count
        if self._limits.has_room(count):
            return True
        refused = self._limits.full(count + 1)
        oldest = next(iter(self._unauthenticated), None)
        if oldest is None or not self._limits.has_room(count - SPARE):
            return False
        del self._unauthenticated[oldest]
        oldest.refuse(refused.code, refused.text)
        return True

    def exhausted(self, error: OSError) -> None:
        """See `Host.exhausted`."""
        self._limits.exceeded[FILE_DESCRIPTORS] += 1
        self._log.error("no-file-descriptors", text=f"{error.strerror}; new connections have to wait")

    # ---- frames

    def _on_frame(self, connection: Connection, frame: Frame) -> None:
        peer = connection.peer
        session = self._sessions.get(peer)
        if session is None:
            self._host.receive(peer, frame)
            return
        if self._draining and isinstance(frame, BatchFrame):
            return  # it is not acknowledged, so the client sends it again
        try:
            self._check_frame(frame, peer, session)
        except Refused as refused:
            self._end_session(peer, refused)
            return
        self._host.receive(peer, frame)
        if isinstance(frame, BatchFrame):
            pause_s = self._limits.publish_pause_s(peer, frame.batch.count)
            if pause_s:
                self._throttle.pause(connection, pause_s)

    def _check_frame(self, frame: Frame, client: str, session: ClientSession) -> None:
        """Raise `Refused` unless a client may send a frame."""
        if isinstance(frame, BatchFrame):
            self._link_effects.check_serves()
        core, claim = self._host.core, session.claim
        window, life = self.settings.config.session.window, 0 if claim is None else claim.life
        check_frame(frame, client, session.permissions, core.unsettled_inbound_rows(client), window, life)
        if isinstance(frame, ControlFrame):
            self._limits.check_control(frame, client, core)

    def _on_request(self, connection: Connection, request: Request) -> None:
        session = self._sessions.get(connection.peer)
        if session is None:
            connection.refuse("bad-frame", "expected no request of a broker: they are for clients")
            return
        try:
            pause_s = self.operators.on_request(connection, request, session.permissions)
        except Refused as refused:
            self._end_session(connection.peer, refused)
        else:
            if pause_s:
                self._throttle.pause(connection, pause_s)

    def _end_session(self, client: str, reason: Refused) -> None:
        """Disconnect a client that did what it may not."""
        self._log.warning("refused", peer=client, code=reason.code, text=reason.text)
        self._sessions.add_tombstone(client, reason.code, reason.text)
        self._peers.reject(client, reason, left=True)

    # ---- admission

    def _on_connect(self, connection: Connection, message: Connect) -> None:
        self._unauthenticated.pop(connection, None)
        try:
            if connection.peer:
                raise Refused("bad-frame", "expected Connect only once")
            check_connect(message, self.settings, self.directory)
            identity = Identity(message.role, message.name, message.token, connection.certificate())
            permissions = self._authenticator.admit(*identity)
            if self._draining:
                raise Refused(STOPPING, f"broker {self.settings.id} is stopping")
            if message.role == "client":
                self._link_effects.check_serves()
                self._admit_client(connection, message, identity, permissions)
            else:
                self._admit_broker(connection, message, identity)
        except Refused as refused:
            log = self._log.debug if refused.code == CONNECTION_LIMIT else self._log.warning  # the limits log it
            log("refused", peer=message.name, code=refused.code, text=refused.text)
            connection.refuse(refused.code, refused.text)

    def _admit_client(self, connection: Connection, message: Connect, identity: Identity, permissions: Permissions) -> None:
        name = message.name
        is_connected = name in self._peers
        if not is_connected:
            self._limits.check_connection(len(self._peers) + 1)
            self._make_room()
        session = self._sessions.get(name)
        if session is None:
            clients = self._host.core.clients()
            if name not in clients:
                self._limits.check_client(len(clients))
        held, is_proven = None if session is None else session.claim, self._authenticator.proves(name)
        claim = claim_name(held, name, message.key, connected=is_connected, proven=is_proven)
        if held is not None and claim is not held:
            self._peers.take_over(name)
        self._sessions.open(claim, identity, permissions)
        self._peers.connect_client(connection, message)

    def _admit_broker(self, connection: Connection, message: Connect, identity: Identity) -> None:
        name = message.name
        if message.guest:
            self._link_effects.check_serves()
            link = self._links.get(name)
            if link is not None and link.contact:  # both would be without the network
                raise Refused(NOT_JOINED, f"broker {self.settings.id} is a guest of broker {name} itself")
        self._links.check_collision(name, dialled_by=name)
        self._peers.expel_namesake(name)
        connection.send(Connect("broker", self.settings.id, listen=self.settings.announced))
        self._peers.connect_broker(connection, message, name, identity, guest=message.guest)

    def _make_room(self) -> None:
        """Close unauthenticated connections, the oldest first, in favour of a client that is authenticated."""
        while self._unauthenticated and self.connection_count > self._limits.connections_max:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            self._open.discard(oldest)
            refused = self._limits.full(self.connection_count)
            oldest.refuse(refused.code, refused.text)

    # ---- changed tokens

    def reload(self) -> None:
        """Read the tokens again; disconnect peers whose token is no longer valid, or permits fewer subscriptions."""
        try:
            self._authenticator = Authenticator(self.settings.security)
        except InvalidInput as error:
            self._log.error("reload-failed", text=f"{error}; the old tokens stay")
            return
        self._log.info("reloaded")
        for client, identity, permissions in self._sessions.identities():
            try:
                admitted = self._authenticator.admit(*identity)
                if not admitted.includes_subscriptions_of(permissions):
                    raise Refused("permissions-changed", f"the new tokens permit fewer subscriptions to client {client!r}")
            except Refused as refused:
                self._expel(client, refused, is_client=True)
            else:
                self._sessions.set_permissions(client, admitted)
        for neighbour, identity in self._links.identities():
            try:
                self._authenticator.admit(*identity)
            except Refused as refused:
                self._expel(neighbour, refused, is_client=False)

    def _expel(self, peer: str, reason: Refused, *, is_client: bool) -> None:
        """Disconnect a peer that is no longer admitted; a client's session ends."""
        self._log.warning("refused", peer=peer, code=reason.code, text=reason.text)
        text = f"{reason.text}; the tokens of broker {self.settings.id} have changed"
        self._sessions.add_tombstone(peer, reason.code, text)
        self._peers.reject(peer, Refused(reason.code, text), left=is_client)
