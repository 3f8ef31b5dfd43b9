"""The protocol between a broker and its trace writer: buffers of rows in shared memory, and messages on pipes.

The broker fills a buffer, sends a `WriteRequest`, and may fill the buffer again after the `WriteReply`. Each request is
self-contained: it carries the texts of the buffer's codes, so that a new process can handle it.
"""

import mmap
import os
import sys
import tempfile
from typing import IO, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.contract.records import Decision, Statement

#: The code of a missing text.
MISSING = -1

_LENGTH_BYTES = 8
#: The number of columns of each kind.
NUMBERS, CODES = 4, 5
_Message = TypeVar("_Message", "WriterConfig", "WriteRequest", "WriteReply")


class Buffer(NamedTuple):
    """Rows of a trace by columns, without the broker, which is the same for all rows."""

    #: Sequences, sizes, and the bits of when rows were published and arrived.
    numbers: NDArray[np.int64]
    #: Of publishers, subscriptions and clients; hops; and codes of previous hops.
    codes: NDArray[np.int32]

    @property
    def rows(self) -> int:
        """The capacity in rows."""
        return len(self.numbers[0])


class WriterConfig(msgspec.Struct, frozen=True):
    """The first message: the place of the trace, and the descriptor of the buffers."""

    path: str
    broker: str
    rows_per_file: int
    memory: int
    buffers: int
    rows_per_buffer: int
    run: str = ""


class WriteRequest(msgspec.Struct, frozen=True):
    """Write rows of a buffer with these texts, and optionally finish the file."""

    buffer: int
    rows: int
    publishers: list[str]
    subscriptions: list[str]
    clients: list[str]
    previous_hops: list[str] = []
    finish: bool = False
    #: Rows of the table ``statements``, which make a file of their own.
    statements: list[Statement] = []
    #: Rows of the table ``decisions``, likewise.
    decisions: list[Decision] = []


class WriteReply(msgspec.Struct, frozen=True):
    """The result of a request: lost rows, and rows in the unfinished file."""

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
    """A descriptor of memory for buffers, which is allocated as it is used; on Linux it is not on a disk."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("trace")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, buffers * _buffer_bytes(rows))
    return descriptor


def send(pipe: IO[bytes], message: "WriterConfig | WriteRequest | WriteReply") -> None:
    """Write a message to a pipe."""
    data = msgspec.msgpack.encode(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[_Message]) -> _Message | None:
    """The next message from a pipe; None at its end, even within a message."""
    head = pipe.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    data = pipe.read(length) if len(head) == _LENGTH_BYTES else b""
    return msgspec.msgpack.decode(data, type=kind) if data and len(data) == length else None


def _buffer_bytes(rows: int) -> int:
    # A multiple of 8, where the numbers of the next buffer begin.
    return -(-rows * (NUMBERS * 8 + CODES * 4) // 8) * 8
