"""Columns of tables as positions and bit vectors: what a list of Python values says, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from overweave.errors import InvalidInput
from overweave.pipeline.columns import positions, texts, words_of
from overweave.pipeline.locations import Location

PATH = Location.of("profiles")


def test_positions_are_those_of_a_dictionary():
    draw = np.random.default_rng(1)
    known = [f"s{i}" for i in draw.permutation(50)]
    given = [known[i] for i in draw.integers(50, size=300)]
    place = {id: i for i, id in enumerate(known)}
    column = pa.chunked_array([given[:100], given[100:]])
    for each in (column, column.dictionary_encode(), column.cast(pa.large_string())):
        assert positions(PATH, "subscription", each, texts(known)).tolist() == [place[id] for id in given]
    # A CSV of numbers has ids that look like numbers.
    assert positions(PATH, "publisher", pa.chunked_array([[2, 1]]), texts(["1", "2"])).tolist() == [1, 0]


def test_words_are_those_of_lists():
    rows = [[1, -1, 1 << 62], [0, -(1 << 63), 5]]
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 3)):
        found = words_of(PATH, pa.chunked_array([pa.array(rows[:1], kind), pa.array(rows[1:], kind)]), 64)
        assert found.tolist() == np.array(rows, np.int64).view(np.uint64).tolist()
    assert words_of(PATH, pa.chunked_array([], pa.list_(pa.int64())), 128).shape == (0, 2)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ([[1, 2], [3]], "expected vectors of one length, found lengths 1, 2"),
        ([[1, None]], "expected vectors of one length, found null"),
        (["x"], "expected lists of integers, found string"),
    ],
)
def test_what_is_no_bit_vector_is_refused(column, text):
    with pytest.raises(InvalidInput, match=rf"profiles: column 'words': {text}"):
        words_of(PATH, pa.chunked_array([pa.array(column)]), 64)


def test_who_is_not_known_is_named():
    with pytest.raises(InvalidInput, match=r"profiles: publisher 'p9': expected one that the profile knows"):
        positions(PATH, "publisher", pa.chunked_array([["p1"], ["p9"]]), texts(["p1"]))
