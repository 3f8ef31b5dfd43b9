"""An operator: a connection to one broker for requests, beside the session streams of clients."""

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from overweave.contract.requests import (
    ClientEntry,
    ClientsReply,
    ClientsRequest,
    MigrationReply,
    MigrationRequest,
    ModuleReply,
    ModuleRequest,
    Reply,
    Request,
)
from overweave.contract.wire import Connect, Disconnect, Error, Message, Ping
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.outbound_handshake import connect_error
from overweave.drivers.tcp.uplink import PING_INTERVAL_S
from overweave.errors import OverweaveError, Refused

#: The time limit of the handshake and of a list of clients.
ANSWER_S = 10.0


class Rejected(OverweaveError):
    """A request that a module of the broker has answered with an error."""


class Operator:
    """Requests to one broker; an asynchronous context manager. A lost connection is not re-established."""

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext | None,
        name: str | None = None,
        token: str | None = None,
        prefix: str = "operator-",
    ) -> None:
        self.address, self._context = address, context
        self._name, self._token = name or f"{prefix}{secrets.token_hex(6)}", token
        #: The id of the broker, once it has answered.
        self.broker = ""
        self._connection: Connection | None = None
        self._answered: asyncio.Future[None] | None = None
        self._pending: dict[str, asyncio.Future[Reply]] = {}
        #: The parts of answers that are not complete, by token.
        self._parts: dict[str, list[bytes]] = {}
        self._error: OverweaveError | None = None
        self._pings: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._answered = loop.create_future()
        host, port, _ = self.address
        try:
            async with asyncio.timeout(ANSWER_S):
                await loop.create_connection(lambda: Connection(self), host, port, ssl=self._context)
                await self._answered
        except OSError as error:  # also a TimeoutError
            self._close()
            raise OverweaveError(f"{self.address}: {connect_error(error)}") from None
        except BaseException:
            self._close()
            raise
        self._pings = loop.create_task(self._ping())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pings is not None:
            self._pings.cancel()
            await asyncio.gather(self._pings, return_exceptions=True)
        self._close()
        await asyncio.sleep(0)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.send(Disconnect())
            self._connection.close()

    async def _ping(self) -> None:
        while self._connection is not None and self._connection.open:
            await asyncio.sleep(PING_INTERVAL_S / 2)
            self._connection.send(Ping())

    # ---- requests

    async def migrate(
        self, client: str, to: str, subscriptions: Sequence[str] | None = None, *, publishing: bool = True
    ) -> str | None:
        """Order a migration and wait for its end; the reason if the client stays."""
        chosen = None if subscriptions is None else tuple(subscriptions)
        reply = await self._ask(lambda token: MigrationRequest(token, client, to, chosen, publishing))
        assert isinstance(reply, MigrationReply)
        return reply.error

    async def client(self, name: str) -> ClientEntry | None:
        """One client of the broker; None if it is none."""
        found = await self._list(client=name)
        return found.clients[0] if found.clients else None

    async def clients(self) -> list[ClientEntry]:
        """All clients of the broker by name, without operators."""
        found: list[ClientEntry] = []
        more = True
        while more:
            reply = await self._list(after=found[-1].name if found else "")
            found.extend(reply.clients)
            more = reply.more
        return found

    async def ask(self, module: str, kind: str, body: bytes = b"", within_s: float = ANSWER_S) -> bytes:
        """The answer of a module of the broker to a request."""
        try:
            async with asyncio.timeout(within_s):
                reply = await self._ask(lambda token: ModuleRequest(token, module, kind, body))
        except TimeoutError:
            raise OverweaveError(f"{self.address}: no answer of the module {module!r} within {within_s:g} s") from None
        assert isinstance(reply, ModuleReply)
        if reply.error is not None:
            raise Rejected(f"{self.broker}: {reply.error}")
        return reply.body

    async def _list(self, after: str = "", client: str | None = None) -> ClientsReply:
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await self._ask(lambda token: ClientsRequest(token, after, client))
        except TimeoutError:
            raise OverweaveError(f"{self.address}: no answer within {ANSWER_S:g} s") from None
        assert isinstance(reply, ClientsReply)
        return reply

    async def _ask(self, request: Callable[[str], Request]) -> Reply:
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._connection is not None
        token = secrets.token_hex(8)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[token] = reply
        self._connection.send(request(token))
        try:
            return await reply
        finally:
            self._pending.pop(token, None)
            self._parts.pop(token, None)

    # ---- the connection

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        self._connection = connection
        connection.mark_authenticated()
        connection.send(Connect("client", self._name, self._token, secrets.token_hex(16)))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`; frames of the session are of no use here."""
        if isinstance(message, Connect):
            self.broker = connection.peer = message.name
            if self._answered is not None and not self._answered.done():
                self._answered.set_result(None)
        elif isinstance(message, Error):
            self._fail(Refused(message.code, message.text))
            connection.close()
        elif isinstance(message, Reply):
            waiting = self._pending.get(message.token)
            if isinstance(message, ModuleReply) and waiting is not None:
                self._parts.setdefault(message.token, []).append(message.body)
                if message.more:
                    return
                message = msgspec.structs.replace(message, body=b"".join(self._parts.pop(message.token)))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def lost(self, connection: Connection) -> None:  # noqa: ARG002
        """See `ConnectionHandler.lost`."""
        self._fail(OverweaveError(f"{self.broker or self.address}: connection lost"))

    def _fail(self, error: OverweaveError) -> None:
        """End all waits with the first error."""
        if self._error is None:
            self._error = error
        for waiting in (self._answered, *self._pending.values()):
            if waiting is not None and not waiting.done():
                waiting.set_exception(self._error)
                with contextlib.suppress(asyncio.InvalidStateError):
                    waiting.exception()  # nobody may wait any more
