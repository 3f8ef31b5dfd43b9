"""The journal of a live broker as its core sees it: entry counts start with the core; without a state directory it is empty."""

from overweave.broker.registry import Journal
from overweave.contract.effects import Persist
from overweave.contract.stimuli import JournalFailed, Persisted
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.journal import JournalFile
from overweave.drivers.tcp.journal_writer import JournalWriter
from overweave.drivers.tcp.logs import Log


class CoreJournal:
    """The journal of one broker process, across restarts of its core."""

    def __init__(self, host: CoreHost, log: Log) -> None:
        self._host, settings = host, host.settings
        self._file = None if settings.state is None else JournalFile(settings.state, settings.id, log)
        self._writer = None if self._file is None else JournalWriter(self._file, log, self._on_persisted, self._on_failed)
        #: Entries of earlier cores of this process.
        self._entries_before = 0

    def open(self) -> Journal:
        """The entries of former processes."""
        return {} if self._file is None else self._file.open()

    @property
    def is_durable(self) -> bool:
        """Whether entries survive the process."""
        return self._writer is not None

    @property
    def pending(self) -> int:
        """The number of entries that are not durable yet."""
        return 0 if self._writer is None else self._writer.pending

    @property
    def health_problem(self) -> str | None:
        """Why the journal is unhealthy; None if it is healthy."""
        return None if self._writer is None else self._writer.health_problem

    def append(self, effect: Persist) -> None:
        """Make an entry durable before long."""
        if self._writer is not None:
            self._writer.append((effect.key, effect.value))  # type: ignore[arg-type]

    def on_restart(self) -> Journal:
        """The entries for a new core, which counts the pending ones as its own."""
        if self._writer is None:
            return {}
        self._entries_before = self._writer.durable
        return self._host.core.journal()

    async def close(self) -> None:
        """Commit pending entries, if possible, and close the file."""
        if self._writer is not None:
            await self._writer.close()

    def _on_persisted(self, count: int) -> None:
        if count > self._entries_before:
            self._host.handle(Persisted(count - self._entries_before))

    def _on_failed(self, reason: str) -> None:
        self._host.handle(JournalFailed(reason))
