"""The conformance check of matchers: whatever happens to one, it answers as the naive one does.

>>> from overweave.matching.naive import NaiveMatcher
>>> machine = matcher_machine(NaiveMatcher)  # a hypothesis state machine; its attribute TestCase is what a test runner wants
"""

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.matching.base import Entry, Matcher
from overweave.matching.naive import NaiveMatcher
from overweave.testing import strategies

LINKS = (None, "B1", "B2", "B3")


def matcher_machine(make: Callable[[], Matcher]) -> type[RuleBasedStateMachine]:
    """A state machine that adds, removes and matches at will, with a matcher from ``make`` beside the naive one."""

    class MatcherMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.matcher, self.naive = make(), NaiveMatcher()
            self.ids: list[int] = []
            self.added = 0

        @rule(filter=strategies.filters(), link=st.sampled_from(LINKS))
        def add(self, filter: Filter, link: str | None) -> None:
            for matcher in (self.matcher, self.naive):
                matcher.add(self.added, filter, link)
            self._added(1)

        @rule(count=st.integers(1, 700), seed=st.integers(0, 2**32 - 1))
        def add_many(self, count: int, seed: int) -> None:
            entries = many_entries(self.added, count, seed)
            for matcher in (self.matcher, self.naive):
                matcher.add_many(iter(entries))
            self._added(count)

        @precondition(lambda self: self.ids)
        @rule(data=st.data())
        def remove(self, data: st.DataObject) -> None:
            self._remove(data.draw(st.integers(0, len(self.ids) - 1)))

        @precondition(lambda self: self.ids)
        @rule(share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
        def remove_many(self, share: float, seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(int(share * len(self.ids))):
                self._remove(int(random.integers(len(self.ids))))

        @rule(several=st.lists(strategies.publications(), max_size=5), seed=st.integers(0, 2**32 - 1))
        def match(self, several: list[Publication], seed: int) -> None:
            several = several + many_publications(8, seed)
            assert len(self.matcher) == len(self.naive)
            assert self.matcher.match_batch(several) == self.naive.match_batch(several)
            assert self.matcher.next_hops_batch(several) == self.naive.next_hops_batch(several)

        def _added(self, count: int) -> None:
            self.ids += range(self.added, self.added + count)
            self.added += count

        def _remove(self, position: int) -> None:
            id = self.ids.pop(position)
            for matcher in (self.matcher, self.naive):
                matcher.remove(id)

    return MatcherMachine


def many_entries(first_id: int, count: int, seed: int) -> list[Entry]:
    """Entries by the hundred, quickly: ranges and equalities over few attributes, some with bounds that many others have."""
    random = np.random.default_rng(seed)
    attributes = ["class", "x", "y", *(f"rare{i}" for i in range(20))] if seed % 2 else ["class", "x", "y"]
    return [(first_id + i, _random_filter(random, attributes), LINKS[seed % 4 if seed % 3 else i % 4]) for i in range(count)]


def many_publications(count: int, seed: int) -> list[Publication]:
    """Publications that the filters of `many_entries` are about."""
    random = np.random.default_rng(seed)
    return [
        Publication(
            {name: _random_value(random) for name in ("class", "x", "y", "rare1", "rare2") if random.random() < 0.8} or {"x": 1}
        )
        for _ in range(count)
    ]


def _random_filter(random: np.random.Generator, attributes: list[str]) -> Filter:
    return Filter(tuple(_random_predicate(random, str(random.choice(attributes))) for _ in range(random.integers(1, 4))))


def _random_predicate(random: np.random.Generator, attribute: str) -> Predicate:
    value = _random_value(random)
    if isinstance(value, str):
        return Predicate(attribute, Operator(random.choice([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])), value)
    if math.isnan(value):
        value = 0
    return Predicate(attribute, Operator(random.choice([1, 2, 3, 4, 4, 4, 5, 6, 6, 6, 10])), value)


def _random_value(random: np.random.Generator) -> str | int | float:
    kind = random.random()
    if kind < 0.3:
        return str(random.choice(["", "a", "ab", "abc", "ba", "é", "z" * 20]))
    if kind < 0.5:
        return strategies.NUMBERS[random.integers(len(strategies.NUMBERS))]
    if kind < 0.52:
        return math.nan
    return float(random.uniform(0, 10)) if kind < 0.9 else int(random.integers(0, 10))
