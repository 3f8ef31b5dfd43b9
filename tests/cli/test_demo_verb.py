"""``overweave demo``: a newcomer sees a network planned and changed, and finds nothing left behind when it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from overweave.cli.demo_children import child
from overweave.cli.demo_messages import Span
from overweave.cli.demo_oracle import NUMBER, Oracle, Workload
from overweave.cli.demo_run import Demonstration
from overweave.cli.demo_summary import Summary, totals
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.language.relations import matches
from overweave.pipeline.plan_files import read_plan
from overweave.testing.stock import SYMBOLS

OUTPUT = {"network.toml", "traces", "profiles", "plan.json", "plan.html", "report.html"}


def test_a_network_is_measured_planned_changed_and_measured_again(run, tmp_path, spark, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = tmp_path / "demo"
    status, text, err = run("demo", "--brokers", 4, "--filters", 60, "--seconds", 5, "--out", out, "--json")
    assert status == 0, err
    phases = [line.split()[1] for line in err.splitlines() if "/10 " in line]
    assert phases == [f"{number}/10" for number in range(1, 11)]
    found = json.loads(text)
    assert (found["brokers"], found["clients"], found["filters"]) == (4, 50, 60)
    assert found["deliveries"] == found["deliveries_expected"] > 0
    assert (found["lost"], found["duplicated"], found["unexpected"]) == (0, 0, 0)
    check_change(found["change"], out)
    assert found["plan"]["before"]["brokers"] == 4
    assert found["plan"]["after"]["brokers"] == found["brokers_after"] < 4
    assert (out / "report.html").read_text().count("<img") == 4
    assert {path.name for path in out.iterdir() if "before" not in path.name and path.name[0] != "."} == OUTPUT
    assert not processes_of(out)
    assert not list(tmp_path.glob("overweave-*"))
    # The same plan by hand, from what the demonstration left.
    network = out / "network.toml.before-1"
    status, text, err = run("plan", out / "profiles", "--network", network, "--json")
    assert status == 0, err
    assert json.loads(text)["verdict"] == found["plan"]["verdict"]


def check_change(change, out):
    plan, before, after = read_plan(out / "plan.json"), change["spans"][0], change["spans"][2]
    assert plan.evidence.sufficient
    assert len(change["brokers_after"]) == len(plan.brokers)
    assert set(read_network(out / "network.toml").overlay.ids) == set(change["brokers_after"])
    # Traffic arrived everywhere before, and afterwards only where the plan says, about as much as predicted.
    assert set(before["input_hz"]) == set(change["brokers_before"])
    assert set(after["input_hz"]) == set(change["predicted_hz"]) == set(change["brokers_after"])
    for broker, predicted_hz in change["predicted_hz"].items():
        assert after["input_hz"][broker] == pytest.approx(predicted_hz, rel=0.5), broker
    assert after["hops_mean"] < before["hops_mean"]
    assert change["moved"]
    assert all(was != now for was, now in change["moved"].values())
    # The clients' count and the traces agree; publishers published all the time.
    for measured, account in zip(change["spans"], change["accounts"], strict=True):
        assert measured["name"] == account["name"]
        assert measured["deliveries"] == account["delivered"] == account["expected"] > 0
        assert measured["gap_s_max"] < 30
    assert change["applied_s"][0] < change["applied_s"][1]


@pytest.fixture(scope="module")
def workload():
    return Workload(30, 1)


def test_the_oracle_expects_what_matches(workload):
    for symbol in SYMBOLS:
        for number in (1, 40, 41, 10_000):
            quote = workload.publication(symbol, number)
            assert (quote["symbol"], quote[NUMBER]) == (symbol, number)
            assert workload.matching(symbol, number) == {id for id, each in workload.filters.items() if matches(each, quote)}


def test_the_oracle_sees_what_is_lost_duplicated_and_unexpected_in_its_span(workload):
    oracle = Oracle(workload)
    symbol = next(each for each in SYMBOLS if workload.matching(each, 1))
    wanted = sorted(workload.matching(symbol, 1))
    stranger = next(id for id in workload.filters if id not in wanted)
    for place, name in enumerate(("good", "lost", "duplicated", "unexpected")):
        before = oracle.begin(name, float(place))
        if place:
            assert (before.begin_s, before.end_s, before.publications) == (place - 1.0, float(place), 40)
            assert before.expected == oracle.spans(9.0)[place - 1].expected > 0
        # The quotes repeat, so the same filters match.
        numbers = [oracle.next_number(symbol) for _ in range(40)]
        for number in numbers:
            for filter in workload.matching(symbol, number):
                oracle.deliver(filter, symbol, number)
        if name == "lost":
            oracle._delivered[wanted[0], symbol, numbers[0]] -= 1
        elif name == "duplicated":
            oracle.deliver(wanted[0], symbol, numbers[0])
        elif name == "unexpected":
            oracle.deliver(stranger, symbol, numbers[0])
    found = {span.name: (span.lost, span.duplicated, span.unexpected) for span in oracle.spans(9.0)}
    assert found == {"good": (0, 0, 0), "lost": (1, 0, 0), "duplicated": (0, 1, 0), "unexpected": (0, 0, 1)}
    assert [(span.begin_s, span.end_s) for span in oracle.spans(9.0)] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 9.0)]
    assert sum(span.expected for span in oracle.spans(9.0)) == oracle.expected


def test_a_lost_delivery_is_an_error_that_names_the_time(run, tmp_path, monkeypatch):
    spans = tuple(Span(name, 0.0, 1.0, 4, 9, 9 - lost, lost, 0, 0) for name, lost in (("before", 0), ("change", 2)))
    summary = Summary(
        brokers=2, brokers_after=1, clients=3, filters=4, **totals(spans), spans=spans, profiles=1, change=None, plan={},
        report=str(tmp_path / "demo/report.html"), plan_report="",
    )  # fmt: skip
    monkeypatch.setattr(Demonstration, "prepare", lambda self: None)
    monkeypatch.setattr(Demonstration, "run", lambda self: summary)
    status, out, err = run("demo", "--out", tmp_path / "demo")
    assert (status, out) == (1, "")
    assert "expected 18, each once: 2 are lost, 0 duplicated and 0 unexpected, of what was published in the time change" in err
    assert (tmp_path / "demo").exists()


def test_what_is_not_ours_stays(run, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    status, _, err = run("demo", "--out", tmp_path)
    assert (status, err) == (
        2,
        f"overweave: {tmp_path}: expected a new directory, or one of an earlier demo, found mine.txt\n",
    )
    assert (tmp_path / "mine.txt").exists()


@pytest.mark.parametrize(("phase", "send"), [(2, os.killpg), (5, os.kill), (8, os.killpg)])
def test_interrupted_while_it_starts_measures_or_changes_it_leaves_nothing(tmp_path, phase, send):
    with demo_process(tmp_path) as demo:
        await_line(demo, f" {phase}/10 ")
        time.sleep(1)
        send(demo.pid, signal.SIGINT)
        assert demo.stderr.read().endswith("overweave: interrupted\n")
        assert demo.wait(60) == 130
    check_nothing_left(tmp_path)


DEAF = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: None)
print("deaf", flush=True)
sys.stdin.read()
print("end", flush=True)
"""


