"""Columns of Arrow tables as what planning works on: positions instead of ids, and bit vectors as one matrix."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location
from overweave.planning.problem import BitWords, Whole

_WORD = 64


def texts(values: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """Ids as one array of texts, whatever they were read as.

    >>> texts(pa.chunked_array([["a"], ["b", None]])).to_pylist()
    ['a', 'b', None]
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.array(values, pa.large_string())
    cast = values.cast(pa.large_string())
    return cast.combine_chunks() if isinstance(cast, pa.ChunkedArray) else cast


def positions(path: Location, kind: str, ids: pa.ChunkedArray, known: pa.Array) -> Whole:
    """The position of every id of a column in the table of its kind; one that is not there is named."""
    given = texts(ids)
    found = pc.index_in(given, value_set=known)
    if found.null_count:
        id = given[pc.index(pc.is_null(found), True).as_py()].as_py()
        raise InvalidInput(f"{path}: {kind} {id!r}: expected one that the profile knows")
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def words_of(path: Location, column: pa.ChunkedArray, bits: int) -> BitWords:
    """The bit vectors of a column of equally long lists; a matrix of ``bits`` columns if it is empty."""
    if not len(column):
        return np.zeros((0, bits // _WORD), np.uint64)
    wrong = InvalidInput(f"{path}: column 'words': expected lists of integers, found {column.type}")
    inner = getattr(column.type, "value_type", None)
    if inner is None or not pa.types.is_integer(inner):  # numbers of other kinds would lose bits
        raise wrong
    try:
        lists = column.cast(pa.large_list(pa.int64())).combine_chunks()
    except pa.ArrowException:
        raise wrong from None
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    values = lists.flatten()
    if len(lengths) > 1 or values.null_count:
        found = f"lengths {', '.join(map(str, sorted(lengths)))}" if len(lengths) > 1 else "null"
        raise InvalidInput(f"{path}: column 'words': expected vectors of one length, found {found}")
    words: BitWords = np.asarray(values.to_numpy(zero_copy_only=False), np.int64).view(np.uint64).reshape(len(column), lengths[0])
    return words


def check_once(path: Location, table: pa.Table, names: tuple[str, ...]) -> None:
    """Raise an error for rows with a repeated key."""
    counted = table.select(list(names)).group_by(list(names)).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    if len(twice):
        row = ", ".join(f"{name} {twice[name][0].as_py()!r}" for name in names)
        raise InvalidInput(f"{path}: {row}: expected one row, found {twice['count_all'][0].as_py()}")
