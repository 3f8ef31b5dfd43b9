"""The cost of a publisher's place: THESIS algorithms 5 to 7 as pure functions of a tree.

They are written as printed, with recursion over neighbours, and serve anything that has a tree of brokers with bit vectors. The
planner itself gets the same figures for all places at once from `Flows`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

B = TypeVar("B", bound=Hashable)

#: The delay at a broker on the way to a neighbour, or to its own clients (None).
Delays = Callable[[B, B | None], float]


def average_delay(neighbours: Mapping[B, Sequence[B]], deliveries: Mapping[B, int], delays: "Delays[B]", start: B) -> float:
    """Algorithm 5, calcAvgDelay: the mean delay of a delivery with the publisher at ``start``; 0 if nothing is delivered.

    >>> line = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    >>> average_delay(line, {"a": 1, "c": 3}, lambda broker, to: 1.0, "a")  # 1 delivery after 1, 3 after 3
    2.5
    """
    total, count = 0.0, 0
    open: list[tuple[B, B | None, float]] = [(start, None, 0.0)]
    while open:
        broker, before, so_far = open.pop()
        number = deliveries.get(broker, 0)
        total += number * (so_far + delays(broker, None))
        count += number
        open.extend((other, broker, so_far + delays(broker, other)) for other in neighbours[broker] if other != before)
    return total / count if count else 0.0


def total_message_rate(neighbours: Mapping[B, Sequence[B]], vectors: Mapping[B, int], start: B, before: B | None = None) -> int:
    """Algorithm 6, calcTotalMsgRate: publications that arrive at all brokers, in bits; vectors are integers, a bit each.

    >>> line = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    >>> wanted = {"a": 0b0001, "b": 0, "c": 0b1111}
    >>> total_message_rate(line, wanted, "a"), total_message_rate(line, wanted, "c")
    (12, 6)
    """
    own = downstream(neighbours, vectors, start, before).bit_count()
    return own + sum(total_message_rate(neighbours, vectors, other, start) for other in neighbours[start] if other != before)


def downstream(neighbours: Mapping[B, Sequence[B]], vectors: Mapping[B, int], broker: B, before: B | None) -> int:
    """Algorithm 7, calcDownstreamBV: the interest at a broker and at all beyond it, seen from ``before``."""
    found = vectors.get(broker, 0)
    for other in neighbours[broker]:
        if other != before:
            found |= downstream(neighbours, vectors, other, broker)
    return found
