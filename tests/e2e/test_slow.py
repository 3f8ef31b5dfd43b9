"""A client that subscribes and then never reads: it is told why and cut off, and nobody else suffers."""

import asyncio
import contextlib
import socket
import statistics
import time

import msgspec

from overweave.broker.client import ClientCore
from overweave.contract.effects import SendFrame
from overweave.contract.frames import Frame
from overweave.contract.stimuli import FrameArrived, PeerConnected
from overweave.contract.wire import FRAME_BYTES_MAX, Connect, Error, encode
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.language.messages import Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes

#: What brokers are shipped with.
CONFIG = network_settings(Overlay(["B1"]))["B1"].config
PATIENCE_S = 1.5
TURNS, MEASURED_S = 3, 0.8
ROWS = 200
PAYLOAD = bytes(100)


class NeverReads:
    """Speaks until it has subscribed."""

    def __init__(self, url, name):
        address = parse_address(url)
        self.socket = socket.create_connection((address.host, address.port))
        self.reader = FrameReader()
        self.reader.bytes_max = FRAME_BYTES_MAX
        self.core = ClientCore(name, "B1")
        self.send(Connect("client", name, None, "key"))

    def send(self, message):
        self.socket.sendall(b"".join(encode(message)))

    def carry_out(self, effects):
        for effect in effects:
            if isinstance(effect, SendFrame):
                self.send(effect.frame)

    def subscribe(self, filter):
        self.carry_out(self.core.send_control(Subscribe(f"{self.core.id}/s", parse_filter(filter)), 0.0))
        while self.core.unsettled():
            for message in self.messages():
                if isinstance(message, Connect):
                    self.carry_out(self.core.handle(PeerConnected("B1"), 0.0))
                elif isinstance(message, Frame):
                    self.carry_out(self.core.handle(FrameArrived("B1", message), 0.0))

    def messages(self):
        data = self.socket.recv(1 << 20)
        return list(self.reader.feed(data)) if data else None


class Others:
    """A publisher that never rests and a subscriber that keeps up."""

    def __init__(self, publisher, subscription):
        self.publisher = publisher
        self.rows = publisher.encode([{"n": i} for i in range(ROWS)], PAYLOAD)
        self.got = 0
        #: The longest that the publisher had to wait for room in its window.
        self.wait_s = 0.0
        self.taking = asyncio.create_task(self.take(subscription))

    async def take(self, subscription):
        async for batch in subscription.batches():
            self.got += batch.count

    async def rate_hz(self, seconds):
        before, self.wait_s, start_s = self.got, 0.0, time.perf_counter()
        now_s = start_s
        while now_s - start_s < seconds:
            await self.publisher.publish_encoded(self.rows)
            await asyncio.sleep(0)
            self.wait_s = max(self.wait_s, time.perf_counter() - now_s)
            now_s = time.perf_counter()
        return (self.got - before) / (now_s - start_s)


async def with_a_reader(broker, others):
    """What the others reach when there is one more client that wants every row, and reads."""
    async with connect(broker.url) as client, client.subscribe("[n,>=,0]") as subscription:
        reader = Others(client, subscription)
        rate_hz = await others.rate_hz(MEASURED_S)
        await others.publisher.flush()
        reader.taking.cancel()
        return rate_hz


async def with_one_that_never_reads(broker, others, name):
    """What they reach when it does not read, the longest wait and the most memory; it ends when the client is gone."""
    descriptors = broker.descriptors()
    slow = await asyncio.to_thread(NeverReads, broker.url, name)
    await asyncio.to_thread(slow.subscribe, "[n,>=,0]")
    rate_hz, wait_s, most = await others.rate_hz(MEASURED_S), others.wait_s, broker.memory_bytes()
    for _ in range(100):
        await others.rate_hz(0.1)
        most = max(most, broker.memory_bytes())
        if broker.descriptors() <= descriptors:
            break
    else:
        raise AssertionError("it was not cut off")
    slow.socket.close()
    await asyncio.wait_for(others.publisher.flush(), timeout=20)
    return rate_hz, wait_s, most


async def go(broker):
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(broker.url))
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(broker.url))
        others = Others(publisher, await stack.enter_async_context(subscriber.subscribe("[n,>=,0]")))
        stack.callback(others.taking.cancel)
        await others.rate_hz(0.5)
        memory = broker.memory_bytes()
        turns = [
            (
                await others.rate_hz(MEASURED_S),
                await with_a_reader(broker, others),
                *await with_one_that_never_reads(broker, others, f"slow{turn}"),
            )
            for turn in range(TURNS)
        ]
        alone_hz, reader_hz, slow_hz, wait_s, _ = map(statistics.median, zip(*turns, strict=True))
        more = max(turn[-1] for turn in turns) - memory
        print(
            f"{alone_hz:,.0f} rows a second alone, {reader_hz:,.0f} with one more client that reads, {slow_hz:,.0f} with one "
            f"that never does, longest wait {wait_s * 1e3:.0f} ms, memory +{more / 1e6:.1f} MB"
        )
        # Measured are 1.02 to 1.29; it was 0.6 before relief came at once (decision 0006).
        assert slow_hz > 0.85 * reader_hz
        assert wait_s < CONFIG.stall_timeout_s / 2
        assert more < 200e6
        assert broker.alive


def test_nobody_suffers_from_a_client_that_never_reads():
    with processes(network_settings(Overlay(["B1"]), config=CONFIG)) as brokers:
        asyncio.run(go(brokers["B1"]))


def test_a_client_that_reads_too_late_is_told_why():
    """It reads when its patience is over, but before the broker gives up telling it."""

    async def work(broker):
        async with connect(broker.url) as publisher:
            await publisher.advertise("[n,>=,0]")
            rows = publisher.encode([{"n": i} for i in range(ROWS)], PAYLOAD)
            slow = await asyncio.to_thread(NeverReads, broker.url, "slow")
            await asyncio.to_thread(slow.subscribe, "[n,>=,0]")
            for _ in range(80):
                await publisher.publish_encoded(rows)
            start_s = time.perf_counter()
            await asyncio.wait_for(publisher.flush(), timeout=10)  # settled when the broker keeps it on its own account
            assert time.perf_counter() - start_s < CONFIG.stall_timeout_s
            await asyncio.sleep(1.5 * PATIENCE_S)

            def read_all():
                last = None
                while (messages := slow.messages()) is not None:
                    last = messages[-1] if messages else last
                return last

            last = await asyncio.wait_for(asyncio.to_thread(read_all), timeout=10)
            slow.socket.close()
            assert isinstance(last, Error)
            assert last.code == "slow-consumer"

    config = msgspec.structs.replace(CONFIG, slow_consumer_timeout_s=PATIENCE_S)
    with processes(network_settings(Overlay(["B1"]), config=config)) as brokers:
        asyncio.run(work(brokers["B1"]))
