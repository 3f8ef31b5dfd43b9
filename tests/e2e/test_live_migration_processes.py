"""A small run of ``python -m overweave.testing.live_migrations``: brokers and clients in processes of their own, with kill -9."""

import asyncio

from overweave.testing.live_migrations import kills


def test_the_old_broker_and_the_client_are_killed_during_migrations():
    report = asyncio.run(kills.run(1, 500.0, seed=3, victims=("old", "client")))
    assert not report.failed, [*report.verdict.examples, *report.failures]
    assert report.verdict.due > 100
    assert len(report.durations_s) == 2
