"""The workload of ``overweave demo``, and its oracle: expected deliveries by matching each filter with each publication."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from overweave.cli.demo_messages import Begun, Span
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.testing.stock import SYMBOLS, quotes, subscriptions

#: Quotes of each symbol; then they repeat, with other numbers, so that the traffic of any two spans is alike.
DAYS = 40
#: The attribute with the number of a publication, from 1 on by symbol. No filter mentions it.
NUMBER = "day"


class Workload:
    """Quotes of all symbols without end, and the filters of traders."""

    def __init__(self, filters: int, seed: int) -> None:
        published = quotes(seed, DAYS)
        self._quotes = {symbol: published[place :: len(SYMBOLS)] for place, symbol in enumerate(SYMBOLS)}
        # A trader has successive filters: those of one symbol, as people have their interests.
        wanted = sorted(subscriptions(seed + 1, filters, published), key=lambda each: str(each.predicates[1:]))
        #: The filters by number, from 1 on.
        self.filters: dict[int, Filter] = dict(enumerate(wanted, 1))
        #: The numbers of matching filters by symbol and place of the quote.
        self._matching = {
            symbol: [{number for number, each in self.filters.items() if matches(each, quote)} for quote in some]
            for symbol, some in self._quotes.items()
        }

    def publication(self, symbol: str, number: int) -> Publication:
        """A quote with its number."""
        return Publication({**self._quotes[symbol][(number - 1) % DAYS], NUMBER: number})

    def matching(self, symbol: str, number: int) -> set[int]:
        """The numbers of the matching filters."""
        return self._matching[symbol][(number - 1) % DAYS]

    def deliveries_mean(self) -> float:
        """The deliveries of a publication on average."""
        counts = [len(numbers) for some in self._matching.values() for numbers in some]
        return sum(counts) / len(counts)


class _Begin(NamedTuple):
    """The begin of a span, with the publications of each symbol and the expected deliveries before."""

    name: str
    at_s: float
    published: Counter[str]
    expected: int


class Oracle:
    """Counts publications and deliveries, and compares them with what was expected, by spans of time."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._published: Counter[str] = Counter()
        self._begun: list[_Begin] = []
        self._delivered: Counter[tuple[int, str, int]] = Counter()
        self.expected = self.deliveries = 0

    @property
    def publications(self) -> int:
        """The number of publications."""
        return self._published.total()

    def begin(self, name: str, at_s: float) -> Begun:
        """Begin a span; the span before, without what takes long to count: publishers wait."""
        now = _Begin(name, at_s, self._published.copy(), self.expected)
        last = self._begun[-1] if self._begun else now
        self._begun.append(now)
        return Begun(last.at_s, at_s, (now.published - last.published).total(), now.expected - last.expected)

    def next_number(self, symbol: str) -> int:
        """Count a publication; its number."""
        self._published[symbol] += 1
        number = self._published[symbol]
        self.expected += len(self._workload.matching(symbol, number))
        return number

    def deliver(self, filter: int, symbol: str, number: int) -> None:
        """Count a delivery."""
        self._delivered[filter, symbol, number] += 1
        self.deliveries += 1

    def spans(self, end_s: float) -> tuple[Span, ...]:
        """All spans; deliveries of publications that do not exist are unexpected in the last one."""
        ends = [each.at_s for each in self._begun[1:]] + [end_s]
        return tuple(self._span(place, end) for place, end in enumerate(ends))

    def _span(self, place: int, end_s: float) -> Span:
        name, begin_s, first, _ = self._begun[place]
        is_last = place == len(self._begun) - 1
        last = self._published if is_last else self._begun[place + 1].published
        expected = delivered = lost = duplicated = 0
        for symbol in self._published:
            for number in range(first[symbol] + 1, last[symbol] + 1):
                for filter in self._workload.matching(symbol, number):
                    found = self._delivered[filter, symbol, number]
                    expected, delivered = expected + 1, delivered + found
                    lost, duplicated = lost + (not found), duplicated + max(found - 1, 0)
        unexpected = sum(
            count
            for (filter, symbol, number), count in self._delivered.items()
            if first[symbol] < number and (is_last or number <= last[symbol]) and not self._is_expected(filter, symbol, number)
        )
        return Span(name, begin_s, end_s, (last - first).total(), expected, delivered + unexpected, lost, duplicated, unexpected)

    def _is_expected(self, filter: int, symbol: str, number: int) -> bool:
        return number <= self._published[symbol] and filter in self._workload.matching(symbol, number)


def traders_of(filters: Sequence[int], each: int) -> list[list[int]]:
    """The numbers of filters by trader.

    >>> traders_of([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4], [5]]
    """
    return [list(filters[first : first + each]) for first in range(0, len(filters), each)]
