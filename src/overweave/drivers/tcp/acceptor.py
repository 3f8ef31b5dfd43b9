"""The acceptor: a listening socket whose host decides whether there is room for another connection.

Without file descriptors, asyncio's own server tries to accept the whole backlog, and logs a traceback for each attempt. This one
reports it once, and waits.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from overweave.drivers.tcp.connection import LINGER_S, Connection, ConnectionHandler

BACKLOG = 1024
#: The most connections accepted in one turn of the loop.
_AT_ONCE = 64
#: The delay before the next attempt without file descriptors.
RETRY_S = 1.0
#: The time limit of the TLS handshake.
_HANDSHAKE_S = 10.0
_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Host(ConnectionHandler, Protocol):
    """The owner of accepted connections."""

    def may_accept(self) -> bool:
        """Whether there is room for one more connection; else it is closed."""

    def exhausted(self, error: OSError) -> None:
        """There are no file descriptors; called once until the next accepted connection."""


class Acceptor:
    """Accepts connections for a host."""

    def __init__(self, host: Host, context: ssl.SSLContext | None) -> None:
        self._host, self._context = host, context
        self._listeners: list[socket.socket] = []
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        #: Accepted connections that are not open yet, as during a TLS handshake.
        self._opening: set[asyncio.Task[None]] = set()
        #: Those whose task has not begun: it closes nothing when it is cancelled before.
        self._accepted: set[socket.socket] = set()
        self._is_exhausted = False

    @property
    def opening(self) -> int:
        """The number of accepted connections that are not open yet."""
        return len(self._opening)

    async def listen(self, host: str, port: int) -> None:
        """Bind as asyncio does, and accept from now on."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self._host), host, port, start_serving=False)
        try:
            self._listeners = [each.dup() for each in server.sockets]
        finally:
            server.close()
        for listener in self._listeners:
            listener.setblocking(False)
            listener.listen(BACKLOG)
            loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Accept nothing more."""
        loop = asyncio.get_running_loop()
        for retry in self._retries.values():
            retry.cancel()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        for task in self._opening:
            task.cancel()
        for accepted in self._accepted:
            accepted.close()
        self._accepted.clear()
        self._listeners = []

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._wait(listener, error)
                return
            self._is_exhausted = False
            accepted.setblocking(False)
            if self._host.may_accept():
                self._accepted.add(accepted)
                task = asyncio.get_running_loop().create_task(self._open(accepted))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
            else:
                accepted.close()

    async def _open(self, accepted: socket.socket) -> None:
        self._accepted.discard(accepted)
        times = {} if self._context is None else {"ssl_handshake_timeout": _HANDSHAKE_S, "ssl_shutdown_timeout": LINGER_S}
        make: Callable[[], Connection] = lambda: Connection(self._host)  # noqa: E731
        # A failed TLS handshake is not an error of the broker.
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.get_running_loop().connect_accepted_socket(make, accepted, ssl=self._context, **times)

    def _wait(self, listener: socket.socket, error: OSError) -> None:
        """Stop listening for a while, because the kernel reports the pending connection all the time."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        self._retries[listener] = loop.call_later(RETRY_S, loop.add_reader, listener, self._accept, listener)
        if not self._is_exhausted:
            self._is_exhausted = True
            self._host.exhausted(error)
