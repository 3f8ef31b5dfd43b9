"""Fuzzing of a live broker with malformed and hostile peers.

The broker runs in its own process. Two valid clients publish to each other all the time. Attackers send random bytes, mutated
frames (before and after authentication), impossible lengths, names of other clients, half-open connections and connection
storms. Afterwards the broker must be up, with the memory and the sockets of before, and without an internal error on its
standard error. The valid clients must have received everything once, in order and in time.
"""

import asyncio
import contextlib
import random
import time

import msgspec
import numpy as np

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.overlay.graph import Overlay
from overweave.testing.fuzz.attack import Attack
from overweave.testing.fuzz.pair import Pair
from overweave.testing.live import BrokerProcess, network_settings, processes, raise_descriptor_limit, until

#: How many attacks run side by side.
ATTACKERS = 32


#: What the broker may hold more at the end than after the first part of the time.
GROWTH_BYTES_MAX = 48 << 20


#: How long a publication of a good client may take, now and then and at worst; this process has two cores and much to do.
LATENCY_S_P99, LATENCY_S_MAX = 1.0, 5.0


#: What the broker would say if something went wrong in it.
_MISTAKES = ("Traceback", "Fatal error", "Exception", "never retrieved", "AssertionError")


_CONFIG = BrokerConfig(
    SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005), slow_consumer_timeout_s=1.0
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What happened."""

    seconds: float
    attacks: dict[str, int]
    connections: int
    frames: int
    bytes_sent: int
    memory_bytes_before: int
    memory_bytes_after: int
    memory_bytes_max: int
    descriptors_before: int
    descriptors_after: int
    published: int
    received: int
    latency_s_p50: float
    latency_s_p99: float
    latency_s_max: float

    def check(self) -> None:
        """Raise an AssertionError if the broker or the good clients have suffered."""
        assert self.received == self.published > 0, f"{self.published} published, {self.received} received"
        growth = self.memory_bytes_after - self.memory_bytes_before
        assert growth <= GROWTH_BYTES_MAX, f"memory has grown by {growth:,} bytes"
        assert self.descriptors_after <= self.descriptors_before, "sockets are left open"
        assert self.latency_s_p99 <= LATENCY_S_P99, f"latency p99 {self.latency_s_p99:.3f} s"
        assert self.latency_s_max <= LATENCY_S_MAX, f"latency {self.latency_s_max:.3f} s"


def fuzz(seconds: float, seed: int) -> Report:
    """Attack a broker of its own for a while; an AssertionError if it does not bear it."""
    raise_descriptor_limit()
    settings = network_settings(Overlay(["B1"]), session_expiry_s=1.0, ping_interval_s=1.0, config=_CONFIG)
    with processes(settings) as brokers:
        broker = brokers["B1"]
        report = asyncio.run(_fuzz(broker, seconds, seed))
        assert broker.alive, f"the broker died: {broker.errors()[-2000:]}"
        log = broker.errors()
        at = min((log.find(each) for each in _MISTAKES if each in log), default=-1)
        assert at < 0, f"the broker made a mistake: {log[max(at - 500, 0) : at + 3000]}"
    return report


async def _fuzz(broker: BrokerProcess, seconds: float, seed: int) -> Report:
    async with Pair(broker.url) as pair:
        descriptors = broker.descriptors()
        attack = Attack(broker.url, random.Random(seed))
        memory = [broker.memory_bytes()]
        start_s = time.monotonic()
        warm_s, end_s = start_s + min(seconds / 3, 60.0), start_s + seconds
        attackers = [asyncio.create_task(attack.run_until(end_s)) for _ in range(ATTACKERS)]
        while time.monotonic() < end_s:
            await asyncio.sleep(min(seconds / 20, 1.0))
            assert broker.alive, f"the broker died: {broker.errors()[-2000:]}"
            pair.check()
            if time.monotonic() < warm_s:
                memory = []
            memory.append(broker.memory_bytes())
        await asyncio.gather(*attackers)
        await pair.finish()
        with contextlib.suppress(AssertionError):
            await until(lambda: broker.descriptors() <= descriptors, within_s=8.0)
        latencies_s = np.concatenate(pair.latencies_s)
        return Report(
            seconds=time.monotonic() - start_s, attacks=attack.counts, connections=attack.connections, frames=attack.frames,
            bytes_sent=attack.bytes_sent, memory_bytes_before=memory[0], memory_bytes_after=broker.memory_bytes(),
            memory_bytes_max=max(memory), descriptors_before=descriptors, descriptors_after=broker.descriptors(),
            published=pair.published, received=pair.received, latency_s_p50=float(np.percentile(latencies_s, 50)),
            latency_s_p99=float(np.percentile(latencies_s, 99)), latency_s_max=float(latencies_s.max()),
        )  # fmt: skip
