"""Publications in bulk from the text syntax to the wire form.

The parser takes about 20 µs for one; that is most of the time of matching. What machines write, plain lists ``[name,value]`` of
numbers and ASCII text without escapes, is therefore read by a kernel. It decides nothing on its own: whatever it does not know
for certain, and all that is wrong, goes to the parser.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.syntax import parse_publication
from overweave.pipeline.text_kernels import UNKNOWN, read_texts

#: The maximum ratio of a wire form to its text, plus two bytes: ``[n,1]`` becomes type, length, name and eight bytes.
_LONGER = 3


class Wires(NamedTuple):
    """Wire forms as the index takes them: row i is ``data[starts[i]:ends[i]]``. ``bad`` rows are empty, with why."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    bad: dict[int, str]

    def column(self, rows: NDArray[np.int64]) -> pa.Array:
        """Some rows as an Arrow array of bytes.

        >>> wires_of_texts(pa.array(["[x,", "[x,1]"])).column(np.array([1]))[0].as_py().hex(" ")
        '01 00 00 01 78 01 00 00 00 00 00 00 00'
        """
        starts, ends = self.starts[rows], self.ends[rows]
        if not len(rows) or not np.array_equal(starts[1:], ends[:-1]):
            raw = self.data.tobytes()
            return pa.array([raw[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)], pa.binary())
        offsets = pa.py_buffer(np.append(starts, ends[-1]))
        whole = pa.Array.from_buffers(pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(self.data)])
        return whole.cast(pa.binary())


def wires_of_texts(texts: pa.Array) -> Wires:
    """The wire forms of publications in the text syntax.

    >>> wires = wires_of_texts(pa.array(["[x,1]", "[x,", None]))
    >>> (wires.ends - wires.starts).tolist(), wires.bad[1]
    ([13, 0, 0], 'column 4: expected a number or a text in single quotes, found the end')
    """
    source, offsets = _buffers(texts, pa.large_string())
    target = np.empty(_LONGER * len(source) + 2 * len(texts), np.uint8)
    starts, ends = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    # The shortest attribute with a decimal is ``[n,1.0]``.
    decimals = np.empty((len(source) // 4 + 1, 3), np.int64)
    count = read_texts(source, offsets, target, starts, ends, decimals)
    _fill_in(source, target, decimals[:count])
    unknown = np.flatnonzero(ends == UNKNOWN)
    return _parsed(texts, Wires(target[: max(ends.max(initial=0), 0)], starts, ends, {}), unknown)


def wires_of_column(column: pa.Array) -> Wires:
    """What is in the wire form already; a row without one is bad.

    >>> wires_of_column(pa.array([b"ab", None, b"c"])).bad
    {1: 'expected a publication, found null'}
    """
    data, offsets = _buffers(column, pa.large_binary())
    bad = dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), _NULL)
    return Wires(data, offsets[:-1], offsets[1:], bad)


_NULL = "expected a publication, found null"


def _buffers(column: pa.Array, kind: pa.DataType) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all rows in one buffer and where each begins; null is empty."""
    plain = pc.fill_null(column.cast(kind), "" if kind == pa.large_string() else b"")
    _, offsets, data = plain.buffers()
    found = (
        np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1] if len(plain) else np.zeros(1, np.int64)
    )
    return np.frombuffer(data if data is not None else b"", np.uint8), found


def _fill_in(source: NDArray[np.uint8], target: NDArray[np.uint8], decimals: NDArray[np.int64]) -> None:
    """Write the decimal numbers that `read_texts` found; Arrow reads them as exactly as Python does."""
    if not len(decimals):
        return
    starts, lengths, places = decimals.T
    ends = lengths.cumsum()
    gathered = source[np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1])]
    offsets = np.concatenate(([0], ends)).astype(np.int64)
    written = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(gathered))
    numbers = written.cast(pa.float64()).to_numpy(zero_copy_only=False)
    target[places[:, None] + np.arange(8)] = numbers.astype("<f8").view(np.uint8).reshape(-1, 8)


def _parsed(texts: pa.Array, wires: Wires, rows: NDArray[np.int64]) -> Wires:
    """With the given rows as the parser reads them, behind the others."""
    more: list[bytes] = []
    end = len(wires.data)
    for row in rows.tolist():
        encoded = b""
        try:
            text = texts[row].as_py()
            if text is None:
                wires.bad[row] = _NULL
            else:
                encoded = encode_publication(parse_publication(text))
        except (InvalidInput, UnicodeDecodeError) as error:
            wires.bad[row] = str(error)
        more.append(encoded)
        wires.starts[row], wires.ends[row] = end, end + len(encoded)
        end += len(encoded)
    return wires._replace(data=np.concatenate([wires.data, np.frombuffer(b"".join(more), np.uint8)])) if more else wires
