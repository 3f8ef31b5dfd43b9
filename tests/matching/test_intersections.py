"""The intersection index against the relation asked of every filter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.errors import DuplicateId, UnknownId
from overweave.language.relations import intersects
from overweave.language.syntax import parse_filter
from overweave.matching.intersections import IntersectionIndex
from overweave.testing.strategies import any_filters, filters, number_filters, plain_filters, text_filters

LINKS = ("B2", "B3", None)


class Plain:
    """The same questions, answered by asking of every filter."""

    def __init__(self, holds_advertisements):
        self._holds_advertisements = holds_advertisements
        self._entries = {}

    def add(self, id, filter, link=None):
        self._entries[id] = (filter, link)

    def remove(self, id):
        del self._entries[id]

    def intersecting(self, filter):
        return [id for id, (own, _) in self._entries.items() if self._meet(own, filter)]

    def links(self, filter, exclude=None):
        return {link for own, link in self._entries.values() if self._meet(own, filter) and link != exclude}

    def reaches(self, link, filter):
        return any(self._meet(own, filter) for own, of in self._entries.values() if of == link)

    def _meet(self, own, filter):
        return intersects(own, filter) if self._holds_advertisements else intersects(filter, own)


class Pair:
    """An index and the plain answer to it."""

    def __init__(self, holds_advertisements):
        self.index, self.plain = IntersectionIndex(holds_advertisements), Plain(holds_advertisements)

    def add(self, id, filter, link=None):
        self.index.add(id, filter, link)
        self.plain.add(id, filter, link)

    def remove(self, id):
        self.index.remove(id)
        self.plain.remove(id)

    def check(self, filter):
        assert self.index.intersecting(filter) == self.plain.intersecting(filter), str(filter)
        for link in LINKS:
            assert self.index.reaches(link, filter) == self.plain.reaches(link, filter)
            assert self.index.links(filter, exclude=link) == self.plain.links(filter, exclude=link)


@settings(max_examples=250, deadline=None)
@given(
    st.booleans(),
    st.one_of(
        *(
            st.lists(some, min_size=1, max_size=12)
            for some in (filters(), plain_filters(), number_filters(), text_filters(), any_filters, filters(most=1))
        )
    ),
    st.lists(filters() | any_filters | number_filters() | text_filters(), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_index_answers_as_the_relation_does(holds_advertisements, stored, asked, dice):
    pair = Pair(holds_advertisements)
    for id, filter in enumerate(stored):
        pair.add(id, filter, dice.choice(LINKS))
    for filter in (*asked, *stored):
        pair.check(filter)
    for id in dice.sample(range(len(stored)), len(stored) // 2):
        pair.remove(id)
    for filter in (*asked, *stored):
        pair.check(filter)


def text_of(dice, wide):
    """A filter with a class, or a symbol, or ranges, or odd texts, or what is exact in no float."""
    parts = [f"[class,eq,'{dice.choice(('STOCK', 'BOX'))}']"] if dice.random() < 0.8 else []
    if dice.random() < 0.4:
        operator = dice.choice(("eq", "eq", "eq", "neq", "str-prefix", "str-contains", "isPresent", "str-lt"))
        parts.append(f"[symbol,{operator},'long-name-{dice.integers(600)}']")
    for attribute in "xy":
        if dice.random() < 0.7:
            low = dice.integers(1000)
            parts.append(f"[{attribute},>=,{low}],[{attribute},<,{low + dice.integers(1, 500 if wide else 40)}]")
    if dice.random() < 0.1:
        parts.append(f"[big,{dice.choice(('=', '<>', '<', '>'))},{2**53 + dice.integers(4)}]")
    if dice.random() < 0.05 or not parts:
        parts.append(f"[a{dice.integers(40)},{dice.choice(('=', '>', 'isPresent'))},{dice.integers(3)}]")
    return ",".join(parts)


@pytest.mark.parametrize("holds_advertisements", [True, False])
def test_index_stays_exact_while_thousands_come_and_go(holds_advertisements):
    dice = np.random.default_rng(5 + holds_advertisements)
    pair, there, count = Pair(holds_advertisements), [], 0
    for grows in (True, True, False, True, False, False):
        for _ in range(1500):
            if grows or not there:
                pair.add(f"s{count}", parse_filter(text_of(dice, wide=False)), LINKS[dice.integers(3)])
                there.append(f"s{count}")
                count += 1
            else:
                pair.remove(there.pop(dice.integers(len(there))))
        for _ in range(6):
            pair.check(parse_filter(text_of(dice, wide=True)))
            pair.check(parse_filter("[class,eq,'STOCK'],[symbol,isPresent,''],[x,>,0],[y,>,0],[big,isPresent,0]"))
    assert len(pair.index) == len(there)


@pytest.mark.parametrize("holds_advertisements", [True, False])
def test_blocks_of_boxes_hide_nothing(holds_advertisements):
    dice, pair = np.random.default_rng(9), Pair(holds_advertisements)
    corners = np.round(dice.uniform(0, 1000, (6000, 2)), 1).tolist()
    boxes = [f"[class,eq,'BOX'],[x,>=,{x}],[x,<=,{x + 9}],[y,>=,{y}],[y,<,{y + dice.integers(1, 30)}]" for x, y in corners]
    open_ended = [f"[class,eq,'BOX'],[x,>,{x}],[y,isPresent,0]" for x, _ in corners[:200]]
    for id, text in enumerate(boxes[:3000]):
        pair.add(id, parse_filter(text), LINKS[id % 3])
    asked = [
        parse_filter(text) for text in (*boxes[-8:], *open_ended[:2], "[class,eq,'BOX']", "[x,<,50],[y,>,900],[class,neq,'X']")
    ]
    for start in (3000, 3600, 5500):
        for filter in asked:
            pair.check(filter)
        assert pair.index._rows._blocks is not None
        for id in range(start - 2900, start - 2500):
            pair.remove(id)
        for id in range(start, start + 500):
            pair.add(id, parse_filter(dice.choice(open_ended) if id % 9 == 0 else boxes[id]), LINKS[id % 3])
    for filter in asked:
        pair.check(filter)


def test_what_is_unsatisfiable_intersects_nothing():
    index = IntersectionIndex(holds_advertisements=False)
    index.add("never", parse_filter("[x,<,1],[x,>,2]"), "B2")
    index.add("x", parse_filter("[x,<,1]"), "B2")
    assert index.intersecting(parse_filter("[x,isPresent,0]")) == ["x"]
    assert index.intersecting(parse_filter("[x,<,1],[x,>,2]")) == []
    index.remove("never")
    assert len(index) == 1


def test_ids_are_used_once_and_removed_once():
    index = IntersectionIndex(holds_advertisements=True)
    index.add("a", parse_filter("[x,<,1]"))
    with pytest.raises(DuplicateId):
        index.add("a", parse_filter("[x,<,2]"))
    index.remove("a")
    with pytest.raises(UnknownId):
        index.remove("a")
    index.add("a", parse_filter("[x,<,2]"))
    assert index.intersecting(parse_filter("[x,=,1]")) == ["a"]
