"""Files of lines: batches follow the reads, memory stays bounded, places are right."""

import errno
import io
import tracemalloc

import pytest

from overweave.cli import line_reader
from overweave.cli.line_reader import BadLines, LineFile, open_lines, parsed
from overweave.errors import InvalidInput, LanguageError


class Dribble(io.BytesIO):
    """A stream that brings a few bytes a read, as a slow pipe does."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(self._size)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("data", [b"", b"\n", b"a", b"a\n", b"ab\n\ncd", b"\n\nabc\n"])
def test_lines_do_not_depend_on_how_they_arrive(data, size):
    stream = Dribble(data, size)
    found = [line for batch in LineFile("x", stream, stream).batches() for line in batch]
    assert found == data.splitlines()


def test_a_batch_is_what_one_read_brought():
    stream = Dribble(b"a\nb\n" * 2, 4)
    assert list(LineFile("x", stream, stream).batches()) == [[b"a", b"b"], [b"a", b"b"]]


def test_an_endless_line_is_a_bad_line_and_the_next_one_is_read(monkeypatch):
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 10)
    stream = Dribble(b"x" * 95 + b"\nnext\n", 8)
    bad = BadLines(skip=True)
    assert [value for batch in parsed(LineFile("x", stream, stream), _text, bad) for value in batch] == [None, "next"]
    assert bad.first == ["x:1:1: expected a line of at most 10 bytes, found a longer one"]


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"[class,'STOCK'],[volume,400000]\n" * 500_000)
    tracemalloc.start()
    with open_lines(str(path)) as file:
        count = sum(len(batch) for batch in parsed(file, lambda text, number: None, BadLines(skip=False)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 500_000
    assert peak_bytes < 16 * line_reader.READ_BYTES < path.stat().st_size / 3


def test_any_of_our_errors_gets_its_place():
    def refuse(text: str, number: int) -> None:
        raise LanguageError("a filter: expected at least one predicate")

    stream = io.BytesIO(b"\nx\n")
    with pytest.raises(InvalidInput, match=r"^y:2:1: a filter: expected at least one predicate$"):
        list(parsed(LineFile("y", stream, stream), refuse, BadLines(skip=False)))


@pytest.mark.parametrize("size", [1, 5, 100])
def test_what_comes_before_the_line_that_ends_the_run_is_handed_on(size):
    def no_x(text: str, number: int) -> str:
        if text == "x":
            raise InvalidInput("expected no x")
        return text

    stream, found = Dribble(b"a\n\nb\nx\nc\n", size), []
    with pytest.raises(InvalidInput, match=r"^y:4:1: expected no x$"):
        for batch in parsed(LineFile("y", stream, stream), no_x, BadLines(skip=False)):
            found += batch
    assert found == ["a", None, "b"]


def test_a_read_error_names_the_file():
    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error") as caught:
        list(LineFile("disk", Broken(), Broken()).batches())
    assert caught.value.filename == "disk"


def test_skipped_lines_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(BadLines, "NUMBERS_MAX", 10)
    bad = BadLines(skip=True)
    for number in range(1, 101):
        bad.reject(number, InvalidInput("wrong"))
    assert (bad.count, bad.numbers, len(bad.first)) == (100, list(range(1, 11)), BadLines.SHOWN)


def _text(text: str, number: int) -> str:
    return text
