"""``overweave match``: matches publications against filters in bulk, without a network.

Both files stream. The filters are in the index, and publications are processed in batches: 100 MB of publications need no
more memory than 100 kB.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated

import msgspec
import typer

import overweave
from overweave.cli.line_reader import STDIN, BadLines, LineFile, open_lines, parsed
from overweave.cli.output import put, whole_document
from overweave.cli.terminal import progress, say, waiting
from overweave.errors import InvalidInput, ParseError
from overweave.language.codec import encode_filter, encode_publication
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.language.values import excerpt
from overweave.matching.base import Entry, Id, Matcher

EXAMPLE = """\
echo "[class,eq,'STOCK'],[volume,>,300000]" > filters.txt
echo "[class,'STOCK'],[volume,400000]" | overweave match --filters filters.txt --publications -"""

#: Publications per batch; fewer if their many matches would fill the memory.
ROWS_MAX = 1024
IDS_MAX = 1_000_000

_STDIN_PATHS = {STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}
_BLANK = re.compile(r"\s")
_LINE_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


def match(
    filters: Annotated[str, typer.Option(metavar="FILE", help="File of filters, FILTER or ID<TAB>FILTER per line; - is stdin.")],
    publications: Annotated[str, typer.Option(metavar="FILE", help="File of publications, one per line; - is stdin.")],
    json: Annotated[bool, typer.Option("--json", help='Write {"matches": [[ids for line 1], …]} at the end.')] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count invalid lines instead of stopping.")] = False,
) -> None:
    """Print the matching filters of every publication.

    Writes LINE<TAB>ID ID … for every publication line, or one JSON document with --json. Files that end in .gz are
    decompressed.

    An id is any text without blanks that does not begin with '['. Without an id, the line number is the id (blank lines
    count); in JSON it is an integer, a given id a string. Ids are unique.

    Without --skip-bad the first bad line ends the run: exit status 2, after the answers to the lines before it (with --json:
    no answer at all). With it the JSON document also has "skipped", the numbers of the first bad lines of each file, and
    "skipped_count".
    """
    _check_paths({"--filters": filters, "--publications": publications})
    with ExitStack() as files:
        filter_file, publication_file = (files.enter_context(open_lines(path)) for path in (filters, publications))
        bad_filters, bad_publications = BadLines(skip_bad), BadLines(skip_bad)
        index = _loaded(filter_file, bad_filters)
        quiet = sys.stdout.isatty() and not json
        answers = _answers(index, publication_file, bad_publications, bar=not quiet)
        if json:
            _write_json(answers, {"filters": bad_filters, "publications": bad_publications} if skip_bad else {})
        else:
            _write_lines(answers)
    _report(bad_filters, bad_publications)


def sorted_ids(ids: Iterable[Id]) -> list[Id]:
    """``ids`` in order: line numbers first, then given ids, each kind in its natural order.

    >>> sorted_ids({"s2", 10, 9, "s1"})
    [9, 10, 's1', 's2']
    """
    try:
        return sorted(ids)  # type: ignore[type-var]
    except TypeError:
        return sorted(ids, key=lambda each: (isinstance(each, str), each))


def _check_paths(paths: dict[str, str]) -> None:
    for option, path in paths.items():
        if not path:
            raise InvalidInput(f"{option}: expected a file or {STDIN}, found ''")
    if all(path in _STDIN_PATHS for path in paths.values()):
        raise InvalidInput("--publications: expected a file, as --filters reads standard input already")


def _loaded(file: LineFile, bad: BadLines) -> Matcher:
    index = overweave.Index()
    with progress("reading filters", file.size_bytes, shown=not file.interactive) as done:
        index.add_many(_entries(file, bad, done_bytes=done))
    return index


def _entries(file: LineFile, bad: BadLines, done_bytes: Callable[[int], None]) -> Iterator[Entry]:
    ids = _Ids()

    def entry(text: str, number: int) -> Entry:
        name, tab, rest = ("", "", text) if text.lstrip().startswith("[") else text.partition("\t")
        if not tab:
            wanted = _encodable_filter(text)
            return ids.numbered(number), wanted, None
        if blank := _BLANK.search(name):
            raise ParseError(blank.start() + 1, "an id without blanks", excerpt(name))
        try:
            wanted = _encodable_filter(rest)
        except ParseError as error:
            raise ParseError(error.column + len(name) + 1, error.expected, error.found) from None
        return ids.given(name, number), wanted, None

    for batch in parsed(file, entry, bad):
        yield from (found for found in batch if found is not None)
        done_bytes(file.position_bytes)


class _Ids:
    """The ids in use, as text: in plain output the id 2 and line number 2 look the same."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        #: By line number, whether it is the id of the line: one byte per line instead of sixty for a set.
        self._numbered = bytearray()

    def given(self, name: str, number: int) -> str:
        line = self._line(name)
        if line is not None:
            raise _taken(excerpt(name), line)
        self._lines[name] = number
        return name

    def numbered(self, number: int) -> int:
        if self._lines and str(number) in self._lines:
            raise _taken(f"the line number {number}", self._lines[str(number)])
        self._numbered.extend(bytes(number - len(self._numbered)))
        self._numbered.append(True)
        return number

    def _line(self, name: str) -> int | None:
        """The earlier line with this id."""
        if _LINE_NUMBER.fullmatch(name) and self._numbered[int(name) : int(name) + 1] == b"\1":
            return int(name)
        return self._lines.get(name)


