"""``overweave match``: publications against filters in bulk, without a network.

Both files stream. The filters end up in the index, the publications pass through in batches, and what is answered is
gone: the input is never held twice, and 100 MB of publications need no more memory than 100 kB.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Annotated

import msgspec
import typer

import overweave
from overweave.cli.answers import put, whole_document
from overweave.cli.lines import STDIN, BadLines, LineFile, open_lines, parsed
from overweave.cli.terminal import progress, waiting
from overweave.errors import InvalidInput, ParseError
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.base import Entry, Id, Matcher

EXAMPLE = "overweave match --filters examples/filters.txt --publications examples/publications.txt --json"

#: At most so many publications are matched at once, and fewer when they match so many filters that the ids would fill the memory.
ROWS_MAX = 1024
IDS_MAX = 1_000_000


def match(
    filters: Annotated[str, typer.Option(metavar="FILE", help="One filter a line: FILTER or ID<TAB>FILTER. - is stdin.")],
    publications: Annotated[str, typer.Option(metavar="FILE", help="One publication a line. - is stdin.")],
    json: Annotated[bool, typer.Option("--json", help='Write {"matches": [[ids for line 1], …]} when all is done.')] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count bad lines instead of stopping.")] = False,
) -> None:
    """Say for every publication which filters it matches.

    Writes LINE<TAB>ID ID … for every publication line, or one JSON document with --json. An id that is not given
    is the filter's line number. Files that end in .gz are decompressed.
    """
    if filters == publications == STDIN:
        raise InvalidInput("--publications: expected a file, as --filters reads standard input already")
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


def _loaded(file: LineFile, bad: BadLines) -> Matcher:
    index = overweave.Index()
    with progress("reading filters", file.size_bytes, shown=not file.interactive) as done:
        index.add_many(_entries(file, bad, done_bytes=done))
    return index


def _entries(file: LineFile, bad: BadLines, done_bytes: Callable[[int], None]) -> Iterator[Entry]:
    lines_of_ids: dict[str, int] = {}

    def entry(text: str, number: int) -> Entry:
        name, tab, rest = ("", "", text) if text.lstrip().startswith("[") else text.partition("\t")
        if not tab:
            return number, parse_filter(text), None
        try:
            wanted = parse_filter(rest)
        except ParseError as error:
            raise ParseError(error.column + len(name) + 1, error.expected, error.found) from None
        if lines_of_ids.setdefault(name, number) != number:
            raise ParseError(1, "an id that was not given before", f"{name!r}, which line {lines_of_ids[name]} has")
        return name, wanted, None

    for batch in parsed(file, entry, bad):
        yield from (found for found in batch if found is not None)
        done_bytes(file.position_bytes)


def _answers(index: Matcher, file: LineFile, bad: BadLines, bar: bool) -> Iterator[list[list[Id]]]:
    """The sorted ids for every line of ``file``, in batches; a blank or bad line has none."""
    rows, first = 1, True
    with progress("matching", file.size_bytes, shown=bar and not file.interactive) as done:
        for batch in parsed(file, lambda text, _: parse_publication(text), bad):
            while batch:
                with waiting("preparing to match (the first time ever this compiles for some 20 s)", shown=first):
                    answers = _matched(index, batch[:rows])
                yield answers
                first, batch = False, batch[rows:]
                rows = _next_rows(rows, sum(map(len, answers)))
            done(file.position_bytes)


def _next_rows(rows: int, ids: int) -> int:
    """How many publications to match at once after ``rows`` of them had ``ids`` matches: more, but never too many ids."""
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
        write(b"}\n")


def _report(filters: BadLines, publications: BadLines) -> None:
    count = len(filters.numbers) + len(publications.numbers)
    if not count:
        return
    print(
        f"overweave: skipped {count} bad lines ({len(filters.numbers)} filters, {len(publications.numbers)} publications)",
        *(f"overweave: {problem}" for problem in (filters.first + publications.first)[: BadLines.SHOWN]),
        sep="\n",
        file=sys.stderr,
    )
