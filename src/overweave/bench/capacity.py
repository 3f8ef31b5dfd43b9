"""``overweave bench capacity``: the capacity of one broker on this machine, as keys of a network file.

One broker is a process of its own, and all clients share another one, over TCP on the loopback interface. What counts is the
broker's processor time: a broker is one thread, so a second of it is a second of a broker that is busy all the time, whatever
else the machine does and however slow the clients are. Where the system does not tell it, the clock stands in.

The matching delay is a line over the number of filters (THESIS 7.1.2): processor time per publication that matches none of them,
receiving and acknowledging it included. What a broker sends is counted as in traces and plans, content and payload alone.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.bench.flows import CONTENT_BYTES, Brokers, Flow, add_filters, flowing, network
from overweave.drivers.capacities import CAPACITIES

SUBSCRIBERS = 20
#: Filters beside the one that gets everything while the capacity is measured.
FILTERS = 1_000
SIZES, QUICK_SIZES = (1_000, 10_000, 50_000, 100_000), (500, 5_000, 20_000)
#: A figure is the median of this many turns. A turn lasts until the broker has used this CPU time, which the system counts in
#: hundredths of a second, or until this multiple of it has passed by the clock.
TURNS, SECONDS, QUICK_SECONDS, LONGER = 3, 2.0, 0.5, 4


class Spent(NamedTuple):
    """One turn: what went in and out, and what it took of the broker's processor and by the clock."""

    published: int
    delivered: int
    cpu_s: float
    wall_s: float

    @property
    def busy_s(self) -> float:
        """The CPU time, or the clock where the system has none."""
        return self.wall_s if math.isnan(self.cpu_s) or self.cpu_s <= 0 else self.cpu_s


def run(progress: Progress, subscriptions: Sequence[int] = (), *, quick: bool = False, seconds: float | None = None) -> list[Row]:
    """Measure output, matching at several numbers of ``subscriptions``, and input; the last rows are the keys of a broker."""
    sizes = sorted(set(subscriptions or (QUICK_SIZES if quick else SIZES)))
    turn_s = seconds if seconds is not None else QUICK_SECONDS if quick else SECONDS
    with network(1) as brokers:
        progress(f"output: 1 → {SUBSCRIBERS}")
        output = asyncio.run(_flow(brokers, SUBSCRIBERS, 0, turn_s))
    with network(1) as brokers:
        progress(f"input: 1 → 1, {FILTERS:,} filters")
        taken = asyncio.run(_flow(brokers, 1, FILTERS, turn_s))
    with network(1) as brokers:
        matching = asyncio.run(_matching(brokers, sizes, turn_s, progress))
    delays_s = [_median([each.busy_s / each.published for each in turns]) for turns in matching]
    base_s, slope_s = line_of(sizes, delays_s)
    sent = f"output: to {SUBSCRIBERS} subscribers"
    found = (
        _median([each.delivered * CONTENT_BYTES / each.busy_s for each in output]),
        base_s,
        slope_s,
        _median([each.published / each.busy_s for each in taken]),
    )
    return [
        Row(f"{sent}, wall clock", "bytes per s", _median([each.delivered * CONTENT_BYTES / each.wall_s for each in output])),
        Row(f"input: 1 → 1, {FILTERS:,} filters, wall clock", "1 per s", _median([e.published / e.wall_s for e in taken])),
        *(
            Row(f"matching: {size:,} filters", "s per publication", delay_s)
            for size, delay_s in zip(sizes, delays_s, strict=True)
        ),
        *(Row(name, unit, value) for name, unit, value in zip(CAPACITIES, _UNITS, found, strict=True)),
    ]


_UNITS = ("bytes per s", "s", "s", "1 per s")


def fragment(rows: Sequence[Row]) -> str:
    """The fragment of a network file for such a broker.

    >>> rows = [Row(name, "", value) for name, value in zip(CAPACITIES, (12_345_678.9, 1.789e-6, 0.0, 250_000.4))]
    >>> print(fragment(rows), end="")
    [[broker]]
    id = "B1"
    output_bandwidth_bytes_per_s = 12_300_000
    matching_delay_base_s = 1.79e-06
    matching_delay_per_subscription_s = 0.0
    capacity_hz = 250_000
    """
    values = {row.name: row.ours for row in rows}
    lines = "".join(f"{name} = {_number(values[name])}\n" for name in CAPACITIES)
    return f'[[broker]]\nid = "B1"\n{lines}'


def line_of(sizes: Sequence[int], delays_s: Sequence[float]) -> tuple[float, float]:
    """Base and slope, neither below 0, of the line with the least squares of relative errors.

    Relative, because delays at the largest size are many times those at the smallest, and would decide the base alone.

    >>> [round(value, 9) for value in line_of([0, 10, 20], [1.0, 2.0, 3.0])]
    [1.0, 0.1]
    >>> line_of([0, 10], [2.0, 1.0]), line_of([7], [1.5])
    ((1.2, 0.0), (1.5, 0.0))
    """
    x, y = np.array(sizes, np.float64), np.array(delays_s, np.float64)
    slope, base = np.polyfit(x, y, 1, w=1 / y) if len(x) > 1 else (0.0, y[0])
    if slope < 0:
        return float(np.sum(1 / y) / np.sum(1 / y**2)), 0.0
    if base < 0:
        return 0.0, float(np.sum(x / y) / np.sum((x / y) ** 2))
    return float(base), float(slope)


async def _flow(brokers: Brokers, subscribers: int, filters: int, seconds: float) -> list[Spent]:
    url = brokers.url("B1")
    async with flowing(url, url, subscribers, filters) as flow:
        return await _turns(brokers, flow, seconds)


async def _matching(brokers: Brokers, sizes: Sequence[int], seconds: float, progress: Progress) -> list[list[Spent]]:
    """Publications without matches, with more and more filters."""
    url, found, before = brokers.url("B1"), [], 0
    async with contextlib.AsyncExitStack() as stack:
        flow = await stack.enter_async_context(flowing(url, url, 0, 0))
        for size in sizes:
            progress(f"matching: {size:,} filters")
            await add_filters(url, before, size, stack)
            found.append(await _turns(brokers, flow, seconds))
            before = size
    return found


async def _turns(brokers: Brokers, flow: Flow, seconds: float) -> list[Spent]:
    found = []
    for _ in range(TURNS):
        published, delivered, cpu_s, start_s = flow.published, sum(flow.counts), brokers.cpu_s(), perf_counter()
        spent_s = wall_s = 0.0
        while not spent_s >= seconds and wall_s < LONGER * seconds:
            await flow.rate_hz(seconds / 4)
            spent_s, wall_s = brokers.cpu_s() - cpu_s, perf_counter() - start_s
        found.append(Spent(flow.published - published, sum(flow.counts) - delivered, spent_s, wall_s))
    return found


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _number(value: float) -> str:
    """Three digits, as TOML has it."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:_.0f}" if rounded >= 1000 else repr(rounded)
