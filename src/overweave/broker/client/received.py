"""Deduplication of a client at several brokers: one of them may have buffered more than a dedup window holds.

A dedup window takes older numbers for seen. When a client resumes after a stall, publications of one broker may push those that
another one has buffered out of the window. So a client at several brokers remembers exactly what it has received.
"""

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, Identity
from overweave.language.generations import STABLE_LIFE
from overweave.routing.dedup import DeliveryWindow

#: The most publications that are remembered: more than two brokers buffer for a client.
REMEMBERED_MAX = 1 << 18


class ReceivedPublications:
    """The publications received since the client has had several brokers, oldest first."""

    def __init__(self, window: DeliveryWindow) -> None:
        self._window = window
        #: With the stable life: in any generation.
        self._received: dict[Identity, None] = {}

    def mark_received(self, batch: Batch) -> NDArray[np.int64]:
        """The rows that the client has not received; they are marked as seen."""
        identities = [(publisher, life & STABLE_LIFE, sequence) for publisher, life, sequence in batch.identities()]
        before = [self._window.is_older(*identity) for identity in identities]
        marked = batch.mark_seen(self._window)
        unseen = set(range(len(identities)) if marked is None else marked.tolist())
        candidates = [(row, each) for row, each in enumerate(identities) if row in unseen or before[row]]
        rows = [row for row, each in candidates if not self._remember(each)]
        return np.array(rows, np.int64)

    def clear(self) -> None:
        """Forget all: the client is at one broker again."""
        self._received.clear()

    def _remember(self, identity: Identity) -> bool:
        """Remember a publication; whether it was remembered."""
        if identity in self._received:
            return True
        self._received[identity] = None
        if len(self._received) > REMEMBERED_MAX:
            del self._received[next(iter(self._received))]
        return False
