r"""The text syntax, read: ``[class,eq,'STOCK'],[volume,>,300000]`` and ``[class,'STOCK'],[volume,400000]``.

Printing is ``str()`` of the value; ``parse(str(x)) == x`` for every filter and publication, and ``str(parse(text)) ==
text`` for every text in canonical form (no blanks, ``eq``/``neq`` for text and ``=``/``<>`` for
numbers, numbers as Python prints them). Inside quotes ``\'``, ``\\``, ``\n`` and ``\r`` stand for themselves, so a
text never breaks a line.

The grammar of one bracket is a tuple of pieces. Joined, they are the regular expression that reads well-formed
brackets at full speed; one by one, they find the character at which a broken one went wrong.
"""

import re
from collections.abc import Iterator

from overweave.errors import LanguageError, ParseError
from overweave.language.predicates import NUMBER_OPERATORS, TEXT_OPERATORS, Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.values import INTEGER_MAX, INTEGER_MIN, NAME, NAME_BYTES_MAX, Value, check_name, excerpt

_Piece = tuple[str, str]

_OPEN: _Piece = (r"\s*\[", "'['")
_NAME: _Piece = (rf"\s*({NAME.pattern})", "an attribute name")
_COMMA: _Piece = (r"\s*,", "','")
_OPERATOR: _Piece = (rf"\s*({NAME.pattern})", "an operator")
_VALUE: _Piece = (rf"\s*(?:'([^'\\]*(?:\\.[^'\\]*)*)'|({NAME.pattern}))", "a number or a text in single quotes")
_CLOSE: _Piece = (r"\s*\]", "']'")

_PAIR = (_OPEN, _NAME, _COMMA, _VALUE, _CLOSE)
_PREDICATE = (_OPEN, _NAME, _COMMA, _OPERATOR, _COMMA, _VALUE, _CLOSE)
_PAIR_PATTERN = re.compile("".join(pattern for pattern, _ in _PAIR), re.DOTALL)
_PREDICATE_PATTERN = re.compile("".join(pattern for pattern, _ in _PREDICATE), re.DOTALL)
_SEPARATOR = re.compile(r"\s*(,|\Z)")
_BLANKS = re.compile(r"\s*")

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"inf": float("inf"), "+inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", "'": "'", "n": "\n", "r": "\r"}

_TEXT_OPERATOR = {text: operator for operator, text in TEXT_OPERATORS.items()} | {"=": Operator.EQ, "<>": Operator.NE}
_NUMBER_OPERATOR = {text: operator for operator, text in NUMBER_OPERATORS.items()} | {"eq": Operator.EQ, "neq": Operator.NE}


def parse_filter(text: str) -> Filter:
    """The filter that ``text`` writes down.

    >>> parse_filter("[class,eq,'STOCK'], [volume, >, 300000]").predicates[1]
    Predicate(attribute='volume', operator=<Operator.GT: 5>, value=300000)
    >>> parse_filter("[class,is,'STOCK']")
    Traceback (most recent call last):
    overweave.errors.ParseError: column 8: expected an operator for text (eq, neq, str-lt, …), found 'is'
    """
    return Filter(tuple(_predicate(found) for found in _brackets(text, _PREDICATE_PATTERN, _PREDICATE)))


def parse_publication(text: str) -> Publication:
    """The publication that ``text`` writes down.

    >>> dict(parse_publication("[class,'STOCK'],[open,30.25],[volume,203400]"))
    {'class': 'STOCK', 'open': 30.25, 'volume': 203400}
    """
    attributes: dict[str, Value] = {}
    for found in _brackets(text, _PAIR_PATTERN, _PAIR):
        name = found.group(1)
        if name in attributes:
            raise ParseError(found.start(1) + 1, "an attribute that was not given before", excerpt(name))
        attributes[name] = _value(found, 2)
    try:
        return Publication(attributes)
    except LanguageError:
        raise _impossible_pair(text) from None


def _brackets(text: str, pattern: re.Pattern[str], pieces: tuple[_Piece, ...]) -> Iterator[re.Match[str]]:
    """Every bracket of ``text``; they are joined by commas and nothing else."""
    if not isinstance(text, str):
        raise LanguageError(f"expected text, got {type(text).__name__}")
    at = 0
    while True:
        found = pattern.match(text, at)
        if found is None:
            raise _diagnosis(text, at, pieces)
        yield found
        separator = _SEPARATOR.match(text, found.end())
        if separator is None:
            raise _unexpected(text, found.end(), "',' or the end")
        if not separator.group(1):
            return
        at = separator.end()


