"""Group commit: a thread writes and syncs journal entries, all pending ones at a time, and retries after errors."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from overweave.drivers.tcp.journal import Entry, JournalFile, reason
from overweave.drivers.tcp.logs import Log

#: The delay before a failed write is tried again, and the duration of a write after which the broker is unhealthy.
RETRY_S, SLOW_S = 1.0, 5.0
T = TypeVar("T")


class JournalWriter:
    """The journal of a running broker.

    ``persisted`` is called with the number of durable entries so far, ``failed`` with the reason of each failed write. Both are
    called in the loop's thread, which never waits for the disk.
    """

    def __init__(self, file: JournalFile, log: Log, persisted: Callable[[int], None], failed: Callable[[str], None]) -> None:
        self._file = file
        self._log = log
        self._persisted, self._failed = persisted, failed
        #: Entries that are not durable yet, in order; a commit writes all of them.
        self._pending: list[Entry] = []
        self._durable = 0
        self._failure: str | None = None
        self._since_s: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "journal")
        self._closing = asyncio.Event()

    def append(self, entry: Entry) -> None:
        """Make an entry durable before long."""
        self._pending.append(entry)
        if self._task is None and not self._closing.is_set():
            self._task = asyncio.get_running_loop().create_task(self._commit_all())

    @property
    def durable(self) -> int:
        """The number of durable entries."""
        return self._durable

    @property
    def pending(self) -> int:
        """The number of entries that are not durable."""
        return len(self._pending)

    @property
    def health_problem(self) -> str | None:
        """Why the journal is unhealthy; None if it is healthy."""
        if self._failure is not None:
            return f"the journal {self._file.path} cannot be written: {self._failure}"
        waited_s = 0.0 if self._since_s is None else time.monotonic() - self._since_s
        return f"the journal {self._file.path} has waited for the disk for {waited_s:.0f} s" if waited_s > SLOW_S else None

    async def close(self) -> None:
        """Commit pending entries, if possible, and close the file."""
        self._closing.set()
        if self._task is not None:
            await self._task
        if self._pending:
            self._log.error("journal-incomplete", records=len(self._pending), text="not acknowledged, and not in the journal")
        await self._run(self._file.close)
        self._thread.shutdown()

    # ---- helpers

    async def _commit_all(self) -> None:
        try:
            while self._pending:
                if not await self._commit() and await self._gives_up():
                    return
        finally:
            self._task = None

    async def _commit(self) -> bool:
        """Commit all pending entries; whether they are durable."""
        group = self._pending[:]
        self._since_s = time.monotonic()
        try:
            await self._run(lambda: self._file.commit(group))
        except Exception as error:  # the broker continues after any error
            self._report(error)
            return False
        finally:
            self._since_s = None
        del self._pending[: len(group)]
        self._durable += len(group)
        if self._failure is not None:
            self._failure = None
            self._log.warning("journal-recovered", file=str(self._file.path), records=len(group))
        self._persisted(self._durable)
        await self._compact()
        return True

    def _report(self, error: Exception) -> None:
        is_news, self._failure = self._failure is None, reason(error)
        if is_news:
            records = len(self._pending)
            traceback = None if isinstance(error, OSError) else error
            self._log.error("journal-unavailable", traceback, file=str(self._file.path), records=records, text=self._failure)
        self._failed(self._failure)

    async def _gives_up(self) -> bool:
        """Wait for the next attempt; True if there is none because the journal closes."""
        if not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._closing.wait()
            return False
        return True

    async def _compact(self) -> None:
        """Compact a sparse file; new entries wait for the next commit."""
        if not self._file.is_sparse:
            return
        try:
            await self._run(self._file.compact)
        except Exception as error:  # the file is unchanged
            self._log.warning("journal-compaction-failed", file=str(self._file.path), text=reason(error))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
