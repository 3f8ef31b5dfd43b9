"""The same script gives the same load in the simulator and at a live broker."""

import asyncio
import time

import pytest

from overweave.contract.frames import BatchFrame
from overweave.contract.stimuli import FrameArrived, LoadMeasured
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.tcp.client import connect
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS
from overweave.testing.live import network_settings, running, until

ONE = Overlay(["B1"])
COUNT, PERIOD_S, SERVICE_S = 40, 0.04, 0.012
#: Large, so that frame heads and acknowledgements, which the simulator models as 64 bytes, weigh little.
CONTENT = {"x": 1, "text": "t" * 8000}
ANY = "[x,isPresent,0],[text,isPresent,'']"


class Totals:
    """Measurements added up: rates times periods."""

    def __init__(self):
        self.rows = self.bytes = self.sent_bytes = self.busy_s = self.window_s = 0.0
        self.input_busy_s = self.cpu_busy_s = self.waited_s = 0.0
        self.subscriptions = self.queue_length = 0
        self._last_s = None

    def add(self, now_s, load):
        if self._last_s is not None:
            period_s = now_s - self._last_s
            self.rows += load.input_hz * period_s
            self.bytes += load.put_bytes_per_s * period_s
            self.sent_bytes += load.sent_bytes_per_s * period_s
            self.window_s += load.window_s - period_s
            self.subscriptions, self.queue_length = load.subscriptions, load.queue_length
            self.input_busy_s += load.input_ratio * period_s
            self.cpu_busy_s += load.cpu_ratio * period_s
            self.waited_s += load.input_delay_s * load.input_hz * period_s
            self.busy_s += load.input_hz * period_s * load.matching_delay_s
        self._last_s = now_s


class Probe:
    watches = ()

    def __init__(self, totals):
        self._totals = totals

    def handle(self, stimulus, now_s):
        if isinstance(stimulus, LoadMeasured):
            self._totals.add(now_s, stimulus)
        return ()


def simulated():
    totals = Totals()
    network = SimulatedNetwork(
        ONE, PROTOCOLS["filter"].make, costs=Costs(matching_delay_base_s=SERVICE_S), make_modules=lambda _: {"p": Probe(totals)}
    )
    for client in ("p", "s"):
        network.add_client(client, "B1")
    network.say("p", Advertise("a", parse_filter(ANY)))
    network.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    network.scheduler.run(1.5)
    for number in range(COUNT):
        network.scheduler.at(1.5 + number * PERIOD_S, lambda _: network.publish("p", Publication(CONTENT)))
    network.scheduler.run(6.0)
    return totals


class Clock:
    """A clock that goes on only while the core works."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def spend(core, totals, clock):
    """Have the core take `SERVICE_S` for each batch of publications, and note its measurements."""
    handle = core.handle

    def slow(stimulus, now_s):
        if isinstance(stimulus, LoadMeasured):
            totals.add(time.monotonic(), stimulus)
        elif isinstance(stimulus, FrameArrived) and isinstance(stimulus.frame, BatchFrame):
            clock.now_s += SERVICE_S
        return handle(stimulus, now_s)

    core.handle = slow


async def live(clock):
    totals = Totals()
    async with running(network_settings(ONE)) as nodes:
        url = nodes["B1"].settings.listen
        async with connect(url) as publisher, connect(url) as subscriber:
            await publisher.advertise(ANY)
            async with subscriber.subscribe("[x,>,0]"):
                spend(nodes["B1"].core, totals, clock)
                await until(lambda: totals._last_s is not None)
                for _ in range(COUNT):
                    await publisher.publish(CONTENT)
                    await publisher.flush()
                    await asyncio.sleep(PERIOD_S)
                await until(lambda: totals.rows > COUNT - 0.5)
                last_s = totals._last_s
                await until(lambda: totals._last_s > last_s)
    return totals


def test_rows_bytes_and_busy_time_agree_within_five_percent(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    one, other = simulated(), asyncio.run(asyncio.wait_for(live(clock), timeout=60))
    assert one.rows == pytest.approx(COUNT)
    assert other.rows == pytest.approx(one.rows, rel=0.05)
    assert other.bytes == pytest.approx(one.bytes, rel=0.05)
    assert other.busy_s == pytest.approx(one.busy_s, rel=0.05)
    assert other.sent_bytes == pytest.approx(one.sent_bytes, rel=0.05)
    assert one.sent_bytes == pytest.approx(one.bytes, rel=0.05)
    assert one.subscriptions == other.subscriptions == 1
    for name in ("input_busy_s", "cpu_busy_s"):
        assert getattr(one, name) == pytest.approx(COUNT * SERVICE_S, rel=0.05)
        assert getattr(other, name) == pytest.approx(COUNT * SERVICE_S, rel=0.05)
    # Publications come one by one, so that none waits for another. The output of the simulator has no bandwidth here.
    assert one.waited_s == pytest.approx(0.0, abs=1e-9)
    assert other.waited_s / COUNT < SERVICE_S / 2
    assert one.queue_length == other.queue_length == 0
    # Windows are those of the measurements, on a busy machine too.
    assert one.window_s == pytest.approx(0.0, abs=1e-9)
    assert other.window_s == pytest.approx(0.0, abs=0.2)
