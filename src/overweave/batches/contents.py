"""The contents of a batch: the filters that rows match, and the rows that advertisements admit."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.raw import RawRows
from overweave.matching.base import Id
from overweave.matching.index import Index


def matched_ids(batch: Batch, index: Index) -> Iterator[list[Id]]:
    """The ids of all filters in an index that each row matches."""
    if isinstance(batch, Rows):
        for publication in batch.publications():
            yield index.ids(publication)
        return
    assert isinstance(batch, RawRows)
    slots, ends = index.slots(batch.content_view())
    begin = 0
    for end in ends.tolist():
        yield [index.id_of(slot) for slot in slots[begin:end].tolist()]
        begin = end


def not_admitted(batch: Batch, filters: PlainFilters) -> NDArray[np.int64] | None:
    """The rows that no plain filter admits, or None if there are none. Of objects it is all rows: to check each is as quick."""
    return filters.not_admitted(*batch.content_view()) if isinstance(batch, RawRows) else np.arange(batch.count)


def attribute_counts(batch: Batch) -> NDArray[np.int64]:
    """The number of attributes of each row."""
    if isinstance(batch, Rows):
        return np.array([len(publication) for publication in batch.publications()], np.int64)
    assert isinstance(batch, RawRows)
    data, starts, _ = batch.content_view()
    return data[starts] + (data[starts + 1].astype(np.int64) << 8)
