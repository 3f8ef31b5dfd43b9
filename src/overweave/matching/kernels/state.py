"""The state of an index: a tuple of arrays, so that it can be passed to kernels, saved, and mapped by other processes.

Each array is a pool. Members refer to each other by position; what was freed is chained into a list whose head stands in
``counters``. Kernels never allocate from an exhausted pool: `lacks_room` is asked first, and `make_room` is the answer.

::

    partition (access key) ── segments (of one link, or shared) ──┬─ rows    up to ROWS_MAX filters, scanned
                              members (links that share one)      └─ blocks  of 1,024 filters, bit sets per column and bucket
    slot (one filter) ── constraints (an interval per column), residuals (what an interval cannot say)
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.matching.kernels.compile import LANES, WORDS, kernel

# Sizes that are part of the layout.
BLOCK = WORDS * 64
#: Publications that are matched together, so that a block which was fetched for one serves the others.
TILE = 128
ROWS_MAX = 256
ROWS_MIN = 64
PLANES_MAX = 48
#: The links (number 0 included) with a bit each in an answer of one word, beside negative ones.
MASKED = 62
_LINKS_FIRST = 8
#: A page holds the bounds of LANES planes: one cache line has a filter's bounds in all of them.
PAGES_MAX = PLANES_MAX // LANES
#: Per column: 62 buckets by 61 edges, one for NaN, one for "absent".
EDGES = 61
NAN_BUCKET = 62
ABSENT = 63
BUCKETS = 64

NONE = -1
GONE = -2

# Kinds of columns: an attribute has one for numbers and one for text.
NUMBER, TEXT = 0, 1
# Kinds of partitions.
UNIVERSAL, PRESENT, EQUAL = 0, 1, 2
# Kinds of segments; the filters of a member lie in the shared segment of its partition.
ROWS, BLOCKS, MEMBER = 0, 1, 2
#: In the place of a link: the segment is that of all members.
SHARED = -1

# Positions in `counters`: what is in use, the heads of the free lists, and what else is counted.
(
    SLOTS_USED,
    SLOTS_FREE,
    TEXTS_USED,
    TEXTS_FREE,
    TEXTS_LIVE,
    TEXT_TABLE_USED,
    HEAP_USED,
    HEAP_GARBAGE,
    COLUMNS_USED,
    COLUMNS_FREE,
    PARTITIONS_USED,
    PARTITIONS_FREE,
    PARTITIONS_LIVE,
    PARTITION_TABLE_USED,
    SEGMENTS_USED,
    SEGMENTS_FREE,
    ROWS_USED,
    CONSTRAINTS_USED,
    RESIDUALS_USED,
    BLOCKS_USED,
    BLOCKS_FREE,
    PLANES_USED,
    PLANES_FREE,
    PAGES_USED,
    PAGES_FREE,
    FILTERS,
    FILTERS_WITHOUT_EQUALITY,
    HASH_SEED,
    # The intervals and residuals of the filter that is coming in.
    DRAFT_CONSTRAINTS,
    DRAFT_RESIDUALS,
    # How many filters the publication at hand matched.
    MATCHES,
) = range(31)
#: Free lists of extents, by size class (see `extent_class`), start here: rows, constraints, residuals.
EXTENT_CLASSES = 96
ROW_EXTENTS = 32
CONSTRAINT_EXTENTS = ROW_EXTENTS + EXTENT_CLASSES
RESIDUAL_EXTENTS = CONSTRAINT_EXTENTS + EXTENT_CLASSES
COUNTERS = RESIDUAL_EXTENTS + EXTENT_CLASSES

_text = np.dtype(
    [
        ("hash", "u8"),
        ("offset", "i8"),
        ("length", "i4"),
        ("references", "i4"),
        ("number_column", "i4"),
        ("text_column", "i4"),
    ],
    align=True,
)
_column = np.dtype(
    [
        ("references", "i8"),
        ("additions", "i8"),
        ("next_look", "i8"),
        ("name", "i4"),
        ("keys", "i4"),
        ("present", "i4"),
        ("kind", "i4"),
    ],
    align=True,
)
_value = np.dtype(
    [
        ("value", "f8"),
        ("offset", "i8"),
        ("length", "i8"),
        ("bucket", "i4"),
        ("present", "i4"),
        ("fine", "i4"),
    ],
    align=True,
)
_partition = np.dtype(
    [
        ("value", "f8"),
        ("mentions", "i8"),
        ("column", "i4"),
        ("first", "i4"),
        ("shared", "i4"),
        ("members", "i4"),
        ("scanned", "i4"),
        ("fine", "i2"),
        ("kind", "i2"),
    ],
    align=True,
)
_segment = np.dtype(
    [
        ("partition", "i4"),
        ("next", "i4"),
        ("link", "i4"),
        ("kind", "i4"),
        ("count", "i4"),
        ("first", "i4"),
        ("capacity", "i4"),
        ("open", "i4"),
    ],
    align=True,
)
_row = np.dtype(
    [
        ("low", "f8"),
        ("high", "f8"),
        ("slot", "i4"),
        ("column", "i4"),
        ("low_fine", "i2"),
        ("high_fine", "i2"),
        ("more", "i4"),
    ],
    align=True,
)
_slot = np.dtype(
    [
        ("constraints", "i4"),
        ("residuals", "i4"),
        ("segment", "i4"),
        ("position", "i4"),
        ("constraint_count", "i4"),
        ("residual_count", "i4"),
    ],
    align=True,
)
_constraint = np.dtype([("low", "f8"), ("high", "f8"), ("column", "i4"), ("low_fine", "i2"), ("high_fine", "i2")], align=True)
_residual = np.dtype([("value", "f8"), ("column", "i4"), ("text", "i4"), ("fine", "i2"), ("operator", "i2")], align=True)
_block = np.dtype([("segment", "i4"), ("next", "i4"), ("count", "i4"), ("planes", "i4"), ("words", "i4")], align=True)


class State(NamedTuple):
    """All that an index knows; see the module for how the parts hang together."""

    counters: NDArray[np.int64]
    texts: NDArray[Any]
    text_table: NDArray[np.int32]
    heap: NDArray[np.uint8]
    columns: NDArray[Any]
    edges: NDArray[np.float64]
    #: [column, i]: what publication i of those at hand says (bucket ABSENT: nothing); the field ``present`` lists its columns.
    values: NDArray[Any]
    value_counts: NDArray[np.int64]
    partitions: NDArray[Any]
    partition_table: NDArray[np.int32]
    segments: NDArray[Any]
    rows: NDArray[Any]
    slots: NDArray[Any]
    #: The slots that a publication which came alone matched.
    found: NDArray[np.int32]
    constraints: NDArray[Any]
    residuals: NDArray[Any]
    blocks: NDArray[Any]
    #: [block, 0]: columns of its planes; [block, 1]: the planes, NONE where there is none (any more).
    block_planes: NDArray[np.int32]
    block_pages: NDArray[np.int32]
    #: [block, 0]: which positions are taken; [block, 1]: which of them always need the exact check.
    block_bits: NDArray[np.uint64]
    block_slots: NDArray[np.int32]
    block_links: NDArray[np.int32]
    #: [plane, bucket]: the filters that reject the whole bucket, and from WORDS on those with a bound inside it.
    planes: NDArray[np.uint64]
    plane_counts: NDArray[np.int32]
    #: [page, position]: the lower bounds of a filter in LANES planes, then the upper ones, rounded; infinite where it has none.
    pages: NDArray[np.float32]
    #: The block at hand: where in `planes` the rows for the publication begin, the publication's values in the columns of its
    #: planes, which filters are left, which of them are in doubt, and those listed.
    block_rows: NDArray[np.int64]
    block_values: NDArray[np.float32]
    block_left: NDArray[np.uint64]
    block_doubt: NDArray[np.uint64]
    block_checks: NDArray[np.int32]
    #: Per link, for a publication that came alone: what is wanted, whether a filter matched; and the links where one did.
    link_wanted: NDArray[np.int8]
    link_hits: NDArray[np.bool_]
    link_found: NDArray[np.int32]
    #: What room the filter that is coming in needs, in the order of `POOLS`.
    needed: NDArray[np.int64]


_LARGE_BYTES = 1 << 26
#: Pools that grow, with the counter of what is in use and the names of the arrays that grow together.
POOLS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (SLOTS_USED, ("slots", "found")),
    (TEXTS_USED, ("texts",)),
    (HEAP_USED, ("heap",)),
    (COLUMNS_USED, ("columns", "edges", "values")),
    (PARTITIONS_USED, ("partitions",)),
    (SEGMENTS_USED, ("segments",)),
    (ROWS_USED, ("rows",)),
    (CONSTRAINTS_USED, ("constraints",)),
    (RESIDUALS_USED, ("residuals",)),
    (BLOCKS_USED, ("blocks", "block_planes", "block_pages", "block_bits", "block_slots", "block_links")),
    (PLANES_USED, ("planes", "plane_counts")),
    (PAGES_USED, ("pages",)),
)


#: The arrays of an index without filters, all zero but for what `new_state` enters. Columns and blocks come with
#: the filters that need them.
_FIRST: dict[str, tuple[int | tuple[int, ...], Any]] = {
    "counters": (COUNTERS, np.int64),
    "texts": (64, _text),
    "text_table": (256, np.int32),
    "heap": (1024, np.uint8),
    "columns": (0, _column),
    "edges": ((0, EDGES), np.float64),
    "values": ((0, TILE), _value),
    "value_counts": (TILE, np.int64),
    "partitions": (64, _partition),
    "partition_table": (256, np.int32),
    "segments": (64, _segment),
    "rows": (64, _row),
    "slots": (64, _slot),
    "found": (64, np.int32),
    "constraints": (64, _constraint),
    "residuals": (64, _residual),
    "blocks": (0, _block),
    "block_planes": ((0, 2, PLANES_MAX), np.int32),
    "block_pages": ((0, PAGES_MAX), np.int32),
    "block_bits": ((0, 2, WORDS), np.uint64),
    "block_slots": ((0, BLOCK), np.int32),
    "block_links": ((0, BLOCK), np.int32),
    "planes": ((0, BUCKETS, 2 * WORDS), np.uint64),
    "plane_counts": (0, np.int32),
    "pages": ((0, BLOCK, 2 * LANES), np.float32),
    "block_rows": (PLANES_MAX, np.int64),
    "block_values": (PLANES_MAX, np.float32),
    "block_left": (WORDS, np.uint64),
    "block_doubt": (WORDS, np.uint64),
    "block_checks": (BLOCK, np.int32),
    "link_wanted": (_LINKS_FIRST, np.int8),
    "link_hits": (_LINKS_FIRST, np.bool_),
    "link_found": (_LINKS_FIRST, np.int32),
    "needed": (len(POOLS), np.int64),
}
_FREE_LISTS = [SLOTS_FREE, TEXTS_FREE, COLUMNS_FREE, PARTITIONS_FREE, SEGMENTS_FREE, BLOCKS_FREE, PLANES_FREE, PAGES_FREE]
_ALL_FREE_LISTS = np.array([*_FREE_LISTS, *range(ROW_EXTENTS, COUNTERS)])


def new_state(hash_seed: int = 0) -> State:
    """An index without filters; partition 0 is the universal one."""
    state = State._make([np.zeros(*_FIRST[name]) for name in State._fields])
    state.counters[_ALL_FREE_LISTS] = NONE
    state.counters[PARTITIONS_USED] = 1
    state.counters[HASH_SEED] = hash_seed
    state.text_table[:] = NONE
    state.partition_table[:] = NONE
    for name in ("first", "shared", "members"):
        state.partitions[name][0] = NONE
    return state


def make_room_for_links(state: State, links: int) -> None:
    """Have room to say something of each of ``links`` links; no more than fit a mask as long as these do."""
    room = len(state.link_hits)
    if links > room:
        size = max(links, min(2 * room, MASKED) if links <= MASKED else 2 * room)
        for array in (state.link_wanted, state.link_hits, state.link_found):
            array.resize(size, refcheck=False)


def make_room(state: State) -> None:
    """Give each of `POOLS` room for what is ``needed``, in place: small ones grow by half, large ones by an eighth.

    Large arrays are moved by the operating system without being copied, so a broker does not stand still for them.
    """
    for (used_at, names), more in zip(POOLS, state.needed, strict=True):
        arrays = [getattr(state, name) for name in names]
        used, room = int(state.counters[used_at]), len(arrays[0])
        if used + more <= room:
            continue
        share = 2 if sum(array.nbytes for array in arrays) < _LARGE_BYTES else 8
        for array in arrays:
            array.resize((max(used + int(more), room + room // share + 1), *array.shape[1:]), refcheck=False)


@kernel
def lacks_room(state):
    """Whether some pool has no room for what is ``needed``."""
    used, needed = state.counters, state.needed
    return (
        used[SLOTS_USED] + needed[0] > len(state.slots)
        or used[TEXTS_USED] + needed[1] > len(state.texts)
        or used[HEAP_USED] + needed[2] > len(state.heap)
        or used[COLUMNS_USED] + needed[3] > len(state.columns)
        or used[PARTITIONS_USED] + needed[4] > len(state.partitions)
        or used[SEGMENTS_USED] + needed[5] > len(state.segments)
        or used[ROWS_USED] + needed[6] > len(state.rows)
        or used[CONSTRAINTS_USED] + needed[7] > len(state.constraints)
        or used[RESIDUALS_USED] + needed[8] > len(state.residuals)
        or used[BLOCKS_USED] + needed[9] > len(state.blocks)
        or used[PLANES_USED] + needed[10] > len(state.planes)
        or used[PAGES_USED] + needed[11] > len(state.pages)
    )


@kernel
def take_extent(records, counters, used_at, lists_at, length):
    """Room for ``length`` records in a row (their field ``column`` chains what is free)."""
    size_class, capacity = extent_class(length)
    start = counters[lists_at + size_class]
    if start == NONE:
        start = counters[used_at]
        counters[used_at] += capacity
    else:
        counters[lists_at + size_class] = records[start].column
    return start


@kernel
def give_extent(records, counters, lists_at, start, length):
    """Give back what `take_extent` gave for the same length."""
    size_class, _ = extent_class(length)
    if length > 0:
        records[start].column = counters[lists_at + size_class]
        counters[lists_at + size_class] = start


@kernel
def extent_class(length):
    """The size class of an extent: exact up to 64 members, then powers of two; (class, capacity)."""
    if length <= 64:
        return length, length
    size_class, capacity = 65, 128
    while capacity < length:
        size_class += 1
        capacity *= 2
    return size_class, capacity
