"""``overweave bench routing``: a chain of ten live brokers under several routing protocols (DEST V-A, with real processes).

The publisher is at the head, and at the tail one client has 2,000 filters, boxes in two attributes of which exactly one
matches each publication, so that none covers another. Filter-based routing matches at every broker, destination-based routing
at the first and the last, MERC in the middle too. All processes share the machine, so what counts is what the brokers together
spend on a publication: at equal processors, throughput is in the inverse proportion.
"""

import asyncio
import contextlib

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.bench.flows import ROWS, Brokers, Flow, advertised, arrive, counting, network
from overweave.drivers.tcp.client import connect

BROKERS = 10
#: Boxes by the day (0 to `ROWS`) and the volume (0 to a million) of a quote.
DAYS, VOLUMES = 50, 40
SECONDS, TURNS = 2.0, 3
#: With the shape that each is to run on.
PROTOCOLS = {"filter": "chain", "destination": "chain", "merc": "clustered-chain"}


def run(progress: Progress) -> list[Row]:
    """Measure the protocols in turn, several times, and take the median."""
    spent_us: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    rates_hz: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    for turn in range(TURNS):
        for protocol, shape in PROTOCOLS.items():
            progress(f"chain of {BROKERS}, {protocol}, turn {turn + 1} of {TURNS}")
            with network(BROKERS, routing=protocol, shape=shape) as brokers:
                rate_hz, spent_s = asyncio.run(_measured(brokers))
            spent_us[protocol].append(spent_s * 1e6)
            rates_hz[protocol].append(rate_hz)
    baseline = float(np.median(spent_us["filter"]))
    title = f"chain of {BROKERS}, {DAYS * VOLUMES:,} filters"
    rows = [Row(f"{title}: filter, all brokers together", "µs of CPU per message", baseline)]
    for protocol, ratio_min in (("destination", 2.0), ("merc", None)):
        name = f"{title}: {protocol}, against filter"
        rows.append(Row(name, "µs of CPU per message", float(np.median(spent_us[protocol])), baseline, ratio_min=ratio_min))
    for protocol, found in rates_hz.items():
        rows.append(Row(f"{title}: {protocol}", "messages per second", float(np.median(found))))
    return rows


async def _measured(brokers: Brokers) -> tuple[float, float]:
    """Messages a second, and what the brokers spend on each."""
    async with connect(brokers.url("B1")) as publisher, contextlib.AsyncExitStack() as stack:
        rows = await advertised(publisher)
        subscriber = await stack.enter_async_context(connect(brokers.url(f"B{BROKERS}")))
        counts = [0]
        subscriptions = [subscriber.subscribe(box) for box in _boxes()]
        for subscription in await asyncio.gather(*(subscription.__aenter__() for subscription in subscriptions)):
            stack.enter_context(counting(subscription, counts, 0))
        await arrive(publisher, rows, counts, within_s=120.0)
        flow = Flow(publisher, rows, counts)
        await flow.rate_hz(SECONDS / 2)
        before, already = brokers.cpu_s(), counts[0]
        rate_hz = await flow.rate_hz(SECONDS)
        return rate_hz, (brokers.cpu_s() - before) / (counts[0] - already)


def _boxes() -> list[str]:
    day, volume = ROWS // DAYS, 1_000_000 // VOLUMES
    return [
        f"[class,eq,'STOCK'],[day,>=,{i * day}],[day,<,{(i + 1) * day}],[volume,>=,{j * volume}],[volume,<,{(j + 1) * volume}]"
        for i in range(DAYS)
        for j in range(VOLUMES)
    ]
