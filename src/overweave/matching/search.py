"""The search in the arrays of an index: several publications in their wire form, matched by one compiled call."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from overweave.errors import WireError
from overweave.language.codec import encode_publication, join_encoded
from overweave.language.publications import Publication
from overweave.matching.growth import FilterArrays
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.match import COUNT, count_matches, first_bad_range, match_publications

#: The number of matches listed at once, unless those of one publication can be more.
_LISTED_MAX = 1 << 24
_NO_SLOTS = np.empty(0, np.int32)

Number = TypeVar("Number", np.uint8, np.int64)


class PublicationView(NamedTuple):
    """Publications in their wire form in place: row i is ``data[starts[i]:ends[i]]``, with any bytes between rows."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Found(NamedTuple):
    """The matches of several publications: per row and link whether a filter matched, and the slots listed, row after row.

    The slots are lent: they are valid until the next query.
    """

    hits: NDArray[np.bool_]
    slots: NDArray[np.int32]
    ends: NDArray[np.int64]

    def rows(self) -> Iterator[NDArray[np.int32]]:
        """The listed slots of each row."""
        start = 0
        for end in self.ends.tolist():
            yield self.slots[start:end]
            start = end


class Scratch:
    """The arrays in which kernels list matches, kept between queries; only pages that are written to take memory."""

    __slots__ = ("_filters", "_lists")

    def __init__(self) -> None:
        self._filters = 0
        self._lists = np.empty((1, 0), np.int32), _NO_SLOTS

    def lists_for(self, filters: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Lists of up to all filters, for each of the publications matched together; and one for all publications."""
        if self._filters < max(filters, 1):
            self._filters = size = max(filters * 5 // 4, 16)
            together = min(max(_LISTED_MAX // size, 1), layout.TILE)
            self._lists = np.empty((together, size), np.int32), np.empty(max(size, min(_LISTED_MAX, 1024 * size)), np.int32)
        return self._lists


def view_of(publications: Sequence[Publication]) -> PublicationView:
    """Publications as one buffer in their wire form.

    >>> data, starts, ends = view_of([Publication({"x": 1}), Publication({"x": "a"})])
    >>> len(data), starts.tolist(), ends.tolist()
    (23, [0, 13], [13, 23])
    """
    data, offsets = join_encoded([encode_publication(publication) for publication in publications])
    return PublicationView(data, offsets[:-1], offsets[1:])


def search_view(filters: FilterArrays, scratch: Scratch, publications: PublicationView, modes: NDArray[np.int8]) -> Found:
    """The matches of some publications, by the mode of each link: SKIP, ANY or ALL."""
    data, starts, stops = _as_kernel_input(publications)
    rows = len(starts)
    hits, ends = np.zeros((rows, len(modes)), np.bool_), np.zeros(rows, np.int64)
    pieces: list[NDArray[np.int32]] = []
    row = 0
    while row < rows:
        listed, slots = scratch.lists_for(len(filters))
        done = match_publications(filters.address, data, starts, stops, row, modes, hits, listed, slots, ends)
        if done < rows and ends[done] == layout.NONE:
            _refuse_row(done, starts)
        piece = slots[: ends[done - 1]]
        pieces.append(piece if done == rows else piece.copy())
        ends[row:done] += sum(map(len, pieces[:-1]))
        row = done
    return Found(hits, pieces[0] if len(pieces) == 1 else np.concatenate([_NO_SLOTS, *pieces]), ends)


def count_view(filters: FilterArrays, links: int, publications: PublicationView) -> NDArray[np.int64]:
    """The number of filters that each publication matches on any of ``links`` links."""
    data, starts, stops = _as_kernel_input(publications)
    counts, hits = np.zeros(len(starts), np.int64), np.zeros((layout.TILE, links), np.bool_)
    done = count_matches(filters.address, data, starts, stops, np.full(links, COUNT, np.int8), hits, counts)
    _refuse_row(done, starts)
    return counts


def refuse_if(malformed: bool) -> None:
    """Refuse a publication that a kernel found malformed."""
    if malformed:
        raise WireError(0, "a publication in its wire form")


def _refuse_row(row: int, starts: NDArray[np.int64]) -> None:
    """Refuse the publication of a row, unless the row is beyond the last."""
    if row < len(starts):
        raise WireError(int(starts[row]), f"a publication in its wire form (row {row} of the batch)")


def _as_kernel_input(
    publications: PublicationView,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The arrays of a view in the one kind that kernels are compiled for; its ranges are within the bytes."""
    data, starts, ends = publications
    data, starts, ends = _as_readonly(data, np.uint8), _as_readonly(starts, np.int64), _as_readonly(ends, np.int64)
    if starts.ndim != 1 or starts.shape != ends.shape:
        raise ValueError(f"starts and ends: expected one of each for every row, got {starts.shape} and {ends.shape}")
    row = first_bad_range(len(data), starts, ends)
    if row < len(starts):
        raise ValueError(f"row {row}: expected a range within {len(data)} bytes, got {starts[row]} to {ends[row]}")
    return data, starts, ends


def _as_readonly(array: NDArray[Number], kind: type[Number]) -> NDArray[Number]:
    """The array as kernels expect it: of one type, contiguous and read-only."""
    flags = array.flags
    if array.dtype != kind or not flags.c_contiguous or not flags.aligned:
        array = np.require(array, kind, ("C", "A"))
    view = array.view()
    view.flags.writeable = False
    return view
