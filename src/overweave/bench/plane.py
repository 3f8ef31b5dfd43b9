"""``overweave bench plane``: the data plane over TCP on this machine, brokers in processes of their own.

Publications have eight attributes and a payload, 200 bytes of content and payload together. The publisher sends rows that were
encoded before, and all clients share one process, so that two cores are enough. Everything is settled: what counts has reached
its subscriber and was acknowledged all the way back. Mosquitto, where it is installed, is measured in the same run with messages
of the same size; it looks at topics only and acknowledges nothing.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow.dataset

from overweave.bench import mqtt
from overweave.bench.base import Progress, Row
from overweave.contract.raw import RawRows
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.errors import OverweaveError

CONTENT_BYTES = 200
FILTERS = 10_000
SUBSCRIBERS = 100
ROWS = 1_000
SECONDS = 4.0
#: With and without traces is measured so many times in turn, for so long.
TURNS, TURN_S = 40, 0.25
LONE = 300
_SYMBOLS = [f"S{i}" for i in range(500)]
_ALL = "[class,eq,'STOCK'],[volume,>,5]"


def run(progress: Progress) -> list[Row]:
    """Start brokers, publish, and measure."""
    rows: list[Row] = []
    baseline_hz = None
    if mqtt.available():
        progress("mosquitto: 1 → 1")
        baseline_hz = mqtt.messages_hz(CONTENT_BYTES, SECONDS)
    with _network(1) as brokers:
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
    with _network(1) as brokers:
        progress(f"1 → {SUBSCRIBERS}")
        rate_hz = asyncio.run(_rate_hz(brokers.url("B1"), brokers.url("B1"), SUBSCRIBERS, 0))
        rows.append(_rate("one broker", f"1 → {SUBSCRIBERS}, per delivery", rate_hz))
    with _network(3) as brokers:
        progress("a chain of three")
        rate_hz = asyncio.run(_rate_hz(brokers.url("B1"), brokers.url("B3"), 1, 0))
        rows.append(_rate("chain of 3", "1 → 1", rate_hz))
        lone_s = asyncio.run(_lone_s(brokers.url("B1"), brokers.url("B3")))
        rows.append(Row("chain of 3: a lone publication, median", "ms", float(np.median(lone_s)) * 1e3))
        rows.append(Row("chain of 3: a lone publication, p99", "ms", float(np.percentile(lone_s, 99)) * 1e3))
    return rows


def _traced() -> list[Row]:
    """A broker with traces against one without, in turn: a shared machine's speed varies by more than what is looked for."""
    with tempfile.TemporaryDirectory() as directory:
        with _network(1) as plain, _network(1, Path(directory)) as traced:
            plain_hz, traced_hz, delivered = asyncio.run(_in_turn_hz(plain.url("B1"), traced.url("B1")))
        trace = pyarrow.dataset.dataset(directory, format="parquet")
        written = trace.count_rows(filter=pyarrow.dataset.field("subscription").is_valid())
    ours, baseline = float(np.median(1e6 / traced_hz)), float(np.median(1e6 / plain_hz))
    ratio = float(np.median(traced_hz / plain_hz))
    return [
        Row("one broker: the same with traces, against without", "µs per message", ours, baseline, ratio, ratio_min=0.9),
        Row("one broker: rows that its trace lacks", "rows", delivered - written),
    ]


def _rate(group: str, name: str, rate_hz: float, baseline_hz: float | None = None, ratio_min: float | None = None) -> Row:
    baseline = None if baseline_hz is None else 1e6 / baseline_hz
    return Row(f"{group}: {name}", "µs per message", 1e6 / rate_hz, baseline, ratio_min=ratio_min if baseline else None)


# ---- what is measured


async def _rate_hz(publisher_url: str, subscriber_url: str, subscribers: int, filters: int) -> float:
    """Deliveries a second to ``subscribers``, beside ``filters`` that match nothing."""
    async with _flow(publisher_url, subscriber_url, subscribers, filters) as flow:
        return await flow.rate_hz(SECONDS)


