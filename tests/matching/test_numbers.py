"""The exact order of numbers."""

import math

from hypothesis import given

from overweave.matching.kernels.numbers import below, key_of_float, key_of_integer
from overweave.testing.strategies import any_numbers


def key(number):
    return key_of_integer(number) if isinstance(number, int) else key_of_float(number)


@given(any_numbers, any_numbers)
def test_keys_are_ordered_as_python_orders_numbers(a, b):
    assert below(*key(a), *key(b)) == (a < b)
    assert (key(a) == key(b)) == (a == b)


@given(any_numbers)
def test_nan_is_above_everything(number):
    assert below(*key(number), *key(math.nan))
