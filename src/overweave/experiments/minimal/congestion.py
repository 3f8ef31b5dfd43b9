"""Congestion (MINIMAL 6.1): what brokers that are overloaded do to the latency of publications, event by event.

The text: messages that an overloaded broker processes have an additional delay in proportion to the overload. The load of a
broker is how many messages have arrived in the last time unit, the overload what exceeds the capacity; a message waits one tick
for each message of it, which is what a broker of 1,000 messages in 1,000 ticks takes for it. Nothing overtakes at a broker.
`overweave.drivers.sim.overload` gives simulated brokers the same delay.

A message needs ``LINK_TICKS`` for a link, so that what arrives within so many ticks cannot depend on each other: time is cut
into slices of that length, and each is one sort and one call of a kernel. A publication costs what it visits.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.experiments.minimal.network import Network, Preorder, preorder
from overweave.experiments.minimal.workload import UNIT_TICKS, Workload
from overweave.matching.kernels.compile import inlined, kernel

CAPACITY = 1_000
LINK_TICKS = 100.0
#: What a message waits for each message of the overload.
DELAY_TICKS = 1.0
#: Messages that came exactly one unit ago have left the load; clocks may differ by so much.
TOLERANCE_TICKS = 1e-3

Real = NDArray[np.float64]
Whole = NDArray[np.int64]


class Congestion(NamedTuple):
    """What was measured."""

    #: Of a delivery to a subscription, from the publisher's broker until its own has processed it, and what of it is delay.
    latency_ticks: float
    delay_ticks: float
    deliveries: int
    #: Per broker: messages that arrived, and the most of them in any time unit.
    arrivals: Whole
    peak: Whole


@dataclass(frozen=True, eq=False)
class _Wanted:
    """The brokers, by their number in preorder and ascending, that want each publication, and how often each does."""

    start: Whole
    broker: NDArray[np.int32]
    copies: NDArray[np.int32]


class _Arrivals(NamedTuple):
    """Messages that arrive in one slice of time."""

    ticks: Real
    publication: NDArray[np.int32]
    broker: NDArray[np.int32]
    #: The delay that each has had on its way.
    delay: Real


def congest(
    workload: Workload, network: Network, arrivals: Whole, capacity: int = CAPACITY, delay_ticks: float = DELAY_TICKS
) -> Congestion:
    """Run all publications; ``arrivals`` says how many messages come to each broker in all (`counts.count`)."""
    tree = preorder(network.brokers, network.links)
    source = tree.number[network.publisher][workload.boxes.publisher].astype(np.int32)
    wanted = _wanted(workload, tree.number[network.subscriber], network.brokers)
    expected = np.empty_like(arrivals)
    expected[tree.number] = arrivals
    #: The times of all arrivals at a broker, one broker after the other; from where the load of now begins, and its end.
    history = np.empty(int(expected.sum()))
    begin = np.concatenate([[0], np.cumsum(expected)[:-1]])
    oldest, newest = begin.copy(), begin.copy()
    free, peak, totals = np.zeros(network.brokers), np.zeros(network.brokers, np.int64), np.zeros(3)
    slices: defaultdict[int, list[_Arrivals]] = defaultdict(list)
    first = _Arrivals(workload.at_ticks, np.arange(len(source), dtype=np.int32), source, np.zeros(len(source)))
    _plan(slices, first, 0)
    limits = np.array([capacity, UNIT_TICKS - TOLERANCE_TICKS, delay_ticks, LINK_TICKS])
    at = 0
    while slices:
        due = slices.pop(at, None)
        if due is not None:
            now = _Arrivals(*(np.concatenate(columns) for columns in zip(*due, strict=True)))
            sent = _room(int(tree.degree[now.broker].sum()))
            count = _serve(
                np.argsort(now.ticks, kind="stable"), *now, workload.at_ticks, source, wanted.start, wanted.broker, wanted.copies,
                tree.parent, tree.end, tree.child_start, tree.children,
                history, oldest, newest, free, peak, totals, limits, *sent,
            )  # fmt: skip
            _plan(slices, _Arrivals(*(column[:count] for column in sent)), at + 1)
        at += 1
    return _measured(tree, totals, newest - begin, peak)


def _measured(tree: Preorder, totals: Real, came: Whole, peak: Whole) -> Congestion:
    latency, delay, deliveries = totals.tolist()
    some = max(deliveries, 1.0)
    return Congestion(latency / some, delay / some, int(deliveries), came[tree.number], peak[tree.number])


def _room(count: int) -> _Arrivals:
    return _Arrivals(np.empty(count), np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count))


def _plan(slices: defaultdict[int, list[_Arrivals]], some: _Arrivals, earliest: int) -> None:
    """Put messages into the slices in which they arrive; rounding must not put one into the slice that sent it."""
    number = np.maximum((some.ticks // LINK_TICKS).astype(np.int64), earliest)
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            slices[int(number[rows[0]])].append(_Arrivals(*(column[rows] for column in some)))


def _wanted(workload: Workload, placed: Whole, brokers: int) -> _Wanted:
    counts, copies = np.empty(workload.publications, np.int64), np.zeros(brokers, np.int32)
    _count_wanted(workload.matches, workload.ends, placed, copies, counts)
    start = np.concatenate([[0], np.cumsum(counts)])
    wanted = _Wanted(start, np.empty(start[-1], np.int32), np.empty(start[-1], np.int32))
    _list_wanted(workload.matches, workload.ends, placed, copies, wanted.broker, wanted.copies)
    return wanted


@kernel
def _count_wanted(matches, ends, placed, copies, counts):
    at = 0
    for row in range(len(ends)):
        first, found = at, 0
        while at < ends[row]:
            broker = placed[matches[at]]
            found += copies[broker] == 0
            copies[broker] += 1
            at += 1
        for i in range(first, at):
            copies[placed[matches[i]]] = 0
        counts[row] = found


@kernel
def _list_wanted(matches, ends, placed, copies, broker, of):
    at, to = 0, 0
    for row in range(len(ends)):
        while at < ends[row]:
            copies[placed[matches[at]]] += 1
            at += 1
        for each in range(len(copies)):
            if copies[each]:
                broker[to], of[to] = each, copies[each]
                copies[each] = 0
                to += 1


@inlined
def _first_from(values, low, high, least):
    """Where the first of ascending ``values[low:high]`` is that is not below ``least``."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _send(ticks, publication, broker, delay, to, sent_ticks, sent_publication, sent_broker, sent_delay):
    sent_ticks[to], sent_publication[to], sent_broker[to], sent_delay[to] = ticks, publication, broker, delay
    return to + 1


