"""Deferred messages: publications that cannot be routed at present, and the control messages behind them."""

import enum
from collections import Counter
from collections.abc import Callable, Container
from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.broker.pending_ack import PendingAck
from overweave.broker.step import StepContext
from overweave.contract.frames import is_addressed
from overweave.language.messages import Control


class Stage(enum.Enum):
    """The stage of a deferred message."""

    #: Not routed yet: neighbours are not synchronised. It waits without limit.
    UNSYNCED = enum.auto()
    #: A subscription that would reach some brokers only. It waits until routing is synchronised.
    EARLY = enum.auto()
    #: Routed, its hop counted and traced, but without a next hop. It expires if it has destinations.
    UNROUTABLE = enum.auto()


class Deferred(NamedTuple):
    """A deferred message with its sender and the ack that it holds back."""

    what: Batch | Control
    peer: str
    ack: PendingAck | None
    since_s: float
    stage: Stage = Stage.UNROUTABLE
    #: Whether it is for local clients too.
    to_clients: bool = True

    @property
    def has_destinations(self) -> bool:
        """Whether it is on its path to certain brokers."""
        return is_addressed(self.what) if isinstance(self.what, Control) else self.what.has_destinations()


Resume = Callable[[Deferred], None]


class DeferredMessages:
    """The deferred messages of one broker, oldest first."""

    def __init__(self, step: StepContext) -> None:
        self._step = step
        self._entries: list[Deferred] = []
        #: The number of messages of each peer that were not sent towards any destination yet.
        self._unrouted: Counter[str] = Counter()
        self._resume_batch: Resume | None = None
        self._resume_control: Resume | None = None
        self._is_too_early: Callable[[Deferred], bool] = lambda _: False

    def __bool__(self) -> bool:
        return bool(self._entries)

    def set_handlers(self, batches: Resume, control: Resume, is_too_early: Callable[[Deferred], bool]) -> None:
        """Resume batches and control messages by these from now on, but not those in stage `EARLY` that are too early still."""
        self._resume_batch, self._resume_control, self._is_too_early = batches, control, is_too_early

    def add(
        self, what: Batch | Control, peer: str, ack: PendingAck | None, stage: Stage = Stage.UNROUTABLE, to_clients: bool = True
    ) -> None:
        """Defer a message."""
        self._append(Deferred(what, peer, ack, self._step.now_s, stage, to_clients))

    def has_unrouted_from(self, client: str) -> bool:
        """Whether a message of a client is deferred that was not sent towards any destination yet."""
        return client in self._unrouted

    def batches(self) -> list[tuple[Batch, PendingAck | None]]:
        """The deferred publications."""
        return [(entry.what, entry.ack) for entry in self._entries if not isinstance(entry.what, Control)]

    def batches_from(self, peers: Container[str]) -> list[Batch]:
        """The deferred publications of some peers."""
        return [entry.what for entry in self._entries if entry.peer in peers and not isinstance(entry.what, Control)]

    def flush(self) -> None:
        """Resume all messages; one that is deferred again keeps its time."""
        entries, self._entries = self._entries, []
        self._unrouted.clear()
        for entry in entries:
            if entry.stage is Stage.EARLY and self._is_too_early(entry):
                self._append(entry)
                continue
            before = len(self._entries)
            self.resume(entry)
            for at in range(before, len(self._entries)):
                self._entries[at] = self._entries[at]._replace(since_s=entry.since_s)

    def resume(self, entry: Deferred) -> None:
        """Resume one message."""
        assert self._resume_batch is not None
        assert self._resume_control is not None
        (self._resume_control if isinstance(entry.what, Control) else self._resume_batch)(entry)

    def expire_addressed(self, before_s: float) -> int:
        """Drop messages with destinations that had no next hop and were deferred before a time; the number of publications."""
        expired = [
            entry
            for entry in self._entries
            if entry.stage is Stage.UNROUTABLE and entry.since_s < before_s and entry.has_destinations
        ]
        for entry in expired:
            self._entries.remove(entry)
            if entry.ack is not None:
                entry.ack.release()
        return sum(entry.what.count for entry in expired if not isinstance(entry.what, Control))

    def shift(self, by_s: float) -> None:
        """Extend all deadlines by the time this broker was paused."""
        self._entries = [entry._replace(since_s=entry.since_s + by_s) for entry in self._entries]

    def validate(self) -> None:
        """Check the invariants."""
        assert all(entry.ack is None or not entry.ack.acked or entry.ack.expired for entry in self._entries)
        assert self._unrouted == Counter(entry.peer for entry in self._entries if not entry.has_destinations)

    def _append(self, entry: Deferred) -> None:
        self._entries.append(entry)
        if not entry.has_destinations:
            self._unrouted[entry.peer] += 1
