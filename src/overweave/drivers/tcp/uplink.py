"""The uplink of a client: one connection to a broker, with pings, and with reconnects after it breaks."""

import asyncio
import contextlib
import ssl
import time

from overweave.contract.wire import Disconnect, Ping
from overweave.drivers.tcp.absence import LATE_S
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.connection import Connection, ConnectionHandler

#: The delay before the next attempt, or between two checks of the connection, doubles from the first to the last.
_RETRY_S, _RETRY_S_MAX = 0.05, 2.0
PING_INTERVAL_S = 5.0
#: Ping intervals without a message after which the connection is closed.
_SILENT_INTERVALS = 3
_DIAL_S_MAX = 10.0


class Uplink:
    """Dials a broker until it is stopped; ``handler`` reports connections here as they come and go."""

    def __init__(self, address: Address, context: ssl.SSLContext | None, handler: ConnectionHandler) -> None:
        self.address = address
        self._context, self._handler = context, handler
        #: The open connection; None while disconnected.
        self.connection: Connection | None = None
        #: Set when a connection breaks after the handshake: dial again soon.
        self._broken = asyncio.Event()
        self._stopped = False
        #: When this process noticed that it had been paused.
        self._resumed_s = 0.0
        #: The error of the last attempt to dial; None if it was accepted.
        self.error: OSError | None = None
        #: Set when the broker has completed the handshake for the first time.
        self.established = asyncio.Event()

    async def run(self) -> None:
        """Keep connected until `stop`; raises `ssl.SSLCertVerificationError` if the broker's certificate was never valid."""
        retry_s, due_s = _RETRY_S, time.monotonic()
        while not self._stopped:
            if self.connection is None:
                await self._dial()
            else:
                self._check_connection(self.connection, was_paused=time.monotonic() > due_s + LATE_S)
            due_s = time.monotonic() + retry_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._broken.wait()
            retry_s = min(2 * retry_s, _RETRY_S_MAX)
            if self._broken.is_set():
                self._broken.clear()
                retry_s = _RETRY_S
                await asyncio.sleep(retry_s)

    @property
    def is_stopped(self) -> bool:
        """Whether it does not dial again."""
        return self._stopped

    def stop(self) -> None:
        """Do not dial again."""
        self._stopped = True

    def close(self) -> None:
        """Close the connection permanently, with notice to the broker."""
        self.stop()
        if self.connection is not None:
            self.connection.send(Disconnect())
            self.connection.close()
            self.connection = None

    def on_lost(self, connection: Connection) -> bool:
        """Forget a connection that is lost; False if it was replaced before."""
        if self.connection is not connection:
            return False
        self.connection = None
        if connection.peer:
            self._broken.set()
        return True

    def _check_connection(self, connection: Connection, *, was_paused: bool) -> None:
        """Ping an idle broker, and close the connection to a silent one."""
        now_s = time.monotonic()
        silent_s = now_s - max(connection.received_s, self._resumed_s)
        if was_paused:
            # Messages that arrived while this process was paused are not read yet.
            self._resumed_s = now_s
            connection.send(Ping())
        elif silent_s > _SILENT_INTERVALS * PING_INTERVAL_S and self.established.is_set():
            connection.abort()
        elif now_s - connection.sent_s > PING_INTERVAL_S / 2:
            connection.send(Ping())

    async def _dial(self) -> None:
        host, port, _ = self.address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_DIAL_S_MAX):
                await loop.create_connection(lambda: Connection(self._handler), host, port, ssl=self._context)
            self.error = None
        except ssl.SSLCertVerificationError:
            if not self.established.is_set():  # it may become valid again only if it was before
                raise
        except OSError as error:  # also a TimeoutError
            self.error = error
