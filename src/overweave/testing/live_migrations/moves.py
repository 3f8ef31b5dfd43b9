"""Migrations of publishers and subscribers in turn under traffic, without faults."""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from overweave.overlay.graph import Overlay
from overweave.testing.counts import Verdict
from overweave.testing.live_migrations.network import LiveNetwork

BROKERS = 4
PUBLISHERS, SUBSCRIBERS = ("p0", "p1"), ("s0", "s1")
_WITHIN_S = 240.0
#: The delay after a rejected order: a client may be a slow consumer on a busy machine.
_RETRY_S = 1.0
#: The least published rate, as a share of the ordered one.
_RATE_SHARE = 0.95


class Report(msgspec.Struct):
    """The result of a series of migrations."""

    verdict: Verdict
    migrations: int = 0
    #: Orders whose client stayed, and other failures.
    rejected: list[str] = []
    failures: list[str] = []
    #: The time from each order to its result.
    durations_s: list[float] = []
    #: Publications per second, and deliveries.
    published_hz: float = 0.0
    delivered_hz: float = 0.0
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return self.verdict.failed or bool(self.failures)

    def measure_rates(self, published: int, seconds: float, rate_hz: float) -> None:
        """Set the rates of some seconds of traffic; clearly fewer publications than ordered are a failure.

        >>> report = Report(Verdict())
        >>> report.measure_rates(9_600, 1.0, 10_000.0)
        >>> report.measure_rates(9_400, 1.0, 10_000.0)
        >>> report.failures
        ['9,400 publications per second, expected at least 95% of 10,000']
        """
        self.published_hz, self.delivered_hz = published / seconds, self.verdict.due / seconds
        if self.published_hz < _RATE_SHARE * rate_hz:
            text = f"{self.published_hz:,.0f} publications per second, expected at least {_RATE_SHARE:.0%} of {rate_hz:,.0f}"
            self.failures.append(text)


def overlay_for(routing: str) -> Overlay:
    """A chain, or a ring for `destination`."""
    ids = [f"B{number}" for number in range(1, BROKERS + 1)]
    links = itertools.pairwise([*ids, ids[0]] if routing == "destination" else ids)
    return Overlay(ids, links)


@asynccontextmanager
async def network(routing: str, kinds: int) -> AsyncIterator[LiveNetwork]:
    """Four brokers; two publishers of some kinds, and two subscribers of one each, at different brokers."""
    with tempfile.TemporaryDirectory(prefix="migrations") as directory:
        async with LiveNetwork(overlay_for(routing), Path(directory), routing) as made:
            names = [f"K{place}" for place in range(kinds)]
            ids = made.overlay.ids
            for place, name in enumerate(SUBSCRIBERS):
                await made.add_subscribers((name,), ids[-1 - place], [names[place % kinds]])
            for place, name in enumerate(PUBLISHERS):
                await made.add_publisher(name, ids[place], names)
            yield made


async def run(moves: int, rate_hz: float, seed: int, routing: str = "filter") -> Report:
    """Move a publisher, then a subscriber, ``moves`` times each."""
    dice, start_s = random.Random(seed), time.monotonic()
    async with network(routing, kinds=2) as made:
        report = Report(Verdict())
        homes = await made.settled_homes(_WITHIN_S)
        await made.publish(rate_hz)
        traffic_s = time.monotonic()
        while report.migrations < 2 * moves and len(report.rejected) <= moves:
            client = dice.choice(SUBSCRIBERS if report.migrations % 2 else PUBLISHERS)
            to = dice.choice([broker for broker in made.overlay.ids if broker != homes[client]])
            ordered_s = time.monotonic()
            error = await asyncio.wait_for(made.move(client, homes[client], to), _WITHIN_S)
            report.durations_s.append(time.monotonic() - ordered_s)
            if error is None:
                report.migrations, homes[client] = report.migrations + 1, to
            else:
                report.rejected.append(f"{client} from {homes[client]} to {to}: {error}")
                await asyncio.sleep(_RETRY_S)
        if report.migrations < 2 * moves:
            report.failures += report.rejected
        published, traffic_s = await made.published(), time.monotonic() - traffic_s
        report.verdict = await made.check()
        report.measure_rates(published, traffic_s, rate_hz)
        if (settled := await made.settled_homes(_WITHIN_S)) != homes:
            report.failures.append(f"clients are at {settled}, expected {homes}")
        report.failures += [*await made.leave(), *made.mistakes()]
    report.seconds = time.monotonic() - start_s
    return report
