"""What fails a run of ``python -m overweave.testing.live_migrations``: a slow drain, a low rate, registrations in journals."""

import asyncio

import pytest

from overweave.broker.counters import Statistics
from overweave.contract.overlay_state import OverlayRecord, first_state
from overweave.drivers.tcp.journal import JournalFile
from overweave.language.syntax import parse_filter
from overweave.overlay.fixed_shapes import chain
from overweave.testing.counts import Verdict
from overweave.testing.live_migrations import drain, network
from overweave.testing.live_migrations.__main__ import _print
from overweave.testing.live_migrations.moves import Report
from overweave.testing.live_migrations.network import STATE, LiveNetwork

EMPTY = Statistics(0, 0, 0, 0, 0, 0, tables={"subscriptions": 0}, unsettled={})


class Snapshot:
    statistics, migrations = EMPTY, {}


@pytest.mark.parametrize(("duration_s", "failed"), [(60.0, False), (60.5, True)])
def test_a_drain_of_more_than_a_minute_fails(duration_s, failed, capsys):
    drained = drain.Drained(empty=True, moved={"c": "B1"}, stayed={}, duration_s=duration_s)
    report = Report(Verdict(), failures=drain.failures_of(drained))
    assert _print("drain", report) is failed
    assert ("expected at most 60 s" in capsys.readouterr().out) is failed


@pytest.mark.parametrize(("published", "failed"), [(19_000, False), (18_900, True)])
def test_a_rate_below_95_percent_of_the_ordered_one_fails(published, failed, capsys):
    report = Report(Verdict(due=40_000))
    report.measure_rates(published, 2.0, 10_000.0)
    assert _print("moves", report) is failed
    assert f"{published / 2:,.0f} publications and 20,000 deliveries per second" in capsys.readouterr().out


def left(made, broker):
    async def scenario():
        return [text async for text in made._left(broker)]

    return asyncio.run(scenario())


def test_registrations_in_a_journal_are_left_though_the_tables_are_empty(tmp_path, monkeypatch):
    async def fetched(_):
        return Snapshot

    monkeypatch.setattr(network, "fetch_snapshot", fetched)
    made = LiveNetwork(chain(2), tmp_path)
    for broker in made.brokers.values():
        broker.stop()
    assert left(made, "B1") == [f"B1 has no journal in {tmp_path / STATE}"]
    journal = JournalFile(tmp_path / STATE, "B1")
    journal.open()
    try:  # as a running broker has it: locked
        journal.commit([(("overlay", ""), OverlayRecord(first_state(chain(2))))])
        assert left(made, "B1") == []
        journal.commit([(("subscription", "s/1"), ("s", parse_filter("[x,>,1]")))])
        assert left(made, "B1") == ["the journal of B1 has 1 registrations: ['s/1']"]
        journal.commit([(("subscription", "s/1"), None)])
        assert left(made, "B1") == []
    finally:
        journal.close()
