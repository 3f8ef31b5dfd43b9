"""``profile --follow`` and ``plan --follow`` as processes of their own, on a trace that grows and changes."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import planned
import pyarrow
import pyarrow.parquet

from overweave.drivers.tracing.files import SCHEMA
from overweave.pipeline.plan_files import read_plan

BITS, CLIENTS, SYMBOLS, BROKERS, RATE_HZ = 320, 48, 8, 8, 10.0
NETWORK = f'[network]\nshape = "balanced"\ndegree = 2\nbrokers = {BROKERS}\nport = 7400\n'
WITHIN_S = 240


def rows(draw, part, heat):
    """All that happens in one part of the run: two exchanges, of whose quotes every client wants one symbol below a price."""
    price = np.linspace(0.2, 1.0, CLIENTS)
    for home, exchange in enumerate(("nyse", "tsx")):
        for sequence in range(part * BITS, (part + 1) * BITS):
            at_s, symbol, quoted = sequence / RATE_HZ, draw.choice(SYMBOLS, p=heat / heat.sum()), draw.uniform()
            yield exchange, sequence, f"B{1 + home}", None, None, 0, at_s, at_s, 100, None
            for c in range(CLIENTS):
                if c % SYMBOLS == symbol and quoted < price[c]:
                    broker = f"B{1 + c // SYMBOLS % BROKERS}"
                    yield exchange, sequence, broker, f"s{c:02}", f"c{c:02}", 1, at_s, at_s + 0.01, 100, f"B{1 + home}"


def write_part(folder, draw, part, heat):
    folder.mkdir(parents=True, exist_ok=True)
    columns = zip(*rows(draw, part, heat), strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(arrays, schema=SCHEMA), folder / ".part")
    (folder / ".part").rename(folder / f"part-{part}.parquet")


def started(*arguments, out):
    command = [sys.executable, "-m", "overweave", *map(str, arguments)]
    with out.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def rounds(file):
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def until(so, processes, what):
    end = time.monotonic() + WITHIN_S
    while not so():
        assert time.monotonic() < end, f"expected within {WITHIN_S} s: {what}"
        assert all(each.poll() is None for each in processes), f"expected both to go on until {what}"
        time.sleep(0.1)


def test_a_plan_follows_the_profile_of_a_run(tmp_path, quick_conf):
    draw, heat, traces, out = (
        np.random.default_rng(1),
        1 / np.arange(1, SYMBOLS + 1),
        tmp_path / "traces" / "run=r",
        tmp_path / "out",
    )
    (tmp_path / "network.toml").write_text(NETWORK)
    planned.brokers(tmp_path / "brokers", BROKERS, bandwidth=3500.0)
    told = tmp_path / "rounds.jsonl"
    profile = started(
        "profile", tmp_path / "traces", "--out", out, "--bits", BITS, "--follow", "--every", 0.2,
        *quick_conf, out=tmp_path / "profile.log",
    )  # fmt: skip
    plan = started(
        "plan", out, "--follow", "--every", 0.1, "--network", tmp_path / "network.toml", "--brokers", tmp_path / "brokers",
        "--metrics", tmp_path / "plan.prom", "--json", out=told,
    )  # fmt: skip
    both = (profile, plan)
    try:
        for part, turned in enumerate((False, False, True)):
            write_part(traces, draw, part, heat[::-1] if turned else heat)
            until(lambda: len(rounds(told)) > part, both, f"round {part + 1}")  # noqa: B023
    finally:
        for each in both:
            each.send_signal(signal.SIGINT)
        status = [each.wait(WITHIN_S) for each in both]
    found = rounds(told)
    assert status == [0, 0], told.read_text()
    assert [each["action"] for each in found] == ["first", "kept", "replaced"]
    assert [each["tables"] for each in found] == [f".follow/versions/{i}" for i in range(3)]
    assert sorted(each.name for each in out.glob("plan*")) == ["plan-0001.json", "plan-0002.json", "plan.json"]
    assert (out / "plan.json").read_bytes() == (out / "plan-0002.json").read_bytes()
    made = read_plan(out / "plan.json")
    assert len(made.clients) == CLIENTS
    assert found[-1]["pending_saving_brokers"] == BROKERS - len(made.brokers) > 0
    assert f"overweave_plan_pending_saving_brokers {BROKERS - len(made.brokers)}.0" in (tmp_path / "plan.prom").read_text()


def test_what_does_not_go_with_follow_is_refused(run, tmp_path):
    planned.profile(tmp_path / "p")
    for option in ("--compare=all", "--evaluate=x", "--explain=B1", "--frontier"):
        status, _, err = run("plan", tmp_path / "p", "--follow", option)
        assert (status, option.split("=")[0] in err) == (2, True)
    for option in ("--every=0", "--gain=-1", "--change=nan", "--move-price=-0.1"):
        status, _, err = run("plan", tmp_path / "p", "--follow", option)
        assert (status, option.split("=")[0] in err) == (2, True)
    assert run("plan", tmp_path / "p", "--metrics", "x").status == 2


def test_a_workload_is_not_followed(run, tmp_path):
    for table in ("publishers", "subscriptions", "publications"):
        planned.put(tmp_path / table, x=[1])
    status, _, err = run("plan", tmp_path, "--follow")
    assert (status, "expected a directory of 'overweave profile'" in err) == (2, True)
    assert not (tmp_path / "plan.json").exists()
