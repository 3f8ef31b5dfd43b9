"""Runners of many seeds: in several processes, with progress, and interrupted."""

import re
import signal
import subprocess
import sys

import pytest

from overweave.testing import many_runs, migrations
from overweave.testing.migration_run import Outcome
from overweave.testing.reweave import __main__ as reweave
from overweave.testing.reweave import run as of_reweave
from overweave.testing.seeds import runner as seeds


@pytest.mark.parametrize(("jobs", "chunk"), [(1, 1), (2, 1), (2, 3), (2, 99)])
def test_every_run_has_its_result(jobs, chunk):
    each = [(number, 7) for number in range(20)]
    assert sorted(many_runs.run_all(divmod, each, jobs, chunk)) == [(both, divmod(*both)) for both in each]


def test_an_error_of_a_run_is_raised():
    with pytest.raises(ZeroDivisionError):
        list(many_runs.run_all(divmod, [(1, 1), (1, 0)], 2))


@pytest.mark.parametrize(("is_terminal", "count"), [(True, 20), (False, 1)])
def test_progress_is_reported_more_often_on_a_terminal(is_terminal, count, monkeypatch, capsys):
    now_s = [0.0]
    monkeypatch.setattr(many_runs.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
    progress = many_runs.Progress(2_000, "runs")
    for done in range(1, 1_001):
        now_s[0] += 0.101
        progress.report(done, 2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == pytest.approx(count, abs=1)
    assert re.fullmatch(r"[0-9,]+ of 2,000 runs, 2 failed, 9\.9/s", lines[0])


def test_migrations_in_two_processes_have_the_same_results(capsys):
    arguments = ["--seeds", "3", "--protocol", "filter", "--kind", "subscriber", "--faults", "none"]
    printed = []
    for jobs in ("1", "2"):
        assert migrations.main([*arguments, "--jobs", jobs]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("3 runs, ")


SLEEPERS = """
import time
from overweave.testing.many_runs import exit_with, run_all

def main():
    try:
        for _ in run_all(time.sleep, [(0.1,)] * 10_000, 2):
            print("one", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130

exit_with(main)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_end_at_once_also_if_they_are_interrupted_twice(number):
    with subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "one\n"
        process.send_signal(number)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert out.splitlines()[-1] == "interrupted"
        assert process.returncode == 130


RUNNERS = [
    (migrations, ["--kind", "both"], Outcome, "1 runs, 3 publications"),
    (reweave, [], of_reweave.Outcome, "0 of 1 runs failed"),
]


@pytest.mark.parametrize(("runner", "arguments", "make", "text"), RUNNERS, ids=["migrations", "reweave"])
@pytest.mark.parametrize("failures", [[], ["lost"]])
def test_an_interrupted_runner_prints_the_results_so_far(runner, arguments, make, text, failures, monkeypatch, capsys):
    outcomes = iter([make(publications=3, failures=failures)])

    def run_seed(*_):
        for outcome in outcomes:
            return outcome
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_seed", run_seed)
    assert runner.main([*arguments, "--jobs", "1"]) == (1 if failures else 130)
    printed = capsys.readouterr().out
    assert "interrupted; what is done:" in printed
    assert text.replace("0 of", f"{len(failures)} of") in printed


def test_a_late_phase_is_compared_with_the_tolerance():
    summary = migrations.Summary()
    summary.add(Outcome(longest_s={"attaching": 29.0, "draining": 11.9, "advertising": 13.0}))
    assert [line for line in summary.lines() if line.startswith("longest")] == [
        "longest time attaching: 29.0 s, deadline 30 s",
        "longest time draining: 11.9 s, deadline 10 s, 1.9 s late: within the tolerance of 2.2 s",
        "longest time advertising: 13.0 s, deadline 10 s, 3.0 s late: beyond the tolerance of 2.2 s",
    ]


@pytest.mark.parametrize("main", [migrations.main, reweave.main, seeds.main], ids=["migrations", "reweave", "seeds"])
def test_numbers_are_at_least_one(main, capsys):
    for option in ("--jobs", "--seeds"):
        with pytest.raises(SystemExit):
            main([option, "0"])
        assert f"argument {option}: expected an integer of at least 1, got '0'" in capsys.readouterr().err
