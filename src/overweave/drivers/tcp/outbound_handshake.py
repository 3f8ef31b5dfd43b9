"""The outbound handshake: a connection that a broker dialled, until the neighbour at its other end has answered."""

import asyncio
import ssl
from typing import Protocol

from overweave.contract.wire import Connect, Disconnect, Error, Message
from overweave.drivers.tcp.connection import Connection, ConnectionHandler
from overweave.drivers.tcp.directory import Directory
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import OverweaveError, Refused
from overweave.overlay.parts import LinkKind


class HandshakeOwner(ConnectionHandler, Protocol):
    """The owner of dialled connections."""

    settings: BrokerSettings
    directory: Directory

    def dialled(self, connection: Connection, answer: Connect, *, guest: bool) -> None:
        """A broker has answered; `Refused` if another connection to it is preferred. ``guest``: this broker is its guest."""


class OutboundHandshake:
    """The handler of a dialled connection until the other end answers; then ``owner`` is its handler.

    ``neighbour`` None: the other end may have any name. ``guest``: this broker is its guest.
    """

    def __init__(
        self, owner: HandshakeOwner, neighbour: str | None, kind: LinkKind = LinkKind.PRIMARY, *, guest: bool = False
    ) -> None:
        self._owner, self._neighbour, self._kind, self._guest = owner, neighbour, kind, guest
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection: Connection | None = None

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        self._connection = connection
        settings = self._owner.settings
        name, token, url = settings.id, settings.security.token, settings.announced
        connection.send(Connect("broker", name, token, link=self._kind, listen=url, guest=self._guest))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        if isinstance(message, Connect) and message.role == "broker" and self._neighbour in (None, message.name):
            connection.owner = self._owner
            try:
                self._owner.dialled(connection, message, guest=self._guest)
            except Refused as refused:
                connection.close()
                self._settle(refused)
            else:
                self._settle(None)
        else:
            text = message.text if isinstance(message, Error) else f"expected {self._neighbour or 'a broker'} to answer"
            self._settle(OverweaveError(text))
            connection.close()

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        self._settle(OverweaveError("it closed the connection"))
        self._owner.lost(connection)

    def leave(self) -> None:
        """Withdraw: the other end may have connected this broker already, and would keep it as a guest."""
        if self._connection is not None and not self.answered.done():
            self._connection.send(Disconnect())
            self._connection.close()
            self._settle(OverweaveError("this broker leaves"))

    def _settle(self, error: Exception | None) -> None:
        if not self.answered.done():
            if error is None:
                self.answered.set_result(None)
            else:
                self.answered.set_exception(error)
                self.answered.exception()  # nobody waits if the broker stopped while it was connecting


def connect_error(error: Exception) -> str:
    """The reason of a failed connection, for people.

    >>> connect_error(ConnectionRefusedError(111, "Connection refused"))
    'connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"expected a certificate that can be trusted, found one with: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"expected a broker that speaks TLS, found: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, ConnectionRefusedError):  # asyncio has another text
        return "connection refused"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
