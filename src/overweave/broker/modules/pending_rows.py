"""Rows that wait to be marked in profiles: operations on arrays cost the same for a few rows as for thousands.

The windows of a profile end at the last number that any subscription has received, and have a given length. Contents that have
fallen out of the window of their publisher while they waited are dropped, not matched: at high rates these are most of them.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.batches.layout import Bytes, Layout
from overweave.batches.raw import RawRows
from overweave.matching.search import PublicationView

Sequences = NDArray[np.int64]
#: The rows, or bytes of contents, at which rows are marked.
_ROWS_MAX, _BYTES_MAX = 1 << 14, 1 << 22


class _Contents(NamedTuple):
    """Contents that are to be matched."""

    data: Bytes
    starts: Sequences
    ends: Sequences
    sequences: Sequences
    #: The highest number.
    last: int

    def after(self, last: int) -> "_Contents":
        """Those with higher numbers."""
        rows = np.flatnonzero(self.sequences > last)
        return self._replace(starts=self.starts[rows], ends=self.ends[rows], sequences=self.sequences[rows])


class PendingRows:
    """Rows by what is to be marked; ``window``: the numbers that a profile reaches back."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._published: dict[str, list[Layout]] = {}
        self._received: dict[tuple[int, ...], list[Sequences]] = {}
        self._several: dict[tuple[str, frozenset[str]], deque[_Contents]] = {}
        self._rows = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the rows are to be marked now."""
        return self._rows > _ROWS_MAX or self._bytes > _BYTES_MAX

    def add_published(self, publisher: str, layout: Layout) -> None:
        """Add the rows of a publisher."""
        self._published.setdefault(publisher, []).append(layout)
        self._rows += len(layout.sequences)

    def add_received(self, rings: tuple[int, ...], sequences: Sequences) -> None:
        """Add numbers that all these rings get."""
        self._received.setdefault(rings, []).append(sequences)
        self._rows += len(sequences)

    def add_several(self, publisher: str, batch: RawRows, to: list[tuple[str, RawRows]]) -> None:
        """Add the rows of a batch that went to clients with several subscriptions."""
        layout, picked = batch.rows.layout, [some.picked for _, some in to]
        starts, ends, sequences = layout.content_starts, layout.content_ends, layout.sequences
        if not any(rows is None for rows in picked):
            union = np.unique(np.concatenate([rows for rows in picked if rows is not None]))
            starts, ends, sequences = starts[union], ends[union], sequences[union]
        last = int(sequences.max())
        waiting = self._several.setdefault((publisher, frozenset(client for client, _ in to)), deque())
        waiting.append(_Contents(batch.rows.data, starts, ends, sequences, last))
        self._rows += len(sequences)
        self._bytes += len(batch.rows.data)
        while waiting[0].last <= last - self._window:
            passed = waiting.popleft()
            self._rows -= len(passed.sequences)
            self._bytes -= len(passed.data)

    def published(self) -> Iterator[tuple[str, tuple[Sequences, NDArray[np.float64], int]]]:
        """Numbers, times and the size of the rows of each publisher."""
        for publisher, layouts in self._published.items():
            sequences = np.concatenate([each.sequences for each in layouts])
            times = np.concatenate([each.times for each in layouts])
            ends = np.concatenate([each.starts[1:] for each in layouts])
            size = int((ends - np.concatenate([each.content_starts for each in layouts])).sum())
            yield publisher, (sequences, times, size)

    def received(self) -> Iterator[tuple[tuple[int, ...], Sequences]]:
        """The numbers that sets of rings get."""
        for rings, parts in self._received.items():
            yield rings, np.concatenate(parts)

    def several(self) -> Iterator[tuple[str, frozenset[str], PublicationView, Sequences]]:
        """Contents of each publisher for sets of clients, one after the other, with their numbers."""
        passed = self._passed()
        for (publisher, clients), waiting in self._several.items():
            parts = [some for part in waiting if len((some := part.after(passed[publisher])).sequences)]
            if not parts:
                continue
            shifts = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
            starts = np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=True)])
            ends = np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=True)])
            data = np.concatenate([part.data for part in parts])
            yield publisher, clients, PublicationView(data, starts, ends), np.concatenate([part.sequences for part in parts])

    def _passed(self) -> dict[str, int]:
        """The last number of each publisher before its window: a subscription has received all these rows."""
        newest: dict[str, int] = {}
        for (publisher, _), parts in self._several.items():
            newest[publisher] = max(newest.get(publisher, 0), *(part.last for part in parts))
        return {publisher: number - self._window for publisher, number in newest.items()}
