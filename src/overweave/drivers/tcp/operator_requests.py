"""Requests of operators at a live broker: orders of migrations and lists of clients, for clients with the permission `control`.

An order goes to the core under a token of this broker, because orderers choose theirs. The reply goes to the connection of the
order. A migration does not need it: it goes on without its orderer.
"""

import asyncio
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable

from overweave.contract.effects import MigrationEnded, ModuleAnswer
from overweave.contract.requests import (
    ClientEntry,
    ClientsReply,
    ClientsRequest,
    MigrationReply,
    MigrationRequest,
    ModuleReply,
    ModuleRequest,
    Request,
)
from overweave.contract.stimuli import AskModule, MigrateClient
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.limits import TokenBucket
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.security import Permissions
from overweave.errors import Refused
from overweave.language.values import excerpt
from overweave.overlay.checks import nearest

#: The requests that one broker processes per second, of all operators together; more wait in their connections.
REQUESTS_HZ_MAX = 500.0
#: The clients in one reply: 255 bytes of name each are far below the longest frame.
CLIENTS_IN_REPLY = 4096
_NAME_MAX = 255


class OperatorRequests:
    """The requests of all operators of one broker; ``is_connected`` tells connected clients."""

    def __init__(self, host: CoreHost, is_connected: Callable[[str], bool], log: Log) -> None:
        self._host, self._is_connected, self._log = host, is_connected, log
        #: The orders in progress by the core's token: the connection of the orderer, and its own token.
        self._orders: dict[str, tuple[Connection, str]] = {}
        #: The requests to modules likewise.
        self._asked: dict[str, tuple[Connection, str]] = {}
        #: The orders of the broker itself.
        self._own: dict[str, asyncio.Future[str | None]] = {}
        #: The connections that have made a request: clients without registrations there are operators only.
        self._operators: set[Connection] = set()
        self._bucket = TokenBucket(REQUESTS_HZ_MAX, time.monotonic())

    def on_request(self, connection: Connection, request: Request, rights: Permissions) -> float:
        """Process a request of a client, or raise `Refused`; the time for which its connection is not read."""
        if not rights.control:
            text = f"client {connection.peer!r} may not {_action(request)}; it needs the permission control"
            raise Refused("not-allowed", text)
        self._operators.add(connection)
        if isinstance(request, MigrationRequest):
            self._order(connection, request)
        elif isinstance(request, ModuleRequest):
            self._ask(connection, request)
        else:
            connection.send(self._clients(request))
        return self._bucket.take(1, time.monotonic())

    def on_ended(self, ended: MigrationEnded) -> None:
        """Log the end of a migration, and reply to its orderer if it is still connected."""
        self._log.info("migration-ended", client=ended.client, result="moved" if ended.error is None else ended.error)
        own = self._own.pop(ended.token, None)
        if own is not None and not own.done():
            own.set_result(ended.error)
        connection, token = self._orders.pop(ended.token, (None, ""))
        if connection is not None:
            connection.send(MigrationReply(token, ended.error))

    def on_answer(self, answer: ModuleAnswer) -> None:
        """Send the answer of a module, or a part of it, to its operator if that is still connected."""
        connection, token = self._asked.get(answer.token, (None, ""))
        if not answer.more:
            self._asked.pop(answer.token, None)
        if connection is not None:
            connection.send(ModuleReply(token, answer.body, answer.error, answer.more))

    async def migrate(self, client: str, to: str) -> str | None:
        """Order a migration of the broker itself and wait for its end; the reason if the client stays."""
        token, own = secrets.token_hex(8), asyncio.get_running_loop().create_future()
        self._own[token] = own
        self._host.handle(MigrateClient(token, client, to))
        try:
            error: str | None = await own
        finally:
            self._own.pop(token, None)
        return error

    def forget(self, connection: Connection) -> None:
        """Forget the orderer behind a lost connection; its migrations go on."""
        if connection in self._operators:
            self._operators.discard(connection)
            self._orders = {token: order for token, order in self._orders.items() if order[0] is not connection}
            self._asked = {token: asked for token, asked in self._asked.items() if asked[0] is not connection}

    # ---- orders

    def _order(self, connection: Connection, request: MigrationRequest) -> None:
        ids, error = tuple(self._host.directory), None
        if request.to not in ids:
            error = f"broker {excerpt(request.to)}: expected one of the network, {nearest(request.to[:_NAME_MAX], ids)}"
        elif len(request.client) > _NAME_MAX:
            error = f"client {excerpt(request.client)}: expected a name of at most {_NAME_MAX} bytes"
        if error is not None:
            self._log.warning("order-rejected", peer=connection.peer, client=excerpt(request.client), text=error)
            connection.send(MigrationReply(request.token, error))
            return
        token = secrets.token_hex(8)
        self._orders[token] = connection, request.token
        self._log.info("order", peer=connection.peer, client=request.client, to=request.to)
        self._host.handle(MigrateClient(token, request.client, request.to, request.subscriptions, request.publishing))

    def _ask(self, connection: Connection, request: ModuleRequest) -> None:
        token = secrets.token_hex(8)
        self._asked[token] = connection, request.token
        self._host.handle(AskModule(token, request.module, request.kind, request.body))

    # ---- clients

    def clients(self) -> list[ClientEntry]:
        """All clients of the broker by name, without operators: connected ones, and the sessions of those that were killed."""
        operators = {each.peer for each in self._operators}
        moving, core = self._host.core.migrations(), self._host.core
        found = (self._entry(name, moving) for name in sorted(core.clients()))
        return [
            each for each in found if each.subscriptions or each.advertisements or (each.connected and each.name not in operators)
        ]

    def _clients(self, request: ClientsRequest) -> ClientsReply:
        core = self._host.core
        if request.client is not None:
            known = core.knows(request.client)
            return ClientsReply(request.token, (self._entry(request.client, core.migrations()),) if known else ())
        found = self.clients()
        start = bisect_right(found, request.after, key=lambda each: each.name)
        end = start + CLIENTS_IN_REPLY
        return ClientsReply(request.token, tuple(found[start:end]), more=end < len(found))

    def _entry(self, name: str, moving: dict[str, str]) -> ClientEntry:
        count = self._host.core.registration_count
        counts = count("subscription", name), count("advertisement", name)
        return ClientEntry(name, *counts, connected=self._is_connected(name), moving_to=moving.get(name))


def _action(request: Request) -> str:
    if isinstance(request, MigrationRequest):
        return f"order {excerpt(request.client)} to move to {excerpt(request.to)}"
    if isinstance(request, ModuleRequest):
        return f"make requests to the module {excerpt(request.module)}"
    return "list clients"
