"""Values: what an attribute of a publication and the operand of a predicate may be.

Three types cross the wire: text, 64-bit integers and 64-bit floats. Integers and floats are one kind,
*number*, and compare by their exact mathematical value (``2**53 + 1`` is not ``2.0**53``); text is
the other kind and compares by code points. Booleans are the texts ``'true'`` and ``'false'``
(SPEC 0, THESIS 7.1.1).
"""

import functools
import numbers
import re

from overweave.errors import LanguageError

Value = str | int | float

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
#: Names are short: their length is one byte on the wire.
NAME_BYTES_MAX = 255
#: How many characters of a text errors show.
EXCERPT_MAX = 24
#: What an attribute name looks like: no blanks, commas, brackets, quotes or control characters.
NAME = re.compile(r"[^\s,\[\]'\x00-\x1f\x7f]+")
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"})


def is_number(value: Value) -> bool:
    """Whether ``value`` is of the kind number (else it is text).

    >>> is_number(3), is_number(2.5), is_number("3")
    (True, True, False)
    """
    return not isinstance(value, str)


def excerpt(value: object) -> str:
    """``value`` as errors show it: the beginning is enough to find it, and all of it may be a megabyte.

    >>> excerpt("short"), excerpt("x" * 1000)
    ("'short'", "'xxxxxxxxxxxxxxxxxxxxxxxx'…")
    """
    if isinstance(value, str):
        return repr(value[:EXCERPT_MAX]) + "…" * (len(value) > EXCERPT_MAX)
    if isinstance(value, int) and value.bit_length() > 128:
        return f"one of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 4 * EXCERPT_MAX else text[: 4 * EXCERPT_MAX] + "…"


def plain_value(value: object, attribute: str) -> Value:
    """``value`` as one of the three types, or a `LanguageError` that names ``attribute``.

    >>> plain_value(True, "closeEqualsLow")
    'true'
    """
    if type(value) is str:
        return value if value.isascii() else check_text(value, attribute)
    if type(value) is float or (type(value) is int and INTEGER_MIN <= value <= INTEGER_MAX):
        return value
    if isinstance(value, str):
        return check_text(str(value), attribute)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        if not INTEGER_MIN <= int(value) <= INTEGER_MAX:
            raise LanguageError(f"attribute {attribute!r}: expected an integer of 64 bits, got {excerpt(int(value))}")
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise LanguageError(f"attribute {attribute!r}: expected text or a number, got {type(value).__name__}")


def check_text(text: str, where: str) -> str:
    """``text`` unless it cannot be written as UTF-8 (a lone surrogate)."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise LanguageError(f"{where}: expected text that can be encoded as UTF-8, got {excerpt(text)}") from None
    return text


@functools.lru_cache(maxsize=4096)
def check_name(name: object) -> str:
    """``name`` unless it cannot be written as an attribute name.

    >>> check_name("openClose%Diff")
    'openClose%Diff'
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise LanguageError(f"attribute name {excerpt(name)}: expected no blanks, commas, brackets, quotes or control characters")
    if len(check_text(name, "attribute name").encode()) > NAME_BYTES_MAX:
        raise LanguageError(f"attribute name {excerpt(name)}: expected at most {NAME_BYTES_MAX} bytes")
    return name


def format_value(value: Value) -> str:
    r"""``value`` in the text syntax; text is quoted and stays on one line.

    >>> print(format_value("it's"), format_value(30.0), format_value(30))
    'it\'s' 30.0 30
    """
    if isinstance(value, str):
        return "'" + value.translate(_ESCAPES) + "'"
    return repr(value)
