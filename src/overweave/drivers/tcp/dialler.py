"""The dialler: keeps one neighbour connected, with retries and exponential backoff."""

import asyncio

from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.outbound_handshake import HandshakeOwner, OutboundHandshake, connect_error
from overweave.drivers.tcp.security import client_context
from overweave.errors import OverweaveError
from overweave.overlay.parts import LinkKind

#: The delay before the next attempt doubles from the first to the last.
RETRY_S, RETRY_S_MAX = 0.05, 2.0
#: The time limit of an attempt.
DIAL_S = 5.0


class Dialler:
    """Dials one neighbour whenever it is disconnected."""

    def __init__(
        self, owner: HandshakeOwner, neighbour: str, log: Log, kind: LinkKind, *, connected: bool, guest: bool = False
    ) -> None:
        self._owner, self._neighbour, self._log, self._kind = owner, neighbour, log, kind
        #: Whether this broker is a guest of the neighbour.
        self.guest = guest
        self._disconnected = asyncio.Event()
        if not connected:
            self._disconnected.set()
        #: Why the last attempt failed, once the neighbour had the time to start.
        self.error: str | None = None
        self.task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run())

    def on_connected(self) -> None:
        """Pause: there is a connection, whichever end dialled."""
        self._disconnected.clear()

    def on_disconnected(self) -> None:
        """Dial again."""
        self._disconnected.set()

    def cancel(self) -> None:
        """Stop dialling."""
        self.task.cancel()

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            await self._disconnected.wait()
            try:
                async with asyncio.timeout(DIAL_S):  # `wait_for` may miss a cancellation
                    await self._dial()
                self.error = None
            except (OSError, TimeoutError, OverweaveError) as error:
                if self._disconnected.is_set():  # else the neighbour dialled at the same time
                    self._on_dial_error(connect_error(error), retry_s)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX) if self._disconnected.is_set() else RETRY_S

    def _on_dial_error(self, reason: str, retry_s: float) -> None:
        """Log a warning, once per reason, when the neighbour had the time to start."""
        is_news = retry_s > RETRY_S_MAX / 2 and self.error != reason
        if is_news:
            self.error = reason
        (self._log.warning if is_news else self._log.info)("unreachable", peer=self._neighbour, text=reason)

    async def _dial(self) -> None:
        url = self._owner.directory.get(self._neighbour)
        if not url:
            raise OverweaveError("its address is unknown")
        await dial(self._owner, url, OutboundHandshake(self._owner, self._neighbour, self._kind, guest=self.guest))


async def dial(owner: HandshakeOwner, url: str, handshake: OutboundHandshake) -> None:
    """Connect to a broker, and wait until it has answered."""
    host, port, tls = parse_address(url)
    context = client_context(owner.settings.security) if tls else None
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: Connection(handshake), host, port, ssl=context)
    try:
        await handshake.answered
    finally:
        if handshake.answered.cancelled():
            transport.abort()  # an answer after the time limit must not connect
