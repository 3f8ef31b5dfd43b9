"""``overweave bench plane``: the data plane over TCP on this machine, brokers in processes of their own.

Publications have eight attributes and a payload, 200 bytes of content and payload together. The publisher sends rows that were
encoded before, and all clients share one process, so that two cores are enough. Everything is settled: what counts has reached
its subscriber and was acknowledged all the way back. Mosquitto, where it is installed, is measured in the same run with messages
of the same size; it looks at topics only and acknowledges nothing.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.dataset

from overweave.batches.raw import RawRows
from overweave.bench import mqtt
from overweave.bench.base import Progress, Row
from overweave.bench.flows import (
    CONTENT_BYTES,
    Brokers,
    Flow,
    advertised,
    arrive,
    counting,
    flowing,
    network,
    payload,
    quote,
    subscribed,
)
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import Subscription, connect
from overweave.drivers.tcp.croc import Croc
from overweave.drivers.tcp.operator import Operator

FILTERS = 10_000
SUBSCRIBERS = 100
SECONDS = 4.0
#: Alternating runs with and without traces, and the length of each in seconds.
TURNS, TURN_S = 40, 0.25
#: The same with and without modules: CPU times have a resolution of 10 ms. The modules, in brokers that get no traffic for them.
CPU_TURNS, CPU_TURN_S = 10, 2.0
MODULES = ("report",)
LONE = 300


def run(progress: Progress) -> list[Row]:
    """Start brokers, publish, and measure."""
    rows: list[Row] = []
    baseline_hz = None
    if mqtt.available():
        progress("mosquitto: 1 → 1")
        baseline_hz = mqtt.messages_hz(CONTENT_BYTES, SECONDS)
    with network(1) as brokers:
        progress(f"1 → 1, {FILTERS:,} filters")
        memory_mb = brokers.memory_mb("B1")
        rate_hz = asyncio.run(_rate_hz(brokers.url("B1"), brokers.url("B1"), 1, FILTERS))
        rows += [
            _rate("one broker", f"1 → 1, {FILTERS:,} filters", rate_hz, baseline_hz, 3.0),
            Row("one broker: memory when idle", "MB", memory_mb),
        ]
        progress("latency at half load")
        half = asyncio.run(_latencies_s(brokers.url("B1"), rate_hz / 2))
        for share in (50, 99):
            rows.append(Row(f"one broker: latency at half load, p{share}", "ms", float(np.percentile(half, share)) * 1e3))
    progress("with traces and without, in turn")
    rows += _traced()
    progress("with idle modules and without, in turn")
    rows.append(_with_modules())
    progress("with profiles and without, in turn")
    rows += [_profiled("1 → 1", 1, 1, 0.95), _profiled("1 → 10, of 5 subscriptions each", 10, 5)]
    with network(1) as brokers:
        progress(f"1 → {SUBSCRIBERS}")
        rate_hz = asyncio.run(_rate_hz(brokers.url("B1"), brokers.url("B1"), SUBSCRIBERS, 0))
        rows.append(_rate("one broker", f"1 → {SUBSCRIBERS}, per delivery", rate_hz))
    with network(3) as brokers:
        progress("a chain of three")
        rate_hz = asyncio.run(_rate_hz(brokers.url("B1"), brokers.url("B3"), 1, 0))
        rows.append(_rate("chain of 3", "1 → 1", rate_hz))
        lone_s = asyncio.run(_lone_s(brokers.url("B1"), brokers.url("B3")))
        rows.append(Row("chain of 3: a lone publication, median", "ms", float(np.median(lone_s)) * 1e3))
        rows.append(Row("chain of 3: a lone publication, p99", "ms", float(np.percentile(lone_s, 99)) * 1e3))
    with network(5) as brokers:
        progress("a chain of five")
        control_s = asyncio.run(_control_s(brokers.url("B1"), brokers.url("B5")))
        for name, times_s in control_s.items():
            rows.append(Row(f"chain of 5: {name} until it is in force, median", "ms", float(np.median(times_s)) * 1e3))
    return rows


def _traced() -> list[Row]:
    """A broker with traces against one without, alternating: the speed of a shared machine varies more than the effect."""
    with tempfile.TemporaryDirectory() as directory:
        with network(1) as plain, network(1, Path(directory)) as traced:
            plain_hz, traced_hz, delivered = asyncio.run(_in_turn_hz(plain.url("B1"), traced.url("B1")))
        trace = pyarrow.dataset.dataset(directory, format="parquet")
        written = trace.count_rows(filter=pyarrow.dataset.field("subscription").is_valid())
    ours, baseline = float(np.median(1e6 / traced_hz)), float(np.median(1e6 / plain_hz))
    ratio = float(np.median(traced_hz / plain_hz))
    return [
        Row("one broker: the same with traces, against without", "µs per message", ours, baseline, ratio, ratio_min=0.9),
        Row("one broker: rows that its trace lacks", "rows", delivered - written),
    ]


def _with_modules() -> Row:
    """CPU time of a broker with modules that nobody uses, against one without, alternating."""
    with network(1) as plain, network(1, modules=MODULES) as other:
        plain_us, other_us = asyncio.run(_in_turn_cpu_us(plain, other))
    ratio = float(np.median(plain_us / other_us))
    ours, baseline = float(np.median(other_us)), float(np.median(plain_us))
    name = f"one broker: with idle modules ({', '.join(MODULES)}), against without"
    return Row(name, "µs of CPU per message", ours, baseline, ratio, ratio_min=0.95)


def _profiled(name: str, clients: int, each: int, ratio_min: float | None = None) -> Row:
    """The CPU time of a broker for each publication while it profiles, against while it does not."""
    with network(1) as brokers:
        plain_s, profiled_s = asyncio.run(_profiled_s(brokers, clients, each))
    found = f"one broker: {name}, with profiles, against without"
    return Row(found, "µs of CPU per message", profiled_s * 1e6, plain_s * 1e6, plain_s / profiled_s, ratio_min=ratio_min)


def _rate(group: str, name: str, rate_hz: float, baseline_hz: float | None = None, ratio_min: float | None = None) -> Row:
    baseline = None if baseline_hz is None else 1e6 / baseline_hz
    return Row(f"{group}: {name}", "µs per message", 1e6 / rate_hz, baseline, ratio_min=ratio_min if baseline else None)


# ---- measurements


async def _rate_hz(publisher_url: str, subscriber_url: str, subscribers: int, filters: int) -> float:
    """Deliveries a second to ``subscribers``, beside ``filters`` that match nothing."""
    async with flowing(publisher_url, subscriber_url, subscribers, filters) as flow:
        return await flow.rate_hz(SECONDS)


async def _in_turn_hz(plain_url: str, traced_url: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Rates of two brokers, 1 → 1, one turn after the other; and how many rows the second one has delivered in all."""
    async with flowing(plain_url, plain_url, 1, FILTERS) as plain, flowing(traced_url, traced_url, 1, FILTERS) as traced:
        found: dict[Flow, list[float]] = {plain: [], traced: []}
        for turn in range(TURNS):
            for flow in (plain, traced) if turn % 2 else (traced, plain):
                found[flow].append(await flow.rate_hz(TURN_S))
        return np.array(found[plain]), np.array(found[traced]), sum(traced.counts)


