"""A small run of ``python -m overweave.testing.live_reweave``: 4 brokers become 2 under traffic, and ``apply`` is killed once.

Its measurement of pauses sees a publisher of real brokers that resumes late.
"""

import asyncio
import time

import pytest

from overweave.broker.client.migration import Migrations
from overweave.broker.client.migration_state import MigrationPhase
from overweave.contract.stimuli import MigrateClient
from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until
from overweave.testing.live_reweave.__main__ import run
from overweave.testing.live_reweave.network import Size
from overweave.testing.live_reweave.publishers import TimedPublisher, watch_pauses
from overweave.testing.live_reweave.results import is_brief
from overweave.testing.live_reweave.scenario import Options


def test_a_plan_is_applied_by_a_command_that_is_killed_and_run_again():
    size = Size(brokers=4, clients=8, filters=2, publishers=4, rate_hz=200.0)
    report = run(Options(size=size, target=2, window_s=0.0, kill_apply=1, kill_s=0.5, steady_s=1.0))
    found = {row.step: row for row in report.rows}
    assert not report.failed, [row for row in report.rows if not row.ok]
    assert {"change 1", "change 1: kills of apply", "change 1: second apply", "change 1: oracle"} <= found.keys()
    assert found["change 1: kills of apply"].text.startswith("1 ")
    assert " 0 lost, 0 repeated" in found["change 1: oracle"].text


async def longest_pause_s():
    """The pause of a publisher that moves between two brokers."""
    settings = network_settings(Overlay(["B1", "B2"], [("B1", "B2")]))
    async with running(settings) as nodes, connect(settings["B1"].listen, name="p") as client:
        publisher = TimedPublisher(client)
        await publisher.start()
        tasks = [*publisher.tasks, asyncio.create_task(watch_pauses([publisher]))]
        await publisher.set_rate(100.0)
        await asyncio.sleep(0.5)
        publisher.forget_pauses()
        nodes["B1"].handle(MigrateClient("t", "p", "B2"))
        await until(lambda: client.broker == "B2", what="that it has moved")
        await asyncio.sleep(0.1)
        await publisher.set_rate(0.0)
        publisher.check()
        for task in tasks:
            task.cancel()
        return publisher.longest_pause_s


@pytest.mark.parametrize("late_s", [0.0, 0.5])
def test_a_publisher_that_resumes_late_fails_the_check_of_pauses(late_s, monkeypatch):
    """`publish` returns at once while publications are buffered: only the buffer shows the pause."""
    begun, step = {}, Migrations._step

    def late(self, current, effects):
        if (
            current.phase is MigrationPhase.ADVERTISING
            and time.monotonic() < begun.setdefault(current, time.monotonic()) + late_s
        ):
            return False
        return step(self, current, effects)

    monkeypatch.setattr(Migrations, "_step", late)
    pause_s = asyncio.run(asyncio.wait_for(longest_pause_s(), 60))
    assert pause_s >= late_s
    assert is_brief([0.01] * 40 + [pause_s]) == (late_s == 0.0), pause_s
