"""``overweave demo``: see it work, on data that it makes itself."""

import collections
import time
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
import typer

import overweave
from overweave.cli.answers import put
from overweave.cli.match import sorted_ids
from overweave.cli.terminal import waiting
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.matching.base import Id
from overweave.testing.stock import quotes, subscriptions

EXAMPLE = "overweave demo"

#: Days of quotes for 20 symbols: five thousand publications.
DAYS = 250
_SHOWN_SYMBOLS = 5
_SHOWN_FILTERS = 4


class Summary(msgspec.Struct, frozen=True):
    """What the demonstration found."""

    filters: int
    publications: int
    matches: int
    publications_per_s: float
    #: Symbol, how many filters name it, how many matches its quotes had.
    most_wanted: list[tuple[str, int, int]]
    #: One publication with some matches, in text, and the filters it matched by id.
    example: str
    example_matches: dict[int, str]


def demo(
    filters: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many subscriptions to make.")] = 400,
    seed: Annotated[int, typer.Option(help="The same seed makes the same workload.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Show content-based matching on made-up stock quotes: who wants what, and how fast it is found."""
    published = quotes(seed, DAYS)
    wanted = subscriptions(seed + 1, filters, published)
    with waiting("matching (the first time ever this compiles for half a minute)"):
        found, duration_s = _measured(wanted, published)
    summary = _summary(wanted, published, found, duration_s)
    if json:
        put(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    else:
        _print(summary)


def _measured(wanted: Sequence[Filter], published: Sequence[Publication]) -> tuple[list[set[Id]], float]:
    index = overweave.Index()
    index.add_many((number, each, None) for number, each in enumerate(wanted, 1))
    index.match_batch(published[:1])  # compiles or loads the kernels: not what we want to time
    start_s = time.perf_counter()
    found = index.match_batch(published)
    return found, time.perf_counter() - start_s


def _summary(wanted: Sequence[Filter], published: Sequence[Publication], found: Sequence[set[Id]], duration_s: float) -> Summary:
    named = collections.Counter(
        str(predicate.value) for each in wanted for predicate in each.predicates if predicate.attribute == "symbol"
    )
    hits: collections.Counter[str] = collections.Counter()
    for publication, ids in zip(published, found, strict=True):
        hits[str(publication["symbol"])] += len(ids)
    matched = [[int(str(number)) for number in sorted_ids(ids)] for ids in found]
    example = max(range(len(found)), key=lambda at: _variety(wanted[number - 1] for number in matched[at]))
    return Summary(
        filters=len(wanted),
        publications=len(published),
        matches=sum(map(len, found)),
        publications_per_s=len(published) / duration_s,
        most_wanted=[(symbol, count, hits[symbol]) for symbol, count in named.most_common(_SHOWN_SYMBOLS)],
        example=str(published[example]),
        example_matches={number: str(wanted[number - 1]) for number in matched[example]},
    )


def _variety(filters: Iterable[Filter]) -> tuple[int, int]:
    """How well a publication shows that content decides: by the kinds of filters it matched, then by how few there are."""
    kinds = [tuple(predicate.attribute for predicate in each.predicates) for each in filters]
    return len(set(kinds)), -len(kinds)


def _print(summary: Summary) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(
        Text(
            f"{summary.filters:,} subscribers each said with a filter which stock quotes they want.\n"
            f"{summary.publications:,} quotes were published; every one went to those whose filter it satisfies:\n"
            f"{summary.matches:,} matches, found at {summary.publications_per_s:,.0f} publications per second.\n"
        )
    )
    table = Table("symbol", title="The most wanted symbols", title_justify="left")
    table.add_column("filters that name it", justify="right")
    table.add_column("matches of its quotes", justify="right")
    for symbol, filters, matches in summary.most_wanted:
        table.add_row(symbol, f"{filters:,}", f"{matches:,}")
    console.print(table)
    console.print(Text(f"\nFor example, this publication\n  {summary.example}\nmatched the filters"), soft_wrap=True)
    # The most particular filters first: they explain more than those that want everything.
    shown = sorted(summary.example_matches.items(), key=lambda item: -item[1].count("["))
    for number, text in shown[:_SHOWN_FILTERS]:
        console.print(Text(f"  {number:>4}  {text}"), soft_wrap=True)
    if len(shown) > _SHOWN_FILTERS:
        console.print(Text(f"  … and {len(shown) - _SHOWN_FILTERS:,} more"))
    console.print(Text("\nTry it on your own files: overweave match --help"))
