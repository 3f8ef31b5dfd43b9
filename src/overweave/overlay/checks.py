"""Checks of input with uniform errors: the field, the expectation, the found value."""

import difflib
import math
from collections.abc import Iterable

from overweave.errors import OverlayError


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error text: which known name was probably meant.

    >>> nearest("brokrs", ["brokers", "degree"])
    "the nearest known one is 'brokers'"
    """
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
    return f"the nearest known one is {found[0]!r}" if found else "none is known"


def check_count(field: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """``value`` as an integer of at least ``minimum``; a seed, a number of brokers, a degree.

    >>> check_count("brokers", 0, 1)
    Traceback (most recent call last):
    overweave.errors.OverlayError: brokers: expected an integer of at least 1, got 0
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= minimum and (maximum is None or value <= maximum):
        return value
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    raise OverlayError(f"{field}: expected an integer {limits}, got {value!r}")


def check_number(field: str, value: object, *, above: float | None = None, minimum: float = 0.0) -> float:
    """``value`` as a finite float of at least ``minimum``, or greater than ``above``.

    >>> check_number("delay_s", 1)
    1.0
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e308 else math.inf
        if math.isfinite(number) and (number > above if above is not None else number >= minimum):
            return number
    limits = f"above {above:g}" if above is not None else f"of at least {minimum:g}"
    raise OverlayError(f"{field}: expected a finite number {limits}, got {value!r}")


def check_id(field: str, value: object) -> str:
    """``value`` as a name that every file format and every log line can carry.

    >>> check_id("id", "B 1")
    Traceback (most recent call last):
    overweave.errors.OverlayError: id: expected printable text without blanks, got 'B 1'
    """
    if isinstance(value, str) and value and value.isprintable() and " " not in value:
        return value
    raise OverlayError(f"{field}: expected printable text without blanks, got {value!r}")
