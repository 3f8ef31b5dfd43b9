"""Live networks and clients for benchmarks: brokers as processes, a publisher with rows that were encoded before, and subscribers
that count what they get.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter

from overweave.batches.raw import RawRows
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import OverweaveError

CONTENT_BYTES = 200
ROWS = 1_000
_SYMBOLS = [f"S{i}" for i in range(500)]
#: What every quote is within.
ALL = "[class,eq,'STOCK'],[volume,>,5]"


class Flow:
    """A publisher, and what its subscribers have got so far."""

    def __init__(self, publisher: Client, rows: RawRows, counts: list[int]) -> None:
        self._publisher = publisher
        self._rows = rows
        self.counts = counts
        #: How many rows were published so far.
        self.published = 0

    async def rate_hz(self, seconds: float) -> float:
        """Publish at full speed, and return the count."""
        before, start_s = sum(self.counts), perf_counter()
        while perf_counter() - start_s < seconds:
            await self._publisher.publish_encoded(self._rows)
            self.published += self._rows.count
        await self._publisher.flush()
        return (sum(self.counts) - before) / (perf_counter() - start_s)


@contextlib.asynccontextmanager
async def flowing(publisher_url: str, subscriber_url: str, subscribers: int, filters: int, each: int = 1) -> AsyncIterator[Flow]:
    """A publisher whose quotes all of several subscribers get, beside filters that match none; a subscriber has ``each``
    subscriptions, of which the others match few quotes.
    """
    async with connect(publisher_url) as publisher, contextlib.AsyncExitStack() as stack:
        await add_filters(publisher_url, 0, filters, stack)
        rows = await advertised(publisher)
        counts = [0] * subscribers
        for i in range(subscribers):
            subscription = await subscribed(subscriber_url, stack, each)
            stack.enter_context(counting(subscription, counts, i))
        await arrive(publisher, rows, counts)
        yield Flow(publisher, rows, counts)


async def advertised(publisher: Client) -> RawRows:
    """Advertise quotes, and encode some."""
    names = ",".join(f"[{name},isPresent,0]" for name in ("open", "high", "low", "close", "volume", "day"))
    await publisher.advertise(f"[class,eq,'STOCK'],[symbol,isPresent,''],{names}")
    return publisher.encode([quote(i) for i in range(ROWS)], payload())


async def subscribed(url: str, stack: contextlib.AsyncExitStack, each: int = 1) -> Subscription:
    """Subscribe to all quotes by a client of its own, which has others as well if it is to have several subscriptions."""
    client = await stack.enter_async_context(connect(url))
    for number in range(1, each):
        low = number * 100_000
        other = await stack.enter_async_context(client.subscribe(f"[class,eq,'STOCK'],[volume,>,{low}],[volume,<,{low + 5_000}]"))
        stack.enter_context(counting(other, [0], 0))
    return await stack.enter_async_context(client.subscribe(ALL))


async def add_filters(url: str, first: int, count: int, stack: contextlib.AsyncExitStack) -> None:
    """Subscribe, by a client of its own, to quotes that there are none of: those numbered from ``first`` up to ``count``."""
    client = await stack.enter_async_context(connect(url))
    dice = random.Random(1 + first)
    for start in range(first, count, 1000):
        several = [
            client.subscribe(f"[class,eq,'STOCK'],[symbol,eq,'{dice.choice(_SYMBOLS)}'],[volume,>,{10**9 + i}]")
            for i in range(start, min(start + 1000, count))
        ]
        await asyncio.gather(*(subscription.__aenter__() for subscription in several))


@contextlib.contextmanager
def counting(subscription: Subscription, counts: list[int], place: int) -> Iterator[None]:
    """Count what a subscription gets."""

    async def count() -> None:
        async for batch in subscription.batches():
            counts[place] += batch.count

    task = asyncio.get_running_loop().create_task(count())
    try:
        yield
    finally:
        task.cancel()


async def arrive(publisher: Client, rows: RawRows, counts: list[int], within_s: float = 10.0) -> None:
    """Publish until everybody gets all of it: a subscription takes its time through several brokers."""
    end_s = perf_counter() + within_s
    while perf_counter() < end_s:
        before = list(counts)
        await publisher.publish_encoded(rows)
        await publisher.flush()
        await asyncio.sleep(0.02)
        if all(count - already == rows.count for count, already in zip(counts, before, strict=True)):
            return
    raise OverweaveError("the network does not deliver")


def quote(i: int) -> Mapping[str, object]:
    """A quote that depends on a number."""
    dice = random.Random(i)
    return {
        "class": "STOCK", "symbol": dice.choice(_SYMBOLS), "open": 1.5, "high": 2.5, "low": 1.0, "close": 2.0,
        "volume": dice.randrange(10, 10**6), "day": i,
    }  # fmt: skip


def payload() -> bytes:
    """What a quote lacks of the size that all messages have."""
    from overweave.language.codec import encode_publication
    from overweave.language.publications import Publication

    return bytes(CONTENT_BYTES - len(encode_publication(Publication(quote(0)))))


# ---- brokers


class Brokers:
    """Brokers in processes of their own."""

    def __init__(self, port: int, processes: Mapping[str, "subprocess.Popen[str]"]) -> None:
        self._port = port
        self._processes = processes

    def url(self, id: str) -> str:
        """Where a broker listens."""
        return f"tcp://127.0.0.1:{self._port + int(id[1:])}"

    def memory_mb(self, id: str) -> float:
        """The memory of a process; nan if the system does not report it."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._processes[id].pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        return float("nan")

    def cpu_s(self) -> float:
        """The CPU time of all processes; nan if the system does not report it."""
        spent = 0.0
        for process in self._processes.values():
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return float("nan")
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return spent


@contextlib.contextmanager
def network(
    brokers: int, trace: Path | None = None, routing: str = "filter", shape: str = "chain", modules: Iterable[str] = ()
) -> Iterator[Brokers]:
    """A chain of brokers as processes, with modules, and with traces in a directory if there is one."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        file, port = Path(directory) / "network.toml", free_ports(brokers + 1)[0]
        traces = "" if trace is None else f"trace = '{trace}'\n"
        tables = "".join(f"[modules.{name}]\n" for name in modules)
        file.write_text(
            f'[network]\nrouting = "{routing}"\nshape = "{shape}"\nbrokers = {brokers}\nport = {port}\n{traces}{tables}'
        )
        processes = {}
        for i in range(1, brokers + 1):
            command = [sys.executable, "-m", "overweave", "broker", "--config", str(file), "--id", f"B{i}", "--until-eof"]
            processes[f"B{i}"] = stack.enter_context(_process(command, Path(directory) / f"B{i}.log"))
        for id, process in processes.items():
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                said = (Path(directory) / f"{id}.log").read_text().splitlines()
                raise OverweaveError(f"broker {id} did not start: {said[-1] if said else 'it said nothing'}")
        yield Brokers(port, processes)
        for process in processes.values():  # all at once, otherwise each would wait for the others
            process.terminate()


@contextlib.contextmanager
def _process(command: list[str], log: Path) -> Iterator["subprocess.Popen[str]"]:
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()
