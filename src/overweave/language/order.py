"""The order of values: which number or text comes next, and what the texts of an interval have in common."""

import math
from typing import TypeAlias

from overweave.language.values import INTEGER_MAX, INTEGER_MIN

Number: TypeAlias = int | float

#: The last of all characters.
_LAST = "\U0010ffff"


def successor(number: Number) -> Number:
    """The smallest 64-bit integer or float above ``number``; there is none above infinity, which stays.

    >>> successor(2**53), successor(2.0**63), successor(0)
    (9007199254740993, 9.223372036854778e+18, 5e-324)
    """
    above = float(number)
    if above <= number:
        above = math.nextafter(above, math.inf)
    if INTEGER_MIN <= number < INTEGER_MAX:
        # Below 2**53 there is a float before the next integer, and beyond an integer before the next float.
        return min(above, math.floor(number) + 1)
    return above


def predecessor(number: Number) -> Number:
    """The largest 64-bit integer or float below ``number``: the set is symmetric, as -2**63 and 2**63 are floats.

    >>> predecessor(2**53 + 2), predecessor(0)
    (9007199254740993, -5e-324)
    """
    return -successor(-number)


def after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with ``prefix``, ``None`` if there is none; surrogates are no characters.

    >>> after_prefix("YHOO")
    'YHOP'
    """
    stem = prefix.rstrip(_LAST)
    if not stem:
        return None
    return stem[:-1] + ("\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1))


def common_prefix(lo: str, hi: str | None) -> str:
    """The longest prefix of all texts in ``[lo, hi)``, for which ``lo < hi``; ``None`` is no end.

    >>> common_prefix("YHOO", "YHOP"), common_prefix("YHOO", "YI")
    ('YHOO', 'YH')
    """
    if hi is None:
        same = 0
    else:
        same = next((at for at, (a, b) in enumerate(zip(lo, hi, strict=False)) if a != b), len(lo))
        if hi != after_prefix(lo[: same + 1]):
            return lo[:same]
        same += 1
    # Nothing sorts after the last character, so the rest of lo is common as long as it consists of it.
    rest = lo[same:]
    return lo[:same] + rest[: len(rest) - len(rest.lstrip(_LAST))]
