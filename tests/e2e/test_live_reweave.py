"""A small run of ``python -m overweave.testing.live_reweave``: 4 brokers become 2 under traffic, and ``apply`` is killed once."""

from overweave.testing.live_reweave.__main__ import run
from overweave.testing.live_reweave.network import Size
from overweave.testing.live_reweave.scenario import Options


def test_a_plan_is_applied_by_a_command_that_is_killed_and_run_again():
    size = Size(brokers=4, clients=8, filters=2, publishers=4, rate_hz=200.0)
    report = run(Options(size=size, target=2, window_s=0.0, kill_apply=1, kill_s=0.5, steady_s=1.0))
    found = {row.step: row for row in report.rows}
    assert not report.failed, [row for row in report.rows if not row.ok]
    assert {"change 1", "change 1: kills of apply", "change 1: second apply", "change 1: oracle"} <= found.keys()
    assert found["change 1: kills of apply"].text.startswith("1 ")
    assert " 0 lost, 0 repeated" in found["change 1: oracle"].text