def _diagnosis(text: str, at: int, pieces: tuple[_Piece, ...]) -> ParseError:
    """Where the first piece that does not fit begins, and what it should have been."""
    for pattern, expected in pieces:
        found = re.compile(pattern, re.DOTALL).match(text, at)
        if found is None or not _means(found, expected):
            return _unexpected(text, at, expected)
        at = found.end()
    raise AssertionError("the pieces match one by one but not joined")


def _means(found: re.Match[str], expected: str) -> bool:
    """Whether what has the form of an operator or a bare value is one: else it is what is wrong, not what follows."""
    bare = found.group(found.re.groups) if found.re.groups else None
    if bare is None:
        return True
    if expected == _OPERATOR[1]:
        return bare in _TEXT_OPERATOR or bare in _NUMBER_OPERATOR
    return expected != _VALUE[1] or bare in _SPECIAL or _FLOAT.fullmatch(bare) is not None


def _unexpected(text: str, at: int, expected: str) -> ParseError:
    blanks = _BLANKS.match(text, at)
    at = blanks.end() if blanks else at
    rest = text[at : at + 12]
    if not rest:
        return ParseError(at + 1, expected, "the end")
    if rest[0] == "'" and expected == _VALUE[1]:
        return ParseError(at + 1, "a closing quote", "the end")
    return ParseError(at + 1, expected, repr(rest))


def _predicate(found: re.Match[str]) -> Predicate:
    value = _value(found, 3)
    known, kind = (_TEXT_OPERATOR, "text") if isinstance(value, str) else (_NUMBER_OPERATOR, "numbers")
    operator = known.get(found.group(2))
    if operator is None:
        several = ", ".join(list(known)[:3])
        raise ParseError(found.start(2) + 1, f"an operator for {kind} ({several}, …)", excerpt(found.group(2)))
    try:
        return Predicate(found.group(1), operator, value)
    except LanguageError:
        raise _impossible(found, 3) from None


def _impossible_pair(text: str) -> ParseError:
    """Which of the brackets makes a publication impossible; looked for only when one does."""
    for found in _brackets(text, _PAIR_PATTERN, _PAIR):
        try:
            Publication({found.group(1): _value(found, 2)})
        except LanguageError:
            return _impossible(found, 2)
    raise AssertionError("every attribute can exist but not all together")


def _impossible(found: re.Match[str], group: int) -> ParseError:
    """Whether it is the name of a well-formed bracket or its value in ``group`` that cannot exist."""
    name, quoted = found.group(1), found.group(group)
    try:
        check_name(name)
    except LanguageError:
        return ParseError(found.start(1) + 1, f"an attribute name of at most {NAME_BYTES_MAX} bytes in UTF-8", excerpt(name))
    if quoted is not None:
        return ParseError(found.start(group), "text that can be encoded as UTF-8", excerpt(quoted))
    return ParseError(found.start(group + 1) + 1, "a number that can be compared", excerpt(found.group(group + 1)))


def _value(found: re.Match[str], group: int) -> Value:
    """The value in ``group`` (quoted) or the one after it (bare)."""
    text = found.group(group)
    if text is not None:
        return _unescaped(text, found.start(group)) if "\\" in text else text
    bare, at = found.group(group + 1), found.start(group + 1)
    if _INTEGER.fullmatch(bare):
        return _integer(bare, at)
    if _FLOAT.fullmatch(bare):
        return _float(bare, at)
    if bare in _SPECIAL:
        return _SPECIAL[bare]
    raise ParseError(at + 1, _VALUE[1], excerpt(bare))


def _integer(text: str, at: int) -> int:
    # No 64-bit integer has more than 20 characters; Python refuses to convert very long ones.
    number = int(text) if len(text) <= 40 else None
    if number is None or not INTEGER_MIN <= number <= INTEGER_MAX:
        raise ParseError(at + 1, "an integer of 64 bits", excerpt(text))
    return number


def _float(text: str, at: int) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ParseError(at + 1, "a number in the range of 64-bit floats", excerpt(text))
    return number


def _unescaped(text: str, at: int) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape.group(1) not in _ESCAPED:
            raise ParseError(at + escape.start() + 1, r"\\, \', \n or \r", repr(escape.group()))
        return _ESCAPED[escape.group(1)]

    return _ESCAPE.sub(character, text)
