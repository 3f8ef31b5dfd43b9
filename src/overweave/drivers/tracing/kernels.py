"""The kernel that enters rows into a buffer (see `overweave.drivers.tracing.writer_wire` for its layout)."""

import numpy as np
from numpy.typing import NDArray

from overweave.drivers.tracing.writer_wire import MISSING
from overweave.matching.kernels.compile import bits_of, kernel

_Codes = NDArray[np.int32]
_Numbers = NDArray[np.int64]


@kernel
def enter_rows(
    publisher: _Codes, sequence: _Numbers, subscription: _Codes, client: _Codes, hops: _Codes, time_words: _Numbers,
    sizes: _Numbers, arrived_at_s: float, first: int, last: int,
    table: _Codes, subscriptions_at: int, clients_at: int, previous_hop: int, numbers: _Numbers, codes: _Codes, at: int,
) -> None:  # fmt: skip
    """Copy the rows from ``first`` to ``last``; ``table`` has new codes, of publishers, subscriptions and clients in turn.

    ``previous_hop`` is the new code of the neighbour that sent all of them.
    """
    arrived_word = np.int64(bits_of(arrived_at_s))
    for row in range(first, last):
        to = at + row - first
        numbers[0, to] = sequence[row]
        numbers[1, to] = sizes[row]
        numbers[2, to] = time_words[row]
        numbers[3, to] = arrived_word
        codes[0, to] = table[publisher[row]]
        codes[1, to] = table[subscriptions_at + subscription[row]] if subscription[row] >= 0 else MISSING
        codes[2, to] = table[clients_at + client[row]] if client[row] >= 0 else MISSING
        codes[3, to] = hops[row]
        codes[4, to] = previous_hop
