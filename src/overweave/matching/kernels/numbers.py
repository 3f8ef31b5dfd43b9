"""An exact order of all 64-bit floats and all 64-bit integers in two machine words.

A number is a key ``(float, fine)``, ordered lexicographically: the nearest float, and twice the distance to it, which is
not 0 only for integers beyond 2^53. Rounding is monotonic, so the order is exact. Because ``fine`` of a value is even, an
open bound is the closed bound at the odd neighbour: ``x > 5`` is ``key(x) >= (5.0, 1)``. NaN, which satisfies
only ``<>`` and ``isPresent``, is a key above infinity.
"""

import math

from overweave.matching.kernels.compile import inlined

INFINITY = math.inf
#: The largest |fine| of a value: floats next to 2^63 are 1,024 apart, so an integer is at most 512 away from one.
FINE_MAX = 1024
FINE_NAN = 32_766
#: Above every key, NaN's too: the upper end of an interval that does not bound its value.
FINE_UNBOUNDED = 32_767
#: From here on integers need not be floats.
EXACT_LIMIT = 9007199254740992.0
_TWO_63 = 9223372036854775808.0


@inlined
def key_of_integer(value):
    """The key of a 64-bit integer."""
    nearest = float(value)
    if -EXACT_LIMIT < nearest < EXACT_LIMIT:
        return nearest, 0
    if nearest == _TWO_63:  # does not fit into a signed integer of 64 bits
        return nearest, 2 * ((value - 9223372036854775807) - 1)
    return nearest, 2 * (value - int(nearest))


@inlined
def key_of_float(value):
    """The key of a 64-bit float; both zeros are one."""
    if value != value:
        return INFINITY, FINE_NAN
    return value + 0.0, 0


@inlined
def below(a, a_fine, b, b_fine):
    """Whether key ``a`` comes before key ``b``."""
    return a < b or (a == b and a_fine < b_fine)
