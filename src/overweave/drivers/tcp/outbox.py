"""The outbox of a client: publications of one turn of the event loop, sent together."""

import asyncio
from collections.abc import Callable

from overweave.batches.raw import RawRows

#: The most rows and bytes of one frame.
ROWS_MAX, BYTES_MAX = 1024, 8 << 20


class Outbox:
    """Encoded rows that are not sent yet; ``send`` sends them as one batch."""

    def __init__(self, send: Callable[[RawRows], None]) -> None:
        self._send = send
        self._rows: list[bytes] = []
        #: The number of rows.
        self.count = 0
        self._bytes = 0

    def add(self, row: bytes) -> bool:
        """Add a row, to be sent at the end of this turn at the latest; whether the rows fill a frame."""
        if self._bytes + len(row) > BYTES_MAX:
            self.flush()
        if not self._rows:
            asyncio.get_running_loop().call_soon(self.flush)
        self._rows.append(row)
        self.count += 1
        self._bytes += len(row)
        return self.count >= ROWS_MAX or self._bytes >= BYTES_MAX

    def flush(self) -> None:
        """Send all rows now."""
        if self._rows:
            rows, self._rows, self.count, self._bytes = self._rows, [], 0, 0
            self._send(RawRows(b"".join(rows), len(rows)))
