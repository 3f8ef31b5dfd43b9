"""How much evidence has changed: the deliveries that came, went or moved beyond what chance explains, as a share of all.

Bits differ in every window although the traffic is the same. Publications that match are taken as a Poisson process, so a count
of n deviates by the root of n; a difference counts as far as it is above `DEVIATIONS` of that. It is looked for twice: at every
client and publisher, where filters change, and over all clients of a publisher, where many small differences have one sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from overweave.planning.problem import Pool, Problem, Reals, Vectors, Whole

#: Standard deviations up to which a difference is chance: 3 of 1,000 are above, by little.
DEVIATIONS = 3.0
#: Vectors whose bits are unpacked at once.
_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Observed:
    """The traffic of a problem: deliveries of each publisher (rows) to each client, in its window."""

    pool: Pool
    clients: tuple[str, ...]
    publishers: tuple[str, ...]
    #: Of every pair with a delivery: positions of the two, and publications in the window.
    client: Whole
    publisher: Whole
    ones: Whole
    #: Deliveries per second that one publication in a window stands for.
    bit_hz: Reals
    #: Of each publisher: the sum over publications of the square of how often each is delivered.
    squares: Reals


def observe(problem: Problem) -> Observed:
    """The observed traffic of a problem."""
    units, publishers = problem.units, problem.publishers
    return Observed(
        problem.pool,
        units.ids,
        publishers.ids,
        np.repeat(np.arange(len(units)), np.diff(units.row_start)),
        problem.vectors.publisher[units.rows],
        problem.vectors.ones[units.rows],
        publishers.rate_hz / np.maximum(publishers.window, 1),
        delivery_squares(problem.vectors, np.bincount(units.rows, minlength=len(problem.vectors)), len(publishers)),
    )


def evidence_change(before: Observed, now: Observed) -> float:
    """The share of deliveries that changed beyond chance: 0 for the same traffic, 1 for nothing in common.

    Clients and publishers that came or went count by their deliveries.
    """
    bit_hz = np.zeros((2, len(publishers := _places(before.publishers, now.publishers))))
    clients = _places(before.clients, now.clients)
    keys, ones, rounds, squares = [], [], [], np.zeros_like(bit_hz)
    for i, each in enumerate((before, now)):
        at = np.array([publishers[id] for id in each.publishers], np.int64)
        who = np.array([clients[id] for id in each.clients], np.int64)
        bit_hz[i, at], squares[i, at] = each.bit_hz, each.squares
        keys.append(who[each.client] * len(publishers) + at[each.publisher])
        ones.append(each.ones)
        rounds.append(np.full(len(each.ones), i))
    pairs, pair = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.zeros((2, len(pairs)))
    np.add.at(counts, (np.concatenate(rounds), pair), np.concatenate(ones))
    publisher = pairs % max(len(publishers), 1)
    totals = np.zeros_like(bit_hz)
    for i in range(2):
        np.add.at(totals[i], publisher, counts[i])
    # A pair is delivered a publication once, so its squares are its count.
    return max(_beyond(counts, counts, bit_hz[:, publisher]), _beyond(totals, squares, bit_hz))


def deliveries_deviation(problem: Problem, units: Whole) -> float:
    """How much the bytes that some units receive deviate by chance: the standard deviation, as a share of them."""
    row = np.isin(np.repeat(np.arange(len(problem.units)), np.diff(problem.units.row_start)), units)
    weight = np.bincount(problem.units.rows[row], minlength=len(problem.vectors))
    publishers = problem.publishers
    bit_bytes = publishers.bytes_per_s / np.maximum(publishers.window, 1)
    squares = delivery_squares(problem.vectors, weight, len(publishers))
    total = float((weight * problem.vectors.ones * bit_bytes[problem.vectors.publisher]).sum())
    return float(np.sqrt((squares * bit_bytes**2).sum())) / total if total > 0 else 0.0


def delivery_squares(vectors: Vectors, weight: Whole, publishers: int) -> Reals:
    """Of each publisher the sum over its bits of the squared number of clients that want it."""
    bits = vectors.words.shape[1] * 64
    found = np.zeros(publishers)
    order = np.argsort(vectors.publisher, kind="stable")
    ends = np.searchsorted(vectors.publisher[order], np.arange(publishers + 1))
    for p in range(publishers):
        wanted = np.zeros(bits)
        own = order[ends[p] : ends[p + 1]]
        own = own[weight[own] > 0]
        for start in range(0, len(own), _ROWS):
            rows = own[start : start + _ROWS]
            unpacked = np.unpackbits(np.ascontiguousarray(vectors.words[rows]).view(np.uint8), axis=1)
            wanted += weight[rows].astype(np.float64) @ unpacked
        found[p] = float(wanted @ wanted)
    return found


def _beyond(counts: Reals, squares: Reals, bit_hz: Reals) -> float:
    """The sum of differences beyond chance, over the larger of the sums. One more is added, as none seen does not mean none."""
    rates = counts * bit_hz
    deviation = np.sqrt(((squares + 1) * bit_hz**2).sum(axis=0))
    beyond = np.maximum(np.abs(rates[1] - rates[0]) - DEVIATIONS * deviation, 0.0)
    most = float(rates.sum(axis=1).max(initial=0.0))
    # What goes in one place and comes in another is one change.
    parts = (float(beyond[sign * (rates[1] - rates[0]) > 0].sum()) for sign in (1, -1))
    return max(parts) / most if most > 0 else 0.0


def _places(before: Sequence[str], now: Sequence[str]) -> dict[str, int]:
    return {id: i for i, id in enumerate(dict.fromkeys((*before, *now)))}