def _taken(found: str, line: int) -> ParseError:
    return ParseError(1, "an id that was not given before", f"{found}, which line {line} has")


def _encodable_filter(text: str) -> Filter:
    """The filter of ``text``; a filter too large for the wire is an error with its line here, not later in the index."""
    wanted = parse_filter(text)
    encode_filter(wanted)
    return wanted


def _encodable_publication(text: str, _: int) -> Publication:
    publication = parse_publication(text)
    encode_publication(publication)
    return publication


def _answers(index: Matcher, file: LineFile, bad: BadLines, bar: bool) -> Iterator[list[list[Id]]]:
    """The sorted ids for every line of ``file``, in batches; empty for blank and invalid lines."""
    rows, first = 1, True
    with progress("matching", file.size_bytes, shown=bar and not file.interactive) as done:
        for batch in parsed(file, _encodable_publication, bad):
            while batch:
                with waiting("preparing (first run: compiling takes half a minute)", shown=first):
                    answers = _matched(index, batch[:rows])
                yield answers
                first, batch = False, batch[rows:]
                rows = _next_rows(rows, sum(map(len, answers)))
            done(file.position_bytes)


def _next_rows(rows: int, ids: int) -> int:
    """The next batch size after ``rows`` publications with ``ids`` matches: larger, within the limit of ids."""
    return max(1, min(2 * rows, ROWS_MAX, IDS_MAX * rows // (ids + 1)))


def _matched(index: Matcher, batch: list[Publication | None]) -> list[list[Id]]:
    found = iter(index.match_batch([publication for publication in batch if publication is not None]))
    return [[] if publication is None else sorted_ids(next(found)) for publication in batch]


def _write_lines(answers: Iterator[list[list[Id]]]) -> None:
    number = 0
    for batch in answers:
        lines = [f"{number}\t{' '.join(map(str, ids))}\n" for number, ids in enumerate(batch, number + 1)]
        number += len(batch)
        put("".join(lines).encode())


def _write_json(answers: Iterator[list[list[Id]]], skipped: dict[str, BadLines]) -> None:
    with whole_document() as write:
        write(b'{"matches": [')
        separator = b""
        for batch in answers:
            write(separator + b",\n".join(map(msgspec.json.encode, batch)))
            separator = b",\n"
        write(b"]")
        if skipped:
            write(b', "skipped": ' + msgspec.json.encode({name: bad.numbers for name, bad in skipped.items()}))
            write(b', "skipped_count": ' + msgspec.json.encode({name: bad.count for name, bad in skipped.items()}))
        write(b"}\n")


def _report(filters: BadLines, publications: BadLines) -> None:
    count = filters.count + publications.count
    if not count:
        return
    kinds = f"{_counted(filters.count, 'filter')}, {_counted(publications.count, 'publication')}"
    say(f"skipped {_counted(count, 'bad line')} ({kinds})")
    for problem in filters.first + publications.first:
        say(problem)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
