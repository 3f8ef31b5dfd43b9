"""A client that subscribes and then never reads: it is told why and cut off, and nobody else suffers."""

import asyncio
import contextlib
import socket
import time

from overweave.broker.client import ClientCore
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import SendFrame
from overweave.contract.frames import Frame
from overweave.contract.stimuli import FrameArrived, PeerConnected
from overweave.contract.wire import FRAME_BYTES_MAX, Open, Refused, encode
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.connection import FrameReader
from overweave.language.messages import Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes, until

PATIENCE_S = 1.5
STALL_S = 0.1
CONFIG = BrokerConfig(
    SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005), stall_s=STALL_S, patience_s=PATIENCE_S
)
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
        self.send(Open("client", name, None, "key"))

    def send(self, message):
        self.socket.sendall(b"".join(encode(message)))

    def carry_out(self, effects):
        for effect in effects:
            if isinstance(effect, SendFrame):
                self.send(effect.frame)

    def subscribe(self, filter):
        self.carry_out(self.core.say(Subscribe(f"{self.core.id}/s", parse_filter(filter)), 0.0))
        while self.core.unsettled():
            for message in self.messages():
                if isinstance(message, Open):
                    self.carry_out(self.core.handle(PeerConnected("B1"), 0.0))
                elif isinstance(message, Frame):
                    self.carry_out(self.core.handle(FrameArrived("B1", message), 0.0))

    def messages(self):
        data = self.socket.recv(1 << 20)
        return list(self.reader.feed(data)) if data else None


async def rate_hz(publisher, rows, got, seconds):
    before, start_s = len(got), time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        await publisher.publish_rows(rows)
        await asyncio.sleep(0)
    await until(lambda: len(got) * ROWS >= (publisher._core.next_sequence - publisher.first))
    return (len(got) - before) * ROWS / (time.perf_counter() - start_s)


async def go(broker):
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(broker.url))
        publisher.first = publisher._core.next_sequence
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(broker.url))
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
        got = []

        async def take():
            async for batch in subscription.batches():
                got.extend([batch.count] * (batch.count // ROWS))

        stack.callback(asyncio.create_task(take()).cancel)
        rows = publisher.encode([{"n": i} for i in range(ROWS)], PAYLOAD)
        await rate_hz(publisher, rows, got, 0.3)
        before_hz = await rate_hz(publisher, rows, got, 0.5)
        memory, descriptors = broker.memory_bytes(), broker.descriptors()
        slow = await asyncio.to_thread(NeverReads, broker.url, "slow")
        stack.callback(slow.socket.close)
        await asyncio.to_thread(slow.subscribe, "[n,>=,0]")
        start_s, already, most = time.perf_counter(), len(got), memory
        while broker.descriptors() > descriptors:
            await publisher.publish_rows(rows)
            await asyncio.sleep(0)
            most = max(most, broker.memory_bytes())
            assert time.perf_counter() - start_s < 15, "it was not cut off"
        gone_s = time.perf_counter() - start_s
        during_hz = (len(got) - already) * ROWS / gone_s
        await asyncio.wait_for(publisher.flush(), timeout=20)
        after_hz = await rate_hz(publisher, rows, got, 0.5)
        print(
            f"{before_hz:,.0f} rows a second before, {during_hz:,.0f} while it blocks and {after_hz:,.0f} after, "
            f"gone after {gone_s:.2f} s, memory +{(most - memory) / 1e6:.1f} MB at worst and "
            f"+{(broker.memory_bytes() - memory) / 1e6:.1f} MB after"
        )
        # It holds the others up until it is seen to stand still, and that is all.
        assert gone_s > 5 * STALL_S
        assert during_hz > before_hz / 2
        assert after_hz > before_hz / 2
        assert most - memory < 200e6
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
                await publisher.publish_rows(rows)
            start_s = time.perf_counter()
            await asyncio.wait_for(publisher.flush(), timeout=10)  # settled when the broker keeps it on its own account
            assert time.perf_counter() - start_s < PATIENCE_S
            await asyncio.sleep(1.5 * PATIENCE_S)

            def read_all():
                last = None
                while (messages := slow.messages()) is not None:
                    last = messages[-1] if messages else last
                return last

            last = await asyncio.wait_for(asyncio.to_thread(read_all), timeout=10)
            slow.socket.close()
            assert isinstance(last, Refused)
            assert last.code == "slow-consumer"

    with processes(network_settings(Overlay(["B1"]), config=CONFIG)) as brokers:
        asyncio.run(work(brokers["B1"]))
