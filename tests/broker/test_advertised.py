"""Which publications no advertisement of their client covers, against the definition, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.batches.contents import attribute_counts, not_admitted
from overweave.batches.objects import Rows
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker import advertised as module
from overweave.broker.advertised import Advertised
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.language.syntax import parse_filter
from overweave.testing import strategies


def batches(publications):
    """The same as objects and as bytes."""
    publishes = tuple(Publish(publication, Header("p", number)) for number, publication in enumerate(publications))
    return Rows(publishes), RawRows(encode_rows(publishes), len(publishes))


def listed(rows):
    return [] if rows is None else rows.tolist()


plain = st.sampled_from(
    [
        "[class,eq,'a'],[x,isPresent,0]", "[class,eq,''],[x,isPresent,'']", "[x,isPresent,0]", "[y,isPresent,''],[x,isPresent,0]",
        "[class,isPresent,0]", "[class,eq,'ab'],[y,isPresent,0],[x,isPresent,0]",
    ]
).map(parse_filter)  # fmt: skip
many_publications = st.lists(strategies.publications(), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(st.lists(strategies.filters() | plain, max_size=12), many_publications)
def test_the_kernel_says_what_plain_filters_admit(filters, publications):
    chosen = PlainFilters(filters)
    known = [each for each in filters if PlainFilters([each]).count][: chosen.count]
    expected = [row for row, each in enumerate(publications) if not any(admits(filter, each) for filter in known)]
    assert listed(not_admitted(batches(publications)[1], chosen)) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(strategies.filters() | plain, max_size=12), st.lists(many_publications, min_size=1, max_size=3))
def test_rows_are_covered_as_defined(filters, several):
    covered = Advertised()
    covered.add("other", "z", parse_filter("[class,isPresent,''],[x,isPresent,0],[y,isPresent,0]"))
    for number, filter in enumerate(filters):
        covered.add("p", str(number), filter)
    for publications in several:  # the later ones find what was learned from the others
        expected = [row for row, each in enumerate(publications) if not any(admits(filter, each) for filter in filters)]
        for batch in batches(publications):
            assert listed(covered.uncovered("p", batch)) == expected


def test_advertisements_come_and_go():
    batch = batches([Publication({"x": number}) for number in range(20)])[1]
    covered = Advertised()
    assert listed(covered.uncovered("p", batch)) == list(range(20))
    covered.add("p", "a", parse_filter("[x,>=,5]"))
    covered.add("p", "b", parse_filter("[x,isPresent,0]"))
    assert covered.uncovered("p", batch) is None
    covered.remove("p", "b")
    assert listed(covered.uncovered("p", batch)) == list(range(5))
    covered.add("p", "a", parse_filter("[x,>=,3]"))
    assert listed(covered.uncovered("p", batch)) == list(range(3))
    covered.forget("p")
    assert listed(covered.uncovered("p", batch)) == list(range(20))


@pytest.mark.parametrize("few", [0, 8])
def test_parts_of_advertisements_are_learned_up_to_a_limit(monkeypatch, few):
    monkeypatch.setattr(module, "_PARTS_MAX", 3)
    monkeypatch.setattr(module, "_FEW", few)
    covered = Advertised()
    covered.add("p", "a", parse_filter(",".join(f"[x{number},>=,0]" for number in range(12))))
    shapes = [Publication({f"x{number}": 1, f"x{(number + 1) % 12}": value}) for number in range(12) for value in (0, -1)]
    for _ in range(3):
        assert listed(covered.uncovered("p", batches(shapes)[1])) == list(range(1, 24, 2))


def test_sizes_and_numbers_are_the_same_of_objects_and_bytes():
    publications = [Publication({f"x{i}": i for i in range(size)}) for size in (1, 300, 7)]
    for batch in batches(publications):
        assert attribute_counts(batch).tolist() == [1, 300, 7]
        assert batch.take(np.array([0, 2])).sequences().tolist() == [0, 2]
