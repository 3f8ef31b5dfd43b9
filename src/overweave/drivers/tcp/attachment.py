"""An attachment: a client's connection to one broker, with its uplink, resume token and handshake."""

import asyncio
import ssl
from typing import NamedTuple, Protocol

from overweave.contract.config import CLIENT_WINDOW, SessionConfig
from overweave.contract.frames import Frame
from overweave.contract.requests import Reply, Request
from overweave.contract.wire import Addresses, Connect, Disconnect, Error, Message, Notice, Ping
from overweave.drivers.tcp.address_book import AddressBook
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.client_keys import TAKEN_OVER
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.unavailable import LEFT_OVERLAY
from overweave.drivers.tcp.uplink import Uplink
from overweave.errors import Refused

CONFIG = SessionConfig(window=CLIENT_WINDOW, acknowledge_every=256, acknowledge_delay_s=0.005)
#: Errors after which a reconnect makes no sense.
_FATAL = frozenset(
    ("unauthorized", "bad-name", "name-in-use", "version", "not-allowed", "bad-frame", "bad-id", "bad-publication", TAKEN_OVER)
) | {"limit-exceeded", "slow-consumer"}
#: Errors that end only a client that never was connected; a reconnect is tried again.
_FATAL_FIRST = frozenset(("connection-limit", LEFT_OVERLAY))


class ClientIdentity(NamedTuple):
    """What a client presents to brokers."""

    name: str
    token: str | None
    #: The key of its sessions: it resumes them, and no other client knows it.
    key: str
    #: Whether the name was given, so that other clients may have had it before.
    is_named: bool


class AttachmentOwner(Protocol):
    """The receiver of what happens at an attachment."""

    def on_open(self, attachment: "Attachment") -> int:
        """A connection is open; the number of filters that the broker must know if it has the session."""

    def on_connected(self, attachment: "Attachment", message: Connect, *, is_other: bool) -> None:
        """The handshake is complete; ``is_other``: the broker has lost the session of before."""

    def on_frame(self, attachment: "Attachment", frame: Frame) -> None:
        """A frame has arrived."""

    def on_notice(self, attachment: "Attachment", notice: Notice) -> None:
        """A notice has arrived."""

    def on_refused(self, attachment: "Attachment", refused: Refused) -> None:
        """The broker has rejected the client permanently."""

    def on_lost(self, attachment: "Attachment") -> None:
        """The connection is lost, to be restored."""


class Attachment:
    """A connection to one broker; ``peer`` is its name in the core, and the broker's id unless it is the first."""

    def __init__(
        self, peer: str, address: Address, context: ssl.SSLContext | None, identity: ClientIdentity, owner: AttachmentOwner
    ) -> None:
        self.peer, self._identity, self._owner = peer, identity, owner
        #: The id of the broker, "" until the first handshake.
        self.broker = ""
        self.uplink = Uplink(address, context, self)
        #: The other brokers, by what this one has announced.
        self.book = AddressBook()
        #: The most unsettled publications; the broker may grant fewer than the default.
        self.window = CONFIG.window
        #: Whether the handshake is complete on the present connection.
        self.is_up = False
        #: Set while the broker has left the overlay: another one must replace it.
        self.has_left = asyncio.Event()
        #: The last rejection since the last handshake, by a broker that may serve the client later.
        self.rejection: Refused | None = None
        #: When the last message arrived before the connection was lost, by the monotonic clock.
        self.lost_s = 0.0
        #: The broker's token for the session; another one means another session.
        self._resume_token: str | None = None
        self._dialler: asyncio.Task[None] | None = None

    # ---- from start to end

    def start(self) -> None:
        """Dial, again and again, until `close`."""
        self._dialler = asyncio.get_running_loop().create_task(self._dial())

    async def wait_established(self) -> bool:
        """Wait until the broker has completed the handshake or rejected the client; whether it has completed it."""
        assert self._dialler is not None
        established = asyncio.get_running_loop().create_task(self.uplink.established.wait())
        try:
            await asyncio.wait((self._dialler, established), return_when=asyncio.FIRST_COMPLETED)
        finally:
            established.cancel()
        return self.uplink.established.is_set()

    def close(self) -> asyncio.Task[None] | None:
        """Leave the broker permanently; the task that ends with it."""
        if self._dialler is not None:
            self._dialler.cancel()
        self.is_up = False
        self.uplink.close()
        return self._dialler

    @property
    def is_dialling(self) -> bool:
        """Whether the uplink is still kept connected."""
        return self._dialler is not None and not self._dialler.done()

    async def _dial(self) -> None:
        try:
            await self.uplink.run()
        except ssl.SSLCertVerificationError as error:
            self._refuse(Refused("bad-certificate", str(error)))

    def _refuse(self, refused: Refused) -> None:
        self.uplink.stop()
        self._owner.on_refused(self, refused)

    # ---- the connection

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        self.uplink.connection = connection
        connection.mark_authenticated()
        name, token, key, _ = self._identity
        connection.send(Connect("client", name, token, key, subscriptions=self._owner.on_open(self)))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        if isinstance(message, Ping | Disconnect | Request | Reply):
            return
        if isinstance(message, Error):
            if message.code == LEFT_OVERLAY:
                self.has_left.set()
            if message.code in _FATAL or (message.code in _FATAL_FIRST and not self.uplink.established.is_set()):
                self._refuse(Refused(message.code, message.text))
            self.rejection = Refused(message.code, message.text)
            self._drop(connection)
        elif isinstance(message, Connect):
            self._on_connect(connection, message)
        elif isinstance(message, Addresses):
            self.book = AddressBook(message.brokers)
        elif isinstance(message, Notice):
            self._owner.on_notice(self, message)
        else:
            self._owner.on_frame(self, message)

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        if self.uplink.on_lost(connection):
            # A process that was paused notices late that the connection is lost. Attempts to connect again get nothing.
            self.lost_s = connection.received_s if self.is_up else self.lost_s
            self.is_up = False
            self._owner.on_lost(self)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self.lost(connection)

    def _on_connect(self, connection: Connection, message: Connect) -> None:
        if self.peer and message.name != self.peer:
            text = f"expected broker {self.peer!r} at {self.uplink.address}, found {message.name!r}"
            self._refuse(Refused("unknown-broker", text))
            self._drop(connection)
            return
        connection.peer = self.broker = message.name
        is_other, self._resume_token = self._resume_token not in (None, message.key), message.key
        if is_other and message.gap is not None and message.gap.code in _FATAL:
            # The error was sent when it happened, and was lost.
            self._refuse(Refused(message.gap.code, message.gap.text))
            self._drop(connection)
            return
        self.book = AddressBook(message.brokers)
        self.window = min(message.window or CONFIG.window, CONFIG.window)
        self.is_up, self.rejection = True, None
        self.has_left.clear()
        self._owner.on_connected(self, message, is_other=is_other)
        self.uplink.established.set()
