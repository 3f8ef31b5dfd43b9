"""Dialling: a broker calls a neighbour, and the connection is nobody's until the neighbour has said who it is."""

import asyncio
import ssl
from typing import Protocol

from overweave.contract.wire import Connect, Message
from overweave.contract.wire import Refused as RefusedMessage
from overweave.drivers.tcp.connection import Connection, ConnectionHandler
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import OverweaveError, Refused


class Caller(ConnectionHandler, Protocol):
    """Who calls."""

    settings: BrokerSettings

    def dialled(self, connection: Connection, neighbour: str) -> None:
        """The neighbour has answered; `Refused` if there is a better connection to it."""


class OutboundHandshake:
    """Owns a connection until the neighbour at its other end has said who it is; then the node does."""

    def __init__(self, node: Caller, neighbour: str) -> None:
        self._node = node
        self._neighbour = neighbour
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        connection.send(Connect("broker", self._node.settings.id, self._node.settings.security.token))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        if isinstance(message, Connect) and message.name == self._neighbour:
            connection.owner = self._node
            try:
                self._node.dialled(connection, self._neighbour)
            except Refused as refused:
                connection.close()
                self._settle(refused)
            else:
                self._settle(None)
        else:
            text = message.text if isinstance(message, RefusedMessage) else f"expected {self._neighbour} to answer"
            self._settle(OverweaveError(text))
            connection.close()

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        self._settle(OverweaveError("it closed the connection"))
        self._node.lost(connection)

    def _settle(self, error: Exception | None) -> None:
        if not self.answered.done():
            if error is None:
                self.answered.set_result(None)
            else:
                self.answered.set_exception(error)


def connect_error(error: Exception) -> str:
    """Why a connection could not be had, for people.

    >>> connect_error(ConnectionRefusedError(111, "Connection refused"))
    'connection refused'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"expected a certificate that can be trusted, found one with: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"expected a broker that speaks TLS, found: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "no answer"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
