"""The reader of line files: plain, gzip or standard input, with errors that name file, line and column.

Lines come in batches of what one read brought. A file so yields thousands at once, while a line typed or piped in
by a slow writer is handed on at once: a lone line never waits for a batch to fill. At most one batch is held.

A line that cannot be read ends the run, or is skipped and counted (`BadLines`); never is it lost silently.
"""

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from overweave.errors import InvalidInput, ParseError

T = TypeVar("T")

#: The path that means standard input.
STDIN = "-"
READ_BYTES = 1 << 18
#: The limit of a line; an endless line would fill the memory.
LINE_BYTES_MAX = 1 << 24


class LineFile:
    """An open file of lines; errors use ``name``."""

    def __init__(self, name: str, raw: BinaryIO, stream: io.BufferedIOBase) -> None:
        self.name = name
        self._raw = raw
        self._stream = stream

    @property
    def interactive(self) -> bool:
        """Whether the input is a terminal."""
        return self._raw.isatty()

    @property
    def size_bytes(self) -> int | None:
        """The size of the file, if known."""
        return os.fstat(self._raw.fileno()).st_size if self._raw.seekable() and self.name != _STDIN_NAME else None

    @property
    def position_bytes(self) -> int:
        """The read position on the scale of `size_bytes` (compressed bytes for gzip)."""
        return self._raw.tell() if self._raw.seekable() else 0

    def batches(self) -> Iterator[list[bytes]]:
        """All lines without line ends, in batches of one read each."""
        rest = b""
        while chunk := self._read():
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[: LINE_BYTES_MAX + 1]
            if lines:
                yield lines
        if rest:
            yield [rest]

    def _read(self) -> bytes:
        try:
            return self._stream.read1(READ_BYTES)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidInput(f"{self.name}: expected gzip data, found {_lowered(error)}") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), self.name) from error


class BadLines:
    """The policy for bad lines of one file: the first is an error, or all are skipped and counted.

    >>> bad = BadLines(skip=True)
    >>> bad.reject(7, InvalidInput("quotes.txt:7:1: expected '[', found 'x'"))
    >>> bad.count, bad.numbers, bad.first
    (1, [7], ["quotes.txt:7:1: expected '[', found 'x'"])
    """

    #: Errors reported in full.
    SHOWN = 5
    #: Recorded line numbers; beyond, lines are only counted, which bounds the memory.
    NUMBERS_MAX = 100_000

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.count = 0
        self.numbers: list[int] = []
        self.first: list[str] = []

    def reject(self, number: int, error: InvalidInput) -> None:
        """Skip and count line ``number``, or raise ``error``."""
        if not self.skip:
            raise error
        self.count += 1
        if len(self.numbers) < self.NUMBERS_MAX:
            self.numbers.append(number)
        if len(self.first) < self.SHOWN:
            self.first.append(str(error))


@contextlib.contextmanager
def open_lines(path: str) -> Iterator[LineFile]:
    """The file of lines at ``path``: ``-`` is standard input, ``….gz`` is decompressed while reading."""
    if path == STDIN:
        if sys.stdin is None:
            raise InvalidInput(f"{_STDIN_NAME}: expected an open standard input")
        buffer = sys.stdin.buffer
        yield LineFile(_STDIN_NAME, buffer, cast("io.BufferedIOBase", buffer))
        return
    try:
        raw = Path(path).open("rb")  # noqa: SIM115 (only opening may fail as the user's input)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: expected a readable file, found {_lowered(error)}") from None
    with raw:
        yield LineFile(path, raw, gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw)


def parsed(file: LineFile, parse: Callable[[str, int], T], bad: BadLines) -> Iterator[list[T | None]]:
    """The results of ``parse(text, number)`` for every line, in batches; None for blank and bad lines.

    So a line's number is its place in the whole, counted from 1. What comes before the line that ends the run is handed on
    before it ends, however the file happens to be read.
    """
    lines_before = 0
    for batch in file.batches():
        values: list[T | None] = []
        for number, raw in enumerate(batch, lines_before + 1):
            try:
                text = _text(raw, first=number == 1)
                values.append(None if not text or text.isspace() else parse(text, number))
            except InvalidInput as error:
                if not bad.skip:
                    yield values
                bad.reject(number, _placed(file.name, number, error))
                values.append(None)
        lines_before += len(batch)
        yield values


_STDIN_NAME = "<stdin>"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _placed(name: str, number: int, error: InvalidInput) -> InvalidInput:
    """``error`` with its file and line."""
    if isinstance(error, ParseError):
        return InvalidInput(f"{name}:{number}:{error.column}: expected {error.expected}, found {error.found}")
    return InvalidInput(f"{name}:{number}:1: {error}")


def _text(raw: bytes, first: bool) -> str:
    if len(raw) > LINE_BYTES_MAX:
        raise ParseError(1, f"a line of at most {LINE_BYTES_MAX} bytes", "a longer one")
    if first:
        raw = raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        return raw.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode()) + 1
        raise ParseError(column, "text in UTF-8", f"the byte 0x{raw[error.start]:02x}") from None


def _lowered(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
