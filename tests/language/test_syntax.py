"""The text syntax: printing and reading are inverse, and broken text is told exactly where it breaks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.errors import ParseError
from overweave.language.syntax import parse_filter, parse_publication
from overweave.testing import strategies

quick = settings(max_examples=150, deadline=None)
SYNTAX = "[],'\\ =<>eq0.5e-+infa\n\0\ud800é"


@given(strategies.any_filters)
@quick
def test_filters_round_trip(one):
    again = parse_filter(str(one))
    assert again == one
    assert repr(again) == repr(one), "types and signs survive, not only values"
    assert "\n" not in str(one)


@given(strategies.any_publications)
@quick
def test_publications_round_trip(one):
    again = parse_publication(str(one))
    assert repr(again) == repr(one)
    assert str(again) == str(one)


@given(st.text() | st.text(alphabet=SYNTAX))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text):
    read_or_refuse(text)


@given(st.data(), (strategies.any_filters | strategies.any_publications).map(str))
@settings(max_examples=300, deadline=None)
def test_damaged_text_is_read_or_refused(data, text):
    at = data.draw(st.integers(0, len(text)))
    gone = data.draw(st.integers(0, 3))
    read_or_refuse(text[:at] + data.draw(st.text(alphabet=SYNTAX, max_size=2)) + text[at + gone :])


def read_or_refuse(text: str) -> None:
    for parse in (parse_filter, parse_publication):
        column = None
        try:
            found = parse(text)
        except ParseError as error:
            column = error.column
        if column is None:
            assert str(parse(str(found))) == str(found)
        else:
            assert 1 <= column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" [ class , eq , 'STOCK' ] ,\t[volume,>,1e3]\n", "[class,eq,'STOCK'],[volume,>,1000.0]"),
        ("[class,=,'STOCK'],[x,neq,+5]", "[class,eq,'STOCK'],[x,<>,5]"),
        ("[x,<>,'it\\'s'],[x,>,-inf]", "[x,neq,'it\\'s'],[x,>,-inf]"),
        ("[x,isPresent,'any'],[y,isPresent,0]", "[x,isPresent,'any'],[y,isPresent,0]"),
        ("[=,=,=]", None),
    ],
)
def test_canonical_form(text, canonical):
    if canonical is None:
        with pytest.raises(ParseError):
            parse_filter(text)
    else:
        assert str(parse_filter(text)) == canonical


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "'['"),
        ("   ", 4, "'['"),
        ("class", 1, "'['"),
        ("[class,eq,'STOCK'", 18, "']'"),
        ("[class,eq,'STOCK'],", 20, "'['"),
        ("[class,eq,'STOCK'] [x,=,1]", 20, "',' or the end"),
        ("[class,eq,'STOCK']]", 19, "',' or the end"),
        ("[,eq,'STOCK']", 2, "an attribute name"),
        ("[class eq,'STOCK']", 8, "','"),
        ("[class,,'STOCK']", 8, "an operator"),
        ("[class,eq]", 10, "','"),
        ("[class,eq,]", 11, "a number or a text"),
        ("[class,eq,STOCK]", 11, "a number or a text"),
        ("[class,eq,'STOCK]", 11, "a closing quote"),
        ("[class,is,'STOCK']", 8, "an operator for text"),
        ("[x,str-prefix,5]", 4, "an operator for numbers"),
        ("[x,<,'a']", 4, "an operator for text"),
        ("[x,=,9223372036854775808]", 6, "an integer of 64 bits"),
        ("[x,=,1e999]", 6, "a number in the range"),
        ("[x,=,nan]", 2, "a predicate"),
        ("[x,=,1],[y,eq,'a\\q']", 17, r"\\, \', \n or \r"),
        ("[x,=,1_000]", 6, "a number or a text"),
        ("[x,=,٣]", 6, "a number or a text"),
    ],
)
def test_where_a_broken_filter_breaks(text, column, expected):
    with pytest.raises(ParseError) as caught:
        parse_filter(text)
    assert (caught.value.column, caught.value.expected[: len(expected)]) == (column, expected)


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "'['"),
        ("[class]", 7, "','"),
        ("[class,'STOCK'],[class,'SPORTS']", 18, "an attribute that was not given before"),
        ("[class,'STOCK','x']", 15, "']'"),
        ("[volume,>,5]", 10, "']'"),
        ("[volume,1e400]", 9, "a number in the range"),
        ("[volume,-9223372036854775809]", 9, "an integer of 64 bits"),
        ("[x,'\ud800']", 1, "a publication"),
    ],
)
def test_where_a_broken_publication_breaks(text, column, expected):
    with pytest.raises(ParseError) as caught:
        parse_publication(text)
    assert (caught.value.column, caught.value.expected[: len(expected)]) == (column, expected)