def test_a_child_that_does_not_hear_its_signal_stops_at_the_end_of_its_input(tmp_path, monkeypatch):
    (tmp_path / "deaf.py").write_text(DEAF)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with child("deaf", "deaf", [], signal.SIGINT, 2.0) as process:
        assert process.line(20.0) == b"deaf\n"
    assert process.line(20.0) == b"end\n"
    with pytest.raises(OverweaveError, match=r"^deaf ended with status 0$"):
        process.line(20.0)


def test_a_broker_that_dies_ends_it_with_its_name(tmp_path):
    with demo_process(tmp_path) as demo:
        await_line(demo, " 4/10 ")
        (broker,) = processes_of("--id B3", tmp_path)
        os.kill(broker, signal.SIGKILL)
        text = demo.stderr.read().splitlines()[-1]
        assert demo.wait(60) == 1
    assert text.startswith("overweave: overweave up ended with status 1")
    assert "B3 was ended by SIGKILL" in text
    check_nothing_left(tmp_path)


def demo_process(directory):
    """A demonstration with few brokers and much time, whose processes all have the directory in their environment."""
    command = [sys.executable, "-m", "overweave", "demo", "--brokers", "3", "--filters", "30", "--seconds", "5"]
    return subprocess.Popen(
        [*command, "--out", str(directory / "demo")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(directory)},
    )


def await_line(process, text):
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"it ended without {text!r}")


def check_nothing_left(directory):
    end_s = time.monotonic() + 20  # Java ends after its parent
    while processes_of(directory):
        assert time.monotonic() < end_s, processes_of(directory)
        time.sleep(0.1)
    # Python leaves Java's counters to Java.
    assert [path.name for path in directory.iterdir() if not path.name.startswith("hsperfdata")] == []


def processes_of(*texts):
    """The processes with all texts in their command lines or environments, other than this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = b" ".join((process / name).read_bytes().replace(b"\0", b" ") for name in ("cmdline", "environ")).decode(
                errors="replace"
            )
        except OSError:
            continue
        if all(str(text) in known for text in texts) and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found