@kernel
def _serve(
    order, ticks, publication, broker, delay, published, source, start, wanted, copies, parent, end, child_start, children,
    history, oldest, newest, free, peak, totals, limits, sent_ticks, sent_publication, sent_broker, sent_delay,
):  # fmt: skip
    """Serve what arrives in one slice, in the order of time, and write down what is sent on; how many are."""
    capacity, unit, per_message, link = limits[0], limits[1], limits[2], limits[3]
    count = 0
    for i in range(len(order)):
        row = order[i]
        now, p, at = ticks[row], publication[row], broker[row]
        history[newest[at]] = now
        newest[at] += 1
        while history[oldest[at]] <= now - unit:
            oldest[at] += 1
        load = newest[at] - oldest[at]
        peak[at] = max(peak[at], load)
        leaves = max(free[at], now + per_message * max(0.0, load - capacity))
        free[at] = leaves
        waited = delay[row] + leaves - now
        first, last, home = start[p], start[p + 1], source[p]
        here = _first_from(wanted, first, last, at)
        if here < last and wanted[here] == at:
            totals[0] += copies[here] * (leaves - published[p])
            totals[1] += copies[here] * waited
            totals[2] += copies[here]
            here += 1
        # Down to every child below which it is wanted, but for the one it came from.
        while here < last and wanted[here] < end[at]:
            child = children[_first_from(children, child_start[at], child_start[at + 1], wanted[here] + 1) - 1]
            if home < child or home >= end[child]:
                count = _send(
                    leaves + link, p, child, waited, count, sent_ticks, sent_publication, sent_broker, sent_delay
                )
            here = _first_from(wanted, here, last, end[child])
        # Up if it came from below, or from here, and is wanted elsewhere.
        if parent[at] >= 0 and at <= home < end[at] and (here < last or (first < last and wanted[first] < at)):
            count = _send(leaves + link, p, parent[at], waited, count, sent_ticks, sent_publication, sent_broker, sent_delay)
    return count
