"""``overweave demo``: a newcomer sees a network at work, and finds nothing left behind when it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import time

from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.pipeline.plan_files import read_plan


def test_a_network_its_traffic_and_a_report(run, tmp_path, spark):
    out = tmp_path / "demo"
    status, text, err = run("demo", "--filters", 50, "--seconds", 1, "--out", out, "--json")
    assert (status, err) == (0, "")
    summary = json.loads(text)
    assert (summary["brokers"], summary["filters"], summary["publications"]) == (5, 50, 200)
    assert summary["deliveries"] == summary["deliveries_expected"] > 0
    assert summary["profiles"] > 0
    example = parse_publication(summary["example"])
    assert all(matches(parse_filter(text), example) for text in summary["example_matches"].values())
    assert "<img" in (out / "report.html").read_text() or "<svg" in (out / "report.html").read_text()
    assert {path.name for path in out.iterdir()} == {
        "network.toml", "traces", "profiles", "report.html", "plan.json", "plan.html"
    }  # fmt: skip
    plan = read_plan(out / "plan.json")
    assert summary["plan"]["before"]["brokers"] == 5 == len(plan.before.load)
    assert summary["plan"]["after"]["brokers"] == len(plan.brokers) < 5
    assert plan.evidence.sufficient
    # 50 filters, ten of them to a client; publishers are no subscribers.
    assert (len(plan.clients), len(plan.publishers)) == (5, 20)
    assert plan.frontier[0].brokers == 5
    assert "<img" in (out / "plan.html").read_text()
    # The same again by hand, from what the demonstration left.
    status, text, _ = run("plan", out / "profiles", "--network", out / "network.toml", "--json")
    assert (status, json.loads(text)["verdict"]) == (0, summary["plan"]["verdict"])


def test_what_is_not_ours_stays(run, tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    status, _, err = run("demo", "--out", tmp_path)
    assert (status, err) == (
        2,
        f"overweave: {tmp_path}: expected a new directory, or one of an earlier demo, found mine.txt\n",
    )


def test_interrupted_it_leaves_nothing(tmp_path):
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "overweave", "demo", "--seconds", "60", "--out", str(out)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, start_new_session=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as demo:
        end_s = time.monotonic() + 120
        while brokers_of(out) < 5:
            assert time.monotonic() < end_s, "brokers do not start"
            time.sleep(0.1)
        time.sleep(2)
        demo.send_signal(signal.SIGINT)
        demo.wait(timeout=60)
    assert demo.returncode == 130
    assert not out.exists()
    assert not list(tmp_path.iterdir())
    assert brokers_of(out) == 0


def brokers_of(out):
    found = subprocess.run(["pgrep", "-fc", f"overweave broker --config {out}"], capture_output=True, check=False)
    return int(found.stdout)
