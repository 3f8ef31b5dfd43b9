"""The text syntax: printing and reading are inverse, and broken text is told exactly where it breaks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.errors import LanguageError, ParseError
from overweave.language.predicates import Predicate
from overweave.language.publications import Publication
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
        ("[volume,=,nan]", 11, "a number that can be compared"),
        (f"[x,=,1],[{'n' * 256},=,1]", 10, "an attribute name of at most 255 bytes"),
        ("[x,eq,'\ud800']", 7, "text that can be encoded"),
        ("[volume,5]", 9, "an operator"),
        ("[class,eq,STOCK", 11, "a number or a text"),
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
        ("[volume,>,5]", 9, "a number or a text"),
        (f"[x,1],[{'n' * 256},1]", 8, "an attribute name of at most 255 bytes"),
        ("[volume,1e400]", 9, "a number in the range"),
        ("[volume,-9223372036854775809]", 9, "an integer of 64 bits"),
        ("[x,'\ud800']", 4, "text that can be encoded"),
    ],
)
def test_where_a_broken_publication_breaks(text, column, expected):
    with pytest.raises(ParseError) as caught:
        parse_publication(text)
    assert (caught.value.column, caught.value.expected[: len(expected)]) == (column, expected)


@pytest.mark.parametrize(
    "text",
    [
        "[x,{},1]",
        "[x,=,{}]",
        "[x,=,9{}]",
        "[x,=,'\ud800{}']",
        "[{},=,1]",
        "{}",
        "[x,=,1]{}",
    ],
)
def test_errors_show_only_the_beginning_of_what_they_found(text):
    long = text.replace("{}", "9" * 1000 if "9" in text else "x" * 1000)
    for parse in (parse_filter, parse_publication):
        with pytest.raises(ParseError) as caught:
            parse(long)
        assert len(caught.value.found) <= 40


@pytest.mark.parametrize("parse", [parse_filter, parse_publication])
@pytest.mark.parametrize(("wrong", "name"), [(None, "NoneType"), (b"[x,1]", "bytes"), ({"x": 1}, "dict")])
def test_only_text_is_read(parse, wrong, name):
    with pytest.raises(LanguageError, match=f"^expected text, got {name}$"):
        parse(wrong)


def test_what_is_made_without_text_is_checked_too():
    with pytest.raises(LanguageError, match=r"^predicate on 'x': expected an Operator, got '='$"):
        Predicate("x", "=", 1)
    with pytest.raises(LanguageError, match=r"^a publication: expected a mapping of attributes to values, got list$"):
        Publication([("x", 1)])
    with pytest.raises(LanguageError, match=r"expected an integer of 64 bits, got one of 10001 bits$"):
        Publication({"x": 1 << 10_000})
