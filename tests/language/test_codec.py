"""The wire form: exact round trip, and nothing but `WireError` for whatever else comes in."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overweave.errors import InvalidInput, WireError
from overweave.language.codec import decode_filter, decode_publication, encode_filter, encode_publication, join_encoded
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.testing import strategies


@given(strategies.any_filters)
def test_filters_round_trip(filter):
    assert str(decode_filter(encode_filter(filter))) == str(filter)


@given(strategies.any_publications)
def test_publications_round_trip(publication):
    assert str(decode_publication(encode_publication(publication))) == str(publication)


@given(st.binary(max_size=80))
def test_random_bytes_raise_nothing_but_wire_errors(data):
    for decode in (decode_filter, decode_publication):
        try:
            decode(data)
        except WireError as error:
            assert 0 <= error.offset <= len(data)


@given(strategies.any_filters | strategies.any_publications, st.data())
def test_damaged_bytes_raise_nothing_but_wire_errors(content, data):
    encode, decode = (encode_filter, decode_filter) if isinstance(content, Filter) else (encode_publication, decode_publication)
    damaged = bytearray(encode(content))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(damaged))
    except WireError:
        pass


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "offset 0: expected a count of two bytes"),
        (b"\x01\x00", "offset 2: expected one more byte"),
        (b"\x01\x00\x07\x01x", "offset 5: expected a value of type 0, 1 or 2, got type 7"),
        (b"\x01\x00\x00\x01x\x01", "offset 5: expected an integer of eight bytes"),
        (b"\x01\x00\x02\x01x\x05\x00\x00\x00ab", "offset 9: expected text of 5 bytes"),
        (b"\x01\x00\x02\x01x\x01\x00\x00\x00\xff", "offset 9: expected text in UTF-8"),
        (b"\x01\x00\x02\x01x\x00\x00\x00\x00!", "offset 9: expected the end, got 1 more bytes"),
        (b"\x00\x00", "at least one attribute"),
        (b"\x02\x00" + 2 * b"\x02\x01x\x00\x00\x00\x00", "not given before, got 'x'"),
    ],
)
def test_broken_publications_say_where_and_what(data, expected):
    with pytest.raises(WireError, match=expected):
        decode_publication(data)


def test_the_type_of_numbers_and_nan_survive():
    back = decode_publication(encode_publication(Publication({"i": 2**53 + 1, "f": 30.0, "n": math.nan})))
    assert (type(back["i"]), back["i"], type(back["f"])) == (int, 2**53 + 1, float)
    assert math.isnan(float(back["n"]))


def test_more_than_a_count_can_say_is_refused():
    with pytest.raises(InvalidInput, match="at most 1,024 predicates, got 1,025"):
        encode_filter(Filter((Predicate("x", Operator.GT, 1),) * 1_025))
    with pytest.raises(InvalidInput, match="at most 65,535 attributes"):
        encode_publication(Publication({f"a{i}": i for i in range(65_536)}))
    with pytest.raises(InvalidInput, match="at most 1,048,576 bytes"):
        encode_publication(Publication({"x": "y" * 2_000_000}))


def test_joined_forms_keep_their_borders():
    data, offsets = join_encoded([b"ab", b"", b"c"])
    assert (data.tobytes(), offsets.tolist()) == (b"abc", [0, 2, 2, 3])
    assert join_encoded([])[1].tolist() == [0]
