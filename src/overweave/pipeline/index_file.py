"""An index in a directory, so that all workers of a machine share its pages: an ``.npy`` file per array, the ids beside them.

A table for Spark maps subscriptions to slots. Tasks of Spark build an index, and the driver sees none of the rows:
equal filters are grouped, so that workers parse each text once, and one task inserts wire forms and ids in batches and
saves the index, which must be in one memory.

It is mapped copy-on-write: scratch pages of kernels become private, so that workers cannot affect each other.
On a cluster the directory must be visible to every executor.
"""

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.language.codec import encode_filter
from overweave.language.syntax import parse_filter
from overweave.language.values import excerpt
from overweave.matching.index import Index
from overweave.matching.kernels.state import new_state
from overweave.pipeline.spark_errors import translate_errors

#: The table of slots: subscription, slot.
SLOTS = "slots.parquet"
#: Where the ids are: their bytes, and where each begins.
_IDS, _OFFSETS = "ids", "id_offsets"


_Batches = Iterator[pa.RecordBatch]
#: What is known of a subscription: where it stands in the table, its filter's wire form, or why there is none.
_PARSED = "place long, subscription string, wire binary, error string"
_BUILT = "subscriptions long, bad long"
_TWICE = "expected every id once"


class MappedIndex(NamedTuple):
    """An index to be asked, whose ids are slots, and the names of the slots."""

    matcher: Index
    names: pa.Array


class Built(NamedTuple):
    """How many subscriptions are in an index, and how many were left out because they are bad."""

    subscriptions: int
    bad: int


def build_index(subscriptions: DataFrame, directory: Path | str, *, skip_bad: bool = False) -> Built:
    """Save an index of the table ``subscriptions``; the text of a filter is not kept.

    A filter that cannot be read, or an id that was there before, is an `InvalidInput` that names the subscription, unless
    ``skip_bad`` says to leave it out and count it. The directory has to be one that every executor sees.
    """
    rows = subscriptions.select(F.monotonically_increasing_id().alias("place"), "subscription", "filter")
    parsed = rows.repartition("filter").sortWithinPartitions("filter").mapInArrow(_parse, _PARSED)
    # Where Spark runs may have another working directory.
    build = functools.partial(_build, Path(directory).absolute(), skip_bad)
    with translate_errors():
        told = parsed.repartition(1).mapInArrow(build, _BUILT).collect()
    if not told:
        # Without rows there need not be a task.
        save_index(Index(), directory)
        return Built(0, 0)
    return Built(*told[0])


def save_index(index: Index, directory: Path | str) -> None:
    """Replace the saved index; processes that have mapped the old one keep it."""
    ids = ["" if id is None else str(id) for id in index.slot_ids()]
    save_named(index, pa.array(ids, pa.large_string()), directory)


