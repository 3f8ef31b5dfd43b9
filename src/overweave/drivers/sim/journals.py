"""Journals of simulated brokers: one sync at a time, with a duration, which may fail."""

from collections.abc import Sequence

import numpy as np

from overweave.broker.registry import Journal
from overweave.contract.effects import Persist
from overweave.contract.overlay_state import OverlayRecord
from overweave.contract.stimuli import JournalFailed, Persisted
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.nodes import Node
from overweave.drivers.sim.scheduler import Scheduler
from overweave.language.predicates import Filter

#: How often a sync that failed is tried again.
_RETRY_S = 0.2


class Journals:
    """The journals of all brokers, as group commit makes them durable."""

    def __init__(self, scheduler: Scheduler, random: np.random.Generator, faults: Faults) -> None:
        self._scheduler, self._random = scheduler, random
        self._sync_s = faults.journal_sync_s or 0.0
        #: Whether brokers wait until entries are durable.
        self.is_delayed = faults.journal_sync_s is not None or faults.full_every_s is not None
        self._durable: dict[str, dict[tuple[str, str], tuple[str, Filter] | OverlayRecord]] = {}
        #: Entries of running brokers that are not durable, brokers with a sync in progress, and counts of durable entries.
        self._pending: dict[str, list[Persist]] = {}
        self._syncing: set[Node] = set()
        self._count: dict[Node, int] = {}
        #: Until when disks are full.
        self._full_until_s: dict[str, float] = {}

    def entries(self, broker: str) -> Journal:
        """The durable entries of a broker."""
        return self._durable.setdefault(broker, {})

    def persist(self, node: Node, effect: Persist) -> None:
        """Make an entry durable with the next sync."""
        if not self.is_delayed:
            self._apply(node.id, [effect])
            return
        self._pending.setdefault(node.id, []).append(effect)
        if node not in self._syncing:
            self._syncing.add(node)
            self._scheduler.at(self._scheduler.now_s, self._sync, node)

    def fill_disk(self, node: Node, for_s: float) -> None:
        """Let syncs of a broker fail for some time."""
        self._full_until_s[node.id] = self._scheduler.now_s + for_s

    def crash(self, broker: str) -> None:
        """Lose the entries that are not durable, or the later of them."""
        pending = self._pending.pop(broker, [])
        if pending:
            self._apply(broker, pending[: int(self._random.integers(len(pending) + 1))])

    def _apply(self, broker: str, effects: Sequence[Persist]) -> None:
        entries = self._durable.setdefault(broker, {})
        for effect in effects:
            if effect.value is None:
                entries.pop(effect.key, None)
            else:
                entries[effect.key] = effect.value  # type: ignore[assignment]

    def _sync(self, node: Node) -> None:
        """Start a sync of all present entries; later ones wait for the next."""
        if not node.alive:
            self._forget(node)
        elif self._scheduler.now_s < self._full_until_s.get(node.id, 0.0):
            self._scheduler.at(self._scheduler.now_s + _RETRY_S, self._sync, node)
            node.handle(JournalFailed("no space left"))
        else:
            group = len(self._pending[node.id])
            self._scheduler.at(self._scheduler.now_s + self._random.random() * self._sync_s, self._synced, (node, group))

    def _synced(self, what: tuple[Node, int]) -> None:
        node, group = what
        if not node.alive:
            self._forget(node)
            return
        pending = self._pending[node.id]
        self._apply(node.id, pending[:group])
        del pending[:group]
        self._count[node] = self._count.get(node, 0) + group
        if pending:
            self._sync(node)
        else:
            self._syncing.discard(node)
        node.handle(Persisted(self._count[node]))

    def _forget(self, node: Node) -> None:
        self._syncing.discard(node)
        self._count.pop(node, None)
