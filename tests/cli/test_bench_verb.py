"""``overweave bench``: the frame; the benchmarks test themselves."""

import json
import sys
from types import ModuleType

import pytest

from overweave.bench.base import Row
from overweave.cli import bench


@pytest.fixture
def fake(monkeypatch):
    module = ModuleType("fake")

    def measure(progress, subscriptions=(10,)):
        progress("measuring")
        return [Row(f"{count} filters", "µs", ours=2.0, baseline=80.0, ratio_min=25) for count in subscriptions] + [
            Row("bulk load", "s", ours=1234.5)
        ]

    module.run = measure
    monkeypatch.setitem(sys.modules, "fake", module)
    monkeypatch.setitem(bench.BENCHMARKS, "fake", "fake")
    return module


def test_table(run, fake):
    status, out, _ = run("bench", "fake")
    assert status == 0
    assert all(text in out for text in ("10 filters", "40×", "≥ 25×", "1,234"))


def test_table_fits_80_columns_and_says_once_what_rows_share(run, fake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    title, unit = "W1, 1,000,000 filters", "µs per publication"
    rows = [Row(f"{title}: {what}", unit, 123.45, 123_456.7, ratio_min=500) for what in ("ids", "next hops, against columns")]
    fake.run = lambda progress: [*rows, Row("W2, 10 filters: ids", unit, 1.0)]
    lines = run("bench", "fake").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.strip() for line in lines if "filters" in line] == [title, "W2, 10 filters"]
    row = next(line for line in lines if "next hops" in line)
    assert row.split() == ["next", "hops,", "against", "columns", "µs/publication", "123.5", "123,457", "1,000×", "≥", "500×"]


def test_help_says_how_long_it_takes(run):
    assert "two and a half minutes" in " ".join(run("bench", "--help").out.split())


def test_json(run, fake):
    rows = json.loads(run("bench", "fake", "--json", "--subscriptions", 5, "--subscriptions", 6).out)
    assert [(row["name"], row["ratio"]) for row in rows] == [("5 filters", 40.0), ("6 filters", 40.0), ("bulk load", None)]


def test_unknown_benchmark(run):
    assert run("bench", "nonsense") == (
        2,
        "",
        "overweave: bench: expected one of matching, control, simulator, plane, routing, pipeline, planning, capacity, "
        "scale, found 'nonsense'\n",
    )


def test_what_follows_from_rows_is_printed_below_them(run, fake):
    fake.fragment = lambda rows: f"# {len(rows)} rows\n[[broker]]\n"
    assert run("bench", "fake").out.endswith("\n\n# 2 rows\n[[broker]]\n")
    assert json.loads(run("bench", "fake", "--json").out)[0]["name"] == "10 filters"
    assert run("bench", "fake", "--quick").status == 2


def test_option_that_the_benchmark_does_not_know(run, fake):
    fake.run = lambda progress: []
    status, _, err = run("bench", "fake", "--subscriptions", 5)
    assert (status, err) == (2, "overweave: bench fake: --subscriptions is not an option of this benchmark\n")
