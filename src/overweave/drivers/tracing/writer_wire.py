"""What a broker and the process that writes its trace share: buffers of rows in memory, and words on pipes.

The broker fills a buffer, gives an `Order` to write it, and may fill it again after the `Answer`. A buffer is understood
without any other: the texts that its codes stand for come with the order. So whoever writes it may be a new process.
"""

import mmap
import os
import sys
import tempfile
from typing import IO, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.contract.records import Statement

#: The code of no text.
MISSING = -1

_LENGTH_BYTES = 8
#: So many a buffer has of each kind.
NUMBERS, CODES = 4, 5
_Word = TypeVar("_Word", "Start", "Order", "Answer")


class Buffer(NamedTuple):
    """Rows of a trace by columns. The broker is one for all rows, and not here."""

    #: Sequences, sizes, and the bits of when rows were published and arrived.
    numbers: NDArray[np.int64]
    #: Of publishers, subscriptions and clients; hops; and codes of previous hops.
    codes: NDArray[np.int32]

    @property
    def rows(self) -> int:
        """How many rows there is room for."""
        return len(self.numbers[0])


class Start(msgspec.Struct, frozen=True):
    """The first word: where the trace is, and which descriptor is that of the buffers."""

    path: str
    broker: str
    rows_per_file: int
    memory: int
    buffers: int
    rows_per_buffer: int


class Order(msgspec.Struct, frozen=True):
    """Write so many rows of a buffer, whose texts are these, and then perhaps finish the file."""

    buffer: int
    rows: int
    publishers: list[str]
    subscriptions: list[str]
    clients: list[str]
    previous_hops: list[str] = []
    finish: bool = False
    #: Rows of the table ``statements``, which make a file of their own.
    statements: list[Statement] = []


class Answer(msgspec.Struct, frozen=True):
    """An order was carried out, except for rows that are lost; so many are in a file that is not finished."""

    rows_lost: int
    rows_open: int
    #: Whether a file was finished because it was full.
    full: bool
    #: Why rows are lost.
    failure: str | None = None


class Buffers:
    """The buffers in a shared memory."""

    def __init__(self, descriptor: int, buffers: int, rows: int) -> None:
        self._rows = rows
        self._memory = mmap.mmap(descriptor, buffers * _buffer_bytes(rows))

    def __getitem__(self, number: int) -> Buffer:
        start = number * _buffer_bytes(self._rows)
        numbers = np.frombuffer(self._memory, np.int64, NUMBERS * self._rows, start)
        codes = np.frombuffer(self._memory, np.int32, CODES * self._rows, start + numbers.nbytes)
        return Buffer(numbers.reshape(NUMBERS, self._rows), codes.reshape(CODES, self._rows))


def shared_memory(buffers: int, rows: int) -> int:
    """A descriptor of memory for buffers, which takes room only as it is used, and none on a disk where the system has such."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("trace")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, buffers * _buffer_bytes(rows))
    return descriptor


def send(pipe: IO[bytes], word: "Start | Order | Answer") -> None:
    """Put a word into a pipe."""
    data = msgspec.msgpack.encode(word)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[_Word]) -> _Word | None:
    """The next word from a pipe; None when it has ended, be it within a word."""
    head = pipe.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    data = pipe.read(length) if len(head) == _LENGTH_BYTES else b""
    return msgspec.msgpack.decode(data, type=kind) if data and len(data) == length else None


def _buffer_bytes(rows: int) -> int:
    # A multiple of 8, where the numbers of the next buffer begin.
    return -(-rows * (NUMBERS * 8 + CODES * 4) // 8) * 8
