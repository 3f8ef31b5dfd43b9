"""An index in a directory, so that all workers of a machine share its pages: an ``.npy`` file per array, the ids beside them.

It is mapped copy-on-write: what kernels use as scratch becomes private, page by page, and nobody can harm the others.
On a cluster the directory has to be one that every executor sees.
"""

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from overweave.errors import InvalidInput
from overweave.language.codec import encode_filter
from overweave.language.syntax import parse_filter
from overweave.language.values import excerpt
from overweave.matching.base import Entry
from overweave.matching.index import Index
from overweave.matching.kernels.state import new_state

#: Where the ids are: their bytes, and where each begins.
_IDS, _OFFSETS = "ids", "id_offsets"


class MappedIndex(NamedTuple):
    """An index to be asked, whose ids are slots, and the names of the slots."""

    matcher: Index
    names: pa.Array


class Built(NamedTuple):
    """How many subscriptions are in an index, and how many were left out because they are bad."""

    subscriptions: int
    bad: int


def build_index(subscriptions: DataFrame, directory: Path | str, *, skip_bad: bool = False) -> Built:
    """Save an index of the table ``subscriptions``, which streams through the driver; the text of a filter is not kept.

    A filter that cannot be read, or an id that was there before, is an `InvalidInput` that names the subscription, unless
    ``skip_bad`` says to leave it out and count it.
    """
    index, entries = Index(), _Entries(subscriptions, skip_bad)
    index.add_many(entries)
    save_index(index, directory)
    return Built(len(index), entries.bad)


def save_index(index: Index, directory: Path | str) -> None:
    """Write ``index``, whose ids are texts, in place of what was there; those who have that mapped keep it."""
    path = Path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    fresh.chmod(0o755)
    try:
        arrays = index.arrays()
        encoded = [b"" if id is None else str(id).encode() for id in index.slot_ids()]
        arrays[_IDS] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[_OFFSETS] = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        for name, array in arrays.items():
            np.save(fresh / f"{name}.npy", array)
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


class _Entries:
    """The good rows of a table of subscriptions, one by one, while the bad ones are counted or refused."""

    def __init__(self, subscriptions: DataFrame, skip_bad: bool) -> None:
        self._rows = subscriptions.select("subscription", "filter")
        self._skip_bad = skip_bad
        self.bad = 0

    def __iter__(self) -> Iterator[Entry]:
        seen: set[str] = set()
        for id, text in self._rows.toLocalIterator(prefetchPartitions=True):
            try:
                if id in seen:
                    raise InvalidInput("expected every id once")
                wanted = parse_filter(text)
                encode_filter(wanted)
            except InvalidInput as error:
                if not self._skip_bad:
                    raise InvalidInput(f"subscription {excerpt(id)}: {error}") from None
                self.bad += 1
            else:
                seen.add(id)
                yield id, wanted, None


@functools.lru_cache(maxsize=4)
def _opened(path: Path, _inode: int, _time_ns: int) -> MappedIndex:
    expected = new_state()._asdict()
    arrays = {name: _mapped(path, name, example) for name, example in expected.items()}
    ids, offsets = _mapped(path, _IDS, np.empty(0, np.uint8)), _mapped(path, _OFFSETS, np.empty(0, np.int64))
    names = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(ids))
    return MappedIndex(Index.over(arrays), names)


def _mapped(path: Path, name: str, example: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array of a saved index; kernels trust what they are given, so another layout is refused."""
    try:
        array = np.load(path / f"{name}.npy", mmap_mode="c")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: expected a saved index, found {name!r} unreadable: {error}") from None
    if array.dtype != example.dtype or array.shape[1:] != example.shape[1:]:
        raise InvalidInput(f"{path}: expected an index that this version saved, found {name!r} of another layout")
    return np.asarray(array)
