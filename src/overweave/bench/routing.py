"""``overweave bench routing``: a chain of ten live brokers under several routing protocols (DEST V-A, with real processes).

The publisher is at the head, and at the tail one client has 2,000 filters, or 10,000: boxes in two attributes of which exactly
one matches each publication, so that none covers another. Filter-based routing matches at every broker, destination-based
routing at the first and the last, MERC in the middle too. All processes share the machine, so what counts is what the brokers
together spend on a publication: at equal processors, throughput is in the inverse proportion. The networks are all there at the
same time and have their turns, so that a machine that gets slower does so for all of them.
"""

import asyncio
import contextlib

from overweave.bench.base import Progress, Row
from overweave.bench.flows import ROWS, Brokers, Flow, advertised, arrive, counting, network
from overweave.drivers.tcp.client import connect

BROKERS = 10
#: Boxes by the day (0 to `ROWS`) and the volume (0 to a million) of a quote.
GRIDS = ((50, 40), (100, 100))
TURNS, SECONDS = 12, 1.0
#: What destination-based routing is to save.
RATIO_MIN = {"destination": 2.0}
#: With the shape that each is to run on.
PROTOCOLS = {"filter": "chain", "destination": "chain", "merc": "clustered-chain"}


def run(progress: Progress) -> list[Row]:
    """Measure the protocols in turn."""
    return [row for days, volumes in GRIDS for row in _compared(_boxes(days, volumes), progress)]


def _compared(boxes: list[str], progress: Progress) -> list[Row]:
    title = f"chain of {BROKERS}, {len(boxes):,} filters"
    with contextlib.ExitStack() as stack:
        networks = {}
        for protocol, shape in PROTOCOLS.items():
            progress(f"{title}, {protocol}: starting")
            networks[protocol] = stack.enter_context(network(BROKERS, routing=protocol, shape=shape))
        found = asyncio.run(_in_turn(networks, boxes, lambda text: progress(f"{title}, {text}")))
    spent_us = {protocol: spent.cpu_us / spent.messages for protocol, spent in found.items()}
    baseline = spent_us.pop("filter")
    return [
        Row(f"{title}: filter, all brokers together", "µs of CPU per message", baseline),
        *(
            Row(f"{title}: {name}, against filter", "µs of CPU per message", spent, baseline, ratio_min=RATIO_MIN.get(name))
            for name, spent in spent_us.items()
        ),
        *(Row(f"{title}: {name}", "messages per second", spent.messages / spent.took_s) for name, spent in found.items()),
    ]


class _Spent:
    """What the turns of one network have taken so far."""

    def __init__(self) -> None:
        self.cpu_us = self.took_s = 0.0
        self.messages = 0


async def _in_turn(networks: dict[str, Brokers], boxes: list[str], progress: Progress) -> dict[str, _Spent]:
    found = {protocol: _Spent() for protocol in networks}
    async with contextlib.AsyncExitStack() as stack:
        flows = {protocol: await _flow(brokers, boxes, stack) for protocol, brokers in networks.items()}
        for turn in range(-1, TURNS):  # the first is for warming up
            for protocol, flow in flows.items():
                if turn >= 0:
                    progress(f"{protocol}, turn {turn + 1} of {TURNS}")
                brokers, spent = networks[protocol], found[protocol]
                cpu_s, already = brokers.cpu_s(), flow.counts[0]
                rate_hz = await flow.rate_hz(SECONDS)
                messages = flow.counts[0] - already
                if turn >= 0:
                    spent.cpu_us += 1e6 * (brokers.cpu_s() - cpu_s)
                    spent.messages += messages
                    spent.took_s += messages / rate_hz
    return found


async def _flow(brokers: Brokers, boxes: list[str], stack: contextlib.AsyncExitStack) -> Flow:
    publisher = await stack.enter_async_context(connect(brokers.url("B1")))
    rows = await advertised(publisher)
    subscriber = await stack.enter_async_context(connect(brokers.url(f"B{BROKERS}")))
    counts = [0]
    stack.enter_context(counting(await stack.enter_async_context(subscriber.subscribe(*boxes)), counts, 0))
    await arrive(publisher, rows, counts, within_s=120.0)
    return Flow(publisher, rows, counts)


def _boxes(days: int, volumes: int) -> list[str]:
    day, volume = ROWS // days, 1_000_000 // volumes
    return [
        f"[class,eq,'STOCK'],[day,>=,{i * day}],[day,<,{(i + 1) * day}],[volume,>=,{j * volume}],[volume,<,{(j + 1) * volume}]"
        for i in range(days)
        for j in range(volumes)
    ]