async def _in_turn_cpu_us(plain: Brokers, other: Brokers) -> tuple[np.ndarray, np.ndarray]:
    """CPU time per message of two brokers, 1 → 1, one turn after the other."""
    urls = plain.url("B1"), other.url("B1")
    async with flowing(urls[0], urls[0], 1, FILTERS) as first, flowing(urls[1], urls[1], 1, FILTERS) as second:
        found: dict[Brokers, list[float]] = {plain: [], other: []}
        for turn in range(CPU_TURNS):
            pairs = [(plain, first), (other, second)]
            for brokers, flow in pairs if turn % 2 else reversed(pairs):
                cpu_s, published = brokers.cpu_s(), flow.published
                await flow.rate_hz(CPU_TURN_S)
                found[brokers].append((brokers.cpu_s() - cpu_s) / (flow.published - published) * 1e6)
        return np.array(found[plain]), np.array(found[other])


async def _profiled_s(brokers: Brokers, clients: int, each: int) -> tuple[float, float]:
    """CPU seconds for each publication without profiles and with them, in alternating turns at one broker."""
    url = brokers.url("B1")
    async with contextlib.AsyncExitStack() as stack:
        flow = await stack.enter_async_context(flowing(url, url, clients, FILTERS, each))
        operator = await stack.enter_async_context(Operator(parse_address(url), None))
        spent_s, published = [0.0, 0.0], [0, 0]
        for turn in range(TURNS):
            is_on = turn % 4 in (1, 2)
            async with contextlib.AsyncExitStack() as profile:
                if is_on:
                    await profile.enter_async_context(Croc(operator).profiling())
                    await flow.rate_hz(TURN_S / 5)  # the first vectors are made
                before, sent = brokers.cpu_s(), flow.published
                await flow.rate_hz(TURN_S * 2)
                spent_s[is_on] += brokers.cpu_s() - before
                published[is_on] += flow.published - sent
    return spent_s[0] / published[0], spent_s[1] / published[1]