def save_named(index: Index, names: pa.Array, directory: Path | str) -> None:
    """The same for an index whose slots have these ``names`` (large strings), empty where there is no filter."""
    path = Path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    fresh.chmod(0o755)
    try:
        arrays = index.arrays()
        texts, offsets = _bytes_of(names)
        arrays[_IDS], arrays[_OFFSETS] = texts[offsets[0] : offsets[-1]], offsets - offsets[0]
        for name, array in arrays.items():
            np.save(fresh / f"{name}.npy", array)
        used = pc.not_equal(names, "")
        slots = pa.table({"subscription": names, "slot": np.arange(len(names), dtype=np.int32)}).filter(used)
        pq.write_table(slots, fresh / SLOTS, compression="zstd")
        if path.exists():
            old = fresh / "old"
            path.rename(old)
            fresh.rename(path)
            shutil.rmtree(path / "old")
        else:
            fresh.rename(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def open_index(directory: Path | str) -> MappedIndex:
    """The index in a directory; opened once per process, and again when another one was saved there."""
    path = Path(directory)
    try:
        state = (path / f"{_IDS}.npy").stat()
    except OSError:
        raise InvalidInput(f"{path}: expected a directory with a saved index, found none") from None
    return _opened(path, state.st_ino, state.st_mtime_ns)


def _parse(batches: _Batches) -> _Batches:
    """Each text once: they come in order."""
    for batch in batches:
        coded = batch.column("filter").dictionary_encode()
        wires, errors = [], []
        for text in coded.dictionary.to_pylist():
            wire, error = _wire_of(text)
            wires.append(wire)
            errors.append(error)
        columns = [pa.array(wires, pa.binary()).take(coded.indices), pa.array(errors, pa.string()).take(coded.indices)]
        yield pa.RecordBatch.from_arrays(
            [batch.column("place"), batch.column("subscription"), *columns], ["place", "subscription", "wire", "error"]
        )


def _wire_of(text: str) -> tuple[bytes | None, str | None]:
    try:
        return encode_filter(parse_filter(text)), None
    except InvalidInput as error:
        return None, str(error)


def _build(directory: Path, skip_bad: bool, batches: _Batches) -> _Batches:
    index, bad = Index(), 0
    first_bad: tuple[int, str] | None = None
    names, places, slots = [], [], []
    for batch in batches:
        left_out = batch.filter(batch.column("wire").is_null())
        if left_out.num_rows:
            bad += left_out.num_rows
            first_bad = min(filter(None, (first_bad, _first_bad(left_out))))
        good = batch.filter(batch.column("wire").is_valid())
        slots.append(index.add_encoded(*_bytes_of(good.column("wire"))))
        names.append(good.column("subscription").cast(pa.large_string()))
        places.append(good.column("place").to_numpy())
    ids, place, slot = _together(names), np.concatenate([_NONE, *places]), np.concatenate([_NONE, *slots])
    again = _again(ids, place)
    if again.size and not skip_bad:
        row = again[place[again].argmin()]
        first_bad = min(filter(None, (first_bad, (int(place[row]), f"{excerpt(ids[int(row)].as_py())}: {_TWICE}"))))
    if first_bad is not None and not skip_bad:
        raise InvalidInput(f"subscription {first_bad[1]}")
    index.remove_slots(slot[again].tolist())
    ids = pc.if_else(pa.array(np.isin(np.arange(len(ids)), again)), pa.scalar("", pa.large_string()), ids) if again.size else ids
    # Slots may come in any order.
    ordered = ids if np.array_equal(slot, np.arange(len(slot))) else ids.take(pa.array(np.argsort(slot)))
    save_named(index, ordered, directory)
    yield pa.RecordBatch.from_pydict({"subscriptions": [len(index)], "bad": [bad + again.size]})


def _first_bad(rows: pa.RecordBatch) -> tuple[int, str]:
    row = int(rows.column("place").to_numpy().argmin())
    place, id, error = (rows.column(name)[row].as_py() for name in ("place", "subscription", "error"))
    return place, f"{excerpt(id)}: {error or 'expected a filter, found null'}"


def _bytes_of(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """What is in a column, in a row, and where each value begins and the last one ends."""
    # Spark may be set to have offsets of either size.
    wide = column if pa.types.is_large_string(column.type) else column.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    places = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1] if len(wide) else np.zeros(1, np.int64)
    # Offsets of their own, or kernels would be compiled once more for those that cannot be written to.
    return np.frombuffer(data or b"", np.uint8), places.copy()


def _together(names: list[pa.Array]) -> pa.Array:
    return pa.chunked_array(names, pa.large_string()).combine_chunks()


def _again(ids: pa.Array, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of ids that were there before in the table."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return _NONE
    codes = ids.dictionary_encode().indices.to_numpy()
    order = np.lexsort((place, codes))
    again: NDArray[np.int64] = order[1:][codes[order][1:] == codes[order][:-1]]
    return again


_NONE = np.empty(0, np.int64)


@functools.lru_cache(maxsize=4)
def _opened(path: Path, _inode: int, _time_ns: int) -> MappedIndex:
    expected = new_state()._asdict()
    arrays = {name: _mapped(path, name, example) for name, example in expected.items()}
    ids, offsets = _mapped(path, _IDS, np.empty(0, np.uint8)), _mapped(path, _OFFSETS, np.empty(0, np.int64))
    names = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(ids))
    return MappedIndex(Index.from_arrays(arrays), names)


def _mapped(path: Path, name: str, example: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array of a saved index; kernels trust what they are given, so another layout is refused."""
    try:
        array = np.load(path / f"{name}.npy", mmap_mode="c")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: expected a saved index, found {name!r} unreadable: {error}") from None
    if array.dtype != example.dtype or array.shape[1:] != example.shape[1:]:
        raise InvalidInput(f"{path}: expected an index that this version saved, found {name!r} of another layout")
    return np.asarray(array)
