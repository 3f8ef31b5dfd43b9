"""The read throttle: connections from which nothing is read for a while, which limits the rate of a publisher by backpressure."""

import asyncio
import time

from overweave.drivers.tcp.connection import Connection


class ReadThrottle:
    """Timers that resume reading, by connection."""

    def __init__(self) -> None:
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def pause(self, connection: Connection, pause_s: float) -> None:
        """Read nothing from a connection for a while."""
        self.cancel(connection)
        connection.pause_reading()
        self._timers[connection] = asyncio.get_running_loop().call_later(pause_s, self._resume, connection)

    def cancel(self, connection: Connection) -> None:
        """Cancel the timer of a connection."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for connection in list(self._timers):
            self.cancel(connection)

    def _resume(self, connection: Connection) -> None:
        self._timers.pop(connection, None)
        connection.received_s = time.monotonic()
        connection.resume_reading()