async def _latencies_s(url: str, rate_hz: float) -> np.ndarray:
    """From publishing to receiving, at a steady rate."""
    found: list[np.ndarray] = []

    async def receive(subscription: Subscription) -> None:
        async for batch in subscription.batches():
            assert isinstance(batch, RawRows)
            found.append(publisher.now_s() - batch.published_at_s())

    async with connect(url) as publisher, contextlib.AsyncExitStack() as stack:
        await advertised(publisher)
        task = asyncio.create_task(receive(await subscribed(url, stack)))
        every_s = 0.005
        rows = publisher.encode([quote(i) for i in range(max(int(rate_hz * every_s), 1))], payload())
        start_s = asyncio.get_running_loop().time()
        for turn in range(int(SECONDS / every_s)):
            await publisher.publish_encoded(rows)
            await asyncio.sleep(max(start_s + turn * every_s - asyncio.get_running_loop().time(), 0))
        await publisher.flush()
        task.cancel()
    return np.concatenate(found)


async def _control_s(publisher_url: str, subscriber_url: str) -> dict[str, list[float]]:
    """How long subscribing and advertising take, one after the other, at the two ends."""
    found: dict[str, list[float]] = {"subscribe": [], "advertise": []}
    async with connect(publisher_url) as publisher, connect(subscriber_url) as subscriber:
        await advertised(publisher)
        for i in range(LONE):
            start_s = perf_counter()
            async with subscriber.subscribe(f"[class,eq,'STOCK'],[volume,=,{i}]"):
                found["subscribe"].append(perf_counter() - start_s)
            start_s = perf_counter()
            await publisher.advertise(f"[class,eq,'BOND {i}']")
            found["advertise"].append(perf_counter() - start_s)
    return found


async def _lone_s(publisher_url: str, subscriber_url: str) -> list[float]:
    """From publishing one to receiving it, one after the other."""
    async with connect(publisher_url) as publisher, contextlib.AsyncExitStack() as stack:
        rows = await advertised(publisher)
        subscription = await subscribed(subscriber_url, stack)
        counts = [0]
        with counting(subscription, counts, 0):
            await arrive(publisher, rows, counts)
        messages, found = subscription.messages(), []
        for i in range(LONE):
            start_s = perf_counter()
            await publisher.publish(quote(i), payload())
            await anext(messages)
            found.append(perf_counter() - start_s)
        return found
