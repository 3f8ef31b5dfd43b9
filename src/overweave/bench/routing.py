"""``overweave bench routing``: a chain of ten live brokers under several routing protocols (DEST V-A, with real processes).

The publisher is at the head, and at the tail one client has 2,000 filters, or 10,000: boxes in two attributes of which exactly
one matches each publication, so that none covers another. Filter-based routing matches at every broker, destination-based
routing at the first and the last, MERC in the middle too. All processes share the machine, so what counts is what the brokers
together spend on a publication: at equal processors, throughput is in the inverse proportion.
"""

import asyncio
import contextlib

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.bench.flows import ROWS, Brokers, Flow, advertised, arrive, counting, network
from overweave.drivers.tcp.client import connect

BROKERS = 10
#: Boxes by the day (0 to `ROWS`) and the volume (0 to a million) of a quote, and how often they are measured.
GRIDS = ((50, 40, 3), (100, 100, 1))
SECONDS = 2.0
#: What destination-based routing is to save.
RATIO_MIN = {"destination": 2.0}
#: With the shape that each is to run on.
PROTOCOLS = {"filter": "chain", "destination": "chain", "merc": "clustered-chain"}


def run(progress: Progress) -> list[Row]:
    """Measure the protocols in turn, and take the median."""
    return [row for days, volumes, turns in GRIDS for row in _compared(_boxes(days, volumes), turns, progress)]


def _compared(boxes: list[str], turns: int, progress: Progress) -> list[Row]:
    title = f"chain of {BROKERS}, {len(boxes):,} filters"
    found: dict[str, list[tuple[float, float]]] = {protocol: [] for protocol in PROTOCOLS}
    for turn in range(turns):
        for protocol, shape in PROTOCOLS.items():
            progress(f"{title}, {protocol}, turn {turn + 1} of {turns}")
            with network(BROKERS, routing=protocol, shape=shape) as brokers:
                found[protocol].append(asyncio.run(_measured(brokers, boxes)))
    rates_hz, spent_us = ({name: float(np.median(np.array(some)[:, at])) for name, some in found.items()} for at in (0, 1))
    baseline = spent_us.pop("filter")
    return [
        Row(f"{title}: filter, all brokers together", "µs of CPU per message", baseline),
        *(
            Row(f"{title}: {name}, against filter", "µs of CPU per message", spent, baseline, ratio_min=RATIO_MIN.get(name))
            for name, spent in spent_us.items()
        ),
        *(Row(f"{title}: {name}", "messages per second", rate_hz) for name, rate_hz in rates_hz.items()),
    ]


async def _measured(brokers: Brokers, boxes: list[str]) -> tuple[float, float]:
    """Messages a second, and the microseconds that the brokers spend on each."""
    async with connect(brokers.url("B1")) as publisher, contextlib.AsyncExitStack() as stack:
        rows = await advertised(publisher)
        subscriber = await stack.enter_async_context(connect(brokers.url(f"B{BROKERS}")))
        counts = [0]
        stack.enter_context(counting(await stack.enter_async_context(subscriber.subscribe(*boxes)), counts, 0))
        await arrive(publisher, rows, counts, within_s=120.0)
        flow = Flow(publisher, rows, counts)
        await flow.rate_hz(SECONDS / 2)
        before, already = brokers.cpu_s(), counts[0]
        rate_hz = await flow.rate_hz(SECONDS)
        return rate_hz, 1e6 * (brokers.cpu_s() - before) / (counts[0] - already)


def _boxes(days: int, volumes: int) -> list[str]:
    day, volume = ROWS // days, 1_000_000 // volumes
    return [
        f"[class,eq,'STOCK'],[day,>=,{i * day}],[day,<,{(i + 1) * day}],[volume,>=,{j * volume}],[volume,<,{(j + 1) * volume}]"
        for i in range(days)
        for j in range(volumes)
    ]
