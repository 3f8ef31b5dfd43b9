"""Congestion (MINIMAL 6.1): what brokers that are overloaded do to the latency of publications, event by event.

The text: messages that an overloaded broker processes have an additional delay in proportion to the overload. The load of a
broker is how many messages have arrived in the last time unit, the overload what exceeds the capacity; a message waits one tick
for each message of it, which is what a broker of 1,000 messages in 1,000 ticks takes for it. Nothing overtakes at a broker.
`overweave.drivers.sim.overload` gives simulated brokers the same delay.

A message needs ``LINK_TICKS`` for a link, so that what arrives within so many ticks cannot depend on each other: time is cut
into slices of that length, and each is one sort and one call of a kernel. A publication costs what it visits.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.experiments.minimal.kernels import count_wanted, list_wanted, serve
from overweave.experiments.minimal.network import Network, preorder
from overweave.experiments.minimal.workload import UNIT_TICKS, Workload

CAPACITY = 1_000
LINK_TICKS = 100.0
#: What a message waits for each message of the overload.
DELAY_TICKS = 1.0
#: Messages that came exactly one unit ago have left the load; clocks may differ by so much.
TOLERANCE_TICKS = 1e-3

Real = NDArray[np.float64]
Whole = NDArray[np.int64]


class Congestion(NamedTuple):
    """The measurements."""

    #: Of a delivery to a subscription, from the publisher's broker until its own has processed it, and what of it is delay.
    latency_ticks: float
    delay_ticks: float
    deliveries: int
    #: Per broker: messages that arrived, and the most of them in any time unit.
    arrivals: Whole
    peak: Whole


class _Wanted(NamedTuple):
    """Which brokers want each publication."""

    #: Where the rows of each publication begin and end.
    start: Whole
    #: A broker by its number in preorder, ascending within a publication, and for how many of its subscriptions.
    rows: NDArray[np.int32]


class _Arrivals(NamedTuple):
    """Messages that arrive in one slice of time."""

    ticks: Real
    published: Real
    broker: NDArray[np.int32]
    #: On the way down: the rows of those at and below the broker that want it. On the way up, or here first: the publication
    #: as -1 - its number, and nothing.
    first: NDArray[np.int32]
    last: NDArray[np.int32]

    def take(self, rows: Whole | slice) -> "_Arrivals":
        """Some of them."""
        return _Arrivals(self.ticks[rows], self.published[rows], self.broker[rows], self.first[rows], self.last[rows])


def congest(
    workload: Workload,
    network: Network,
    counts: Mapping[str, Whole],
    capacity: int = CAPACITY,
    delay_ticks: float = DELAY_TICKS,
) -> Congestion:
    """Run all publications; ``counts`` (of `counts.count`) are the expected messages at each broker."""
    tree = preorder(network.brokers, network.links)
    source = tree.number[network.publisher][workload.boxes.publisher].astype(np.int32)
    wanted = _wanted(workload, tree.number[network.subscriber], network.brokers)
    expected = np.empty(network.brokers, np.int64)
    expected[tree.number] = counts["arrivals"]
    # The times of all arrivals at a broker, one broker after the other; where the load of now begins and ends.
    history, begin = np.empty(int(expected.sum())), np.concatenate([[0], np.cumsum(expected)[:-1]])
    oldest, newest = begin.copy(), begin.copy()
    free, peak, totals = np.zeros(network.brokers), np.zeros(network.brokers, np.int64), np.zeros(2)
    limits = np.array([capacity, UNIT_TICKS - TOLERANCE_TICKS, delay_ticks, LINK_TICKS])
    degree = tree.degree
    for number, now, slices in _slices(workload.at_ticks, source):
        sent = _room(int(degree[now.broker].sum()))
        count = serve(
            np.argsort(now.ticks, kind="stable"), *now, source, wanted.start, wanted.rows,
            tree.parent, tree.end, tree.child_start, tree.children,
            history, oldest, newest, free, peak, totals, limits, *sent,
        )  # fmt: skip
        _plan(slices, sent.take(slice(count)), number + 1)
    latency, deliveries = totals.tolist()
    links = float(counts["delivery_hops"].sum())
    mean = latency / max(deliveries, 1.0)
    delay = (latency - LINK_TICKS * links) / max(deliveries, 1.0)
    return Congestion(mean, delay, int(deliveries), (newest - begin)[tree.number], peak[tree.number])


_Slices = dict[int, list[_Arrivals]]


def _slices(published: Real, source: NDArray[np.int32]) -> Iterator[tuple[int, _Arrivals, _Slices]]:
    """The arrivals of one slice after the other, with its number; serving adds to later ones."""
    slices: _Slices = {}
    rows = -1 - np.arange(len(source), dtype=np.int32)
    _plan(slices, _Arrivals(published, published, source, rows, rows), 0)
    number = 0
    while slices:
        due = slices.pop(number, None)
        if due is not None:
            yield number, _Arrivals(*(np.concatenate(columns) for columns in zip(*due, strict=True))), slices
        number += 1


def _room(count: int) -> _Arrivals:
    times, rows = np.empty((2, count)), np.empty((3, count), np.int32)
    return _Arrivals(*times, *rows)


def _plan(slices: _Slices, some: _Arrivals, earliest: int) -> None:
    """Put messages into the slices in which they arrive; rounding must not put one into the slice that sent it."""
    number = np.maximum((some.ticks / LINK_TICKS).astype(np.int32), earliest)
    order = np.argsort(number, kind="stable")
    cuts = np.flatnonzero(np.diff(number[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            slices.setdefault(int(number[rows[0]]), []).append(some.take(rows))


def _wanted(workload: Workload, placed: Whole, brokers: int) -> _Wanted:
    counts, copies = np.empty(workload.publications, np.int64), np.zeros(brokers, np.int32)
    count_wanted(workload.matches, workload.ends, placed, copies, counts)
    start = np.concatenate([[0], np.cumsum(counts)])
    rows = np.empty((int(start[-1]), 2), np.int32)
    list_wanted(workload.matches, workload.ends, placed, copies, rows)
    return _Wanted(start, rows)