async def _in_turn_hz(plain_url: str, traced_url: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Rates of two brokers, 1 → 1, one turn after the other; and how many rows the second one has delivered in all."""
    async with _flow(plain_url, plain_url, 1, FILTERS) as plain, _flow(traced_url, traced_url, 1, FILTERS) as traced:
        found: dict[_Flow, list[float]] = {plain: [], traced: []}
        for turn in range(TURNS):
            for flow in (plain, traced) if turn % 2 else (traced, plain):
                found[flow].append(await flow.rate_hz(TURN_S))
        return np.array(found[plain]), np.array(found[traced]), sum(traced.counts)


async def _latencies_s(url: str, rate_hz: float) -> np.ndarray:
    """From publishing to receiving, at a steady rate."""
    found: list[np.ndarray] = []

    async def receive(subscription: Subscription) -> None:
        async for batch in subscription.batches():
            assert isinstance(batch, RawRows)
            found.append(publisher.now_s() - batch.published_at_s())

    async with connect(url) as publisher, contextlib.AsyncExitStack() as stack:
        await _advertised(publisher)
        task = asyncio.create_task(receive(await _subscribed(url, stack)))
        every_s = 0.005
        rows = publisher.encode([_quote(i) for i in range(max(int(rate_hz * every_s), 1))], _payload())
        start_s = asyncio.get_running_loop().time()
        for turn in range(int(SECONDS / every_s)):
            await publisher.publish_rows(rows)
            await asyncio.sleep(max(start_s + turn * every_s - asyncio.get_running_loop().time(), 0))
        await publisher.flush()
        task.cancel()
    return np.concatenate(found)


async def _lone_s(publisher_url: str, subscriber_url: str) -> list[float]:
    """From publishing one to receiving it, one after the other."""
    async with connect(publisher_url) as publisher, contextlib.AsyncExitStack() as stack:
        rows = await _advertised(publisher)
        subscription = await _subscribed(subscriber_url, stack)
        counts = [0]
        with _counting(subscription, counts, 0):
            await _arrive(publisher, rows, counts)
        messages, found = subscription.messages(), []
        for i in range(LONE):
            start_s = perf_counter()
            await publisher.publish(_quote(i), _payload())
            await anext(messages)
            found.append(perf_counter() - start_s)
        return found


# ---- clients


class _Flow:
    """A publisher, and what its subscribers have got so far."""

    def __init__(self, publisher: Client, rows: RawRows, counts: list[int]) -> None:
        self._publisher = publisher
        self._rows = rows
        self.counts = counts

    async def rate_hz(self, seconds: float) -> float:
        """Publish as much as goes, and say how much that was."""
        before, start_s = sum(self.counts), perf_counter()
        while perf_counter() - start_s < seconds:
            await self._publisher.publish_rows(self._rows)
        await self._publisher.flush()
        return (sum(self.counts) - before) / (perf_counter() - start_s)


@contextlib.asynccontextmanager
async def _flow(publisher_url: str, subscriber_url: str, subscribers: int, filters: int) -> AsyncIterator[_Flow]:
    async with connect(publisher_url) as publisher, contextlib.AsyncExitStack() as stack:
        await _other_filters(publisher_url, filters, stack)
        rows = await _advertised(publisher)
        counts = [0] * subscribers
        for i in range(subscribers):
            subscription = await _subscribed(subscriber_url, stack)
            stack.enter_context(_counting(subscription, counts, i))
        await _arrive(publisher, rows, counts)
        yield _Flow(publisher, rows, counts)


async def _advertised(publisher: Client) -> RawRows:
    names = ",".join(f"[{name},isPresent,0]" for name in ("open", "high", "low", "close", "volume", "day"))
    await publisher.advertise(f"[class,eq,'STOCK'],[symbol,isPresent,''],{names}")
    return publisher.encode([_quote(i) for i in range(ROWS)], _payload())


async def _subscribed(url: str, stack: contextlib.AsyncExitStack) -> Subscription:
    client = await stack.enter_async_context(connect(url))
    return await stack.enter_async_context(client.subscribe(_ALL))


async def _other_filters(url: str, count: int, stack: contextlib.AsyncExitStack) -> None:
    client = await stack.enter_async_context(connect(url))
    dice = random.Random(1)
    for start in range(0, count, 1000):
        several = [
            client.subscribe(f"[class,eq,'STOCK'],[symbol,eq,'{dice.choice(_SYMBOLS)}'],[volume,>,{10**9 + i}]")
            for i in range(start, min(start + 1000, count))
        ]
        await asyncio.gather(*(subscription.__aenter__() for subscription in several))


@contextlib.contextmanager
def _counting(subscription: Subscription, counts: list[int], place: int) -> Iterator[None]:
    async def count() -> None:
        async for batch in subscription.batches():
            counts[place] += batch.count

    task = asyncio.get_running_loop().create_task(count())
    try:
        yield
    finally:
        task.cancel()


async def _arrive(publisher: Client, rows: RawRows, counts: list[int]) -> None:
    """Publish until everybody gets it: a subscription takes its time through several brokers."""
    for _ in range(200):
        await publisher.publish_rows(rows)
        await publisher.flush()
        await asyncio.sleep(0.02)
        if all(counts):
            return
    raise OverweaveError("the network does not deliver")


def _quote(i: int) -> Mapping[str, object]:
    dice = random.Random(i)
    return {
        "class": "STOCK", "symbol": dice.choice(_SYMBOLS), "open": 1.5, "high": 2.5, "low": 1.0, "close": 2.0,
        "volume": dice.randrange(10, 10**6), "day": i,
    }  # fmt: skip


def _payload() -> bytes:
    """What a quote lacks of the size that all messages have."""
    from overweave.language.codec import encode_publication
    from overweave.language.publications import Publication

    return bytes(CONTENT_BYTES - len(encode_publication(Publication(_quote(0)))))


# ---- brokers


class _Brokers:
    def __init__(self, port: int, processes: Mapping[str, "subprocess.Popen[str]"]) -> None:
        self._port = port
        self._processes = processes

    def url(self, id: str) -> str:
        return f"tcp://127.0.0.1:{self._port + int(id[1:])}"

    def memory_mb(self, id: str) -> float:
        """What a process holds in memory; nan where the system does not tell."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._processes[id].pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return float("nan")


@contextlib.contextmanager
def _network(brokers: int, trace: Path | None = None) -> Iterator[_Brokers]:
    """A chain of brokers as processes, with traces in a directory if there is one."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        file, port = Path(directory) / "network.toml", mqtt.free_port(following=brokers)
        traces = "" if trace is None else f"trace = '{trace}'\n"
        file.write_text(f'[network]\nshape = "chain"\nbrokers = {brokers}\nport = {port}\n{traces}')
        processes = {}
        for i in range(1, brokers + 1):
            command = [sys.executable, "-m", "overweave", "broker", "--config", str(file), "--id", f"B{i}", "--until-eof"]
            processes[f"B{i}"] = stack.enter_context(_process(command))
        for id, process in processes.items():
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise OverweaveError(f"broker {id} did not start")
        yield _Brokers(port, processes)


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()
