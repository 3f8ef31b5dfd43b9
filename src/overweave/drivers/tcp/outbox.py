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
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether the rows fill a frame."""
        return len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, row: bytes) -> None:
        """Add a row, to be sent at the end of this turn at the latest."""
        if self._bytes + len(row) > BYTES_MAX:
            self.flush()
        if not self._rows:
            asyncio.get_running_loop().call_soon(self.flush)
        self._rows.append(row)
        self._bytes += len(row)

    def flush(self) -> None:
        """Send all rows now."""
        if self._rows:
            rows, self._rows, self._bytes = self._rows, [], 0
            self._send(RawRows(b"".join(rows), len(rows)))
