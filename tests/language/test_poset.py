"""The poset against a naive rebuild from the list of what was inserted."""

import itertools
import subprocess
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from overweave.errors import UnknownId
from overweave.language.poset import Poset
from overweave.language.relations import covers, signature
from overweave.language.syntax import parse_filter
from overweave.testing import strategies

STOCK = parse_filter("[class,=,'STOCK']")
YAHOO = parse_filter("[class,=,'STOCK'],[symbol,=,'YHOO']")
VOLUME = parse_filter("[class,=,'STOCK'],[volume,>,1000]")
SPORTS = parse_filter("[class,=,'SPORTS']")
RACING = parse_filter("[class,=,'SPORTS'],[type,=,'RACING']")
NEVER = parse_filter("[x,>,1],[x,<,1]")


def poset_of(*entries):
    poset = Poset()
    for number, entry in enumerate(entries):
        poset.insert(entry, f"sub{number}")
        poset.validate()
    return poset


@pytest.mark.parametrize("order", [*itertools.permutations((STOCK, YAHOO, VOLUME, SPORTS, RACING))][::7])
def test_fig_3_2_in_any_order(order):
    poset = poset_of(*order)
    assert poset.css == {STOCK, SPORTS}
    assert set(poset.children(STOCK)) == {YAHOO, VOLUME}
    assert poset.children(SPORTS) == (RACING,)
    assert poset.parents(RACING) == (SPORTS,)
    assert poset.parents(STOCK) == ()


def test_deleting_the_widest_moves_the_covered_into_the_css():
    poset = poset_of(STOCK, YAHOO, VOLUME)
    poset.delete(STOCK, "sub0")
    poset.validate()
    assert poset.css == {YAHOO, VOLUME}
    assert STOCK not in poset


def test_equal_filters_share_a_node():
    same = parse_filter("[volume,>,1000.0],[volume,>,500],[class,eq,'STOCK']")
    poset = poset_of(VOLUME, same)
    assert len(poset) == 1
    assert poset.css == {VOLUME}
    assert poset.subscribers(same) == poset.subscribers(VOLUME) == ("sub0", "sub1")
    poset.delete(VOLUME, "sub0")
    poset.validate()
    assert poset.css == {same}, "what stands for a node is always something that somebody wants"
    assert VOLUME not in poset


def test_the_css_is_a_live_view():
    poset = Poset()
    css = poset.css
    assert not css
    poset.insert(SPORTS, "sub1")
    assert css == {SPORTS}


def test_ancestors_and_descendants():
    both = parse_filter("[class,=,'STOCK'],[symbol,=,'YHOO'],[volume,>,5000]")
    poset = poset_of(both, STOCK, YAHOO, VOLUME)
    assert set(poset.parents(both)) == {YAHOO, VOLUME}
    assert poset.ancestors(both)[-1] == STOCK
    assert set(poset.ancestors(both)) == {YAHOO, VOLUME, STOCK}
    assert set(poset.descendants(STOCK)) == {YAHOO, VOLUME, both}
    poset.delete(YAHOO, "sub2")
    poset.validate()
    assert poset.parents(both) == (VOLUME,)


def test_what_can_never_match_is_below_everything():
    poset = poset_of(STOCK, YAHOO, NEVER, SPORTS, VOLUME, parse_filter("[y,=,1],[y,=,2]"))
    assert set(poset.parents(NEVER)) == {YAHOO, VOLUME, SPORTS}
    assert poset.subscribers(NEVER) == ("sub2", "sub5")


def test_unknown_filters_and_subscribers():
    poset = poset_of(STOCK)
    with pytest.raises(UnknownId):
        poset.delete(SPORTS, "sub0")
    with pytest.raises(UnknownId):
        poset.delete(STOCK, "somebody")
    with pytest.raises(UnknownId):
        poset.parents(YAHOO)
    poset.insert(STOCK, "sub0")
    poset.delete(STOCK, "sub0")
    assert len(poset) == 0
    assert not poset.css


def test_few_comparisons_among_unrelated_filters():
    calls = 0

    def counting(wide, narrow):
        nonlocal calls
        calls += 1
        return covers(wide, narrow)

    poset = Poset(counting, signature)
    entries = [
        parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{symbol}'],[volume,>,{bound}]")
        for symbol in range(100)
        for bound in range(3)
    ]
    for entry in entries:
        poset.insert(entry, 1)
    assert len(poset) == 300
    assert len(poset.css) == 100
    assert calls < 10 * len(entries), "linear, where comparing with the whole CSS would be quadratic"


def test_the_order_of_answers_does_not_depend_on_the_hash_seed():
    script = (
        "from overweave.language.poset import Poset\nfrom overweave.language.syntax import parse_filter as f\n"
        "p = Poset()\n"
        "for i in range(40): p.insert(f(f\"[class,eq,'C{i % 3}'],[s,str-prefix,'{i % 7}'],[v,>,{i % 5}]\"), i)\n"
        "p.insert(f(\"[class,eq,'C1']\"), 99)\n"
        "print([(str(e), *map(str, p.parents(e)), *map(str, p.children(e))) for e in p], *p.css)"
    )
    answers = {
        subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


class Rebuilt(RuleBasedStateMachine):
    """Random insertions and deletions; after each, everything is compared with a rebuild from the pairs."""

    entries = strategies.filters(most=3) | strategies.number_filters(2) | strategies.text_filters(2)
    relation = staticmethod(covers)

    def make(self):
        return Poset()

    def __init__(self):
        super().__init__()
        self.poset = self.make()
        self.pairs = {}

    @rule(data=st.data(), subscriber=st.integers(1, 2))
    def insert(self, data, subscriber):
        entry = data.draw(self.entries)
        self.poset.insert(entry, subscriber)
        self.pairs[entry, subscriber] = None

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def delete(self, data):
        entry, subscriber = data.draw(st.sampled_from(list(self.pairs)))
        self.poset.delete(entry, subscriber)
        del self.pairs[entry, subscriber]

    @invariant()
    def is_what_a_rebuild_gives(self):
        self.poset.validate()
        entries = list(dict.fromkeys(entry for entry, _ in self.pairs))
        classes = {one: frozenset(b for b in entries if self.relation(one, b) and self.relation(b, one)) for one in entries}
        assert {classes[one] for one in self.poset} == set(classes.values())
        assert len(self.poset) == len(set(classes.values()))
        for one in entries:
            assert set(self.poset.subscribers(one)) == {who for other, who in self.pairs if other in classes[one]}
            above = {b for b in entries if self.relation(b, one)} - classes[one]
            below = {b for b in entries if self.relation(one, b)} - classes[one]
            assert {b for a in self.poset.ancestors(one) for b in classes[a]} == above
            assert {b for a in self.poset.descendants(one) for b in classes[a]} == below
            assert any(one in classes[a] for a in self.poset.css) == (not above)


class RebuiltSets(Rebuilt):
    """Another relation, without signature: the profiles of planning are sets that include each other."""

    entries = st.frozensets(st.integers(0, 4))
    relation = staticmethod(frozenset.issuperset)

    def make(self):
        return Poset(frozenset.issuperset)


few = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestRebuilt = Rebuilt.TestCase
TestRebuilt.settings = few
TestRebuiltSets = RebuiltSets.TestCase
TestRebuiltSets.settings = few
