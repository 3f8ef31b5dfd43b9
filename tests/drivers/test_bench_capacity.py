"""``bench capacity`` on tiny sizes: every key of a broker is measured, and a network file takes the fragment as it is."""

import tomllib

import numpy as np
import pytest

from overweave.bench import capacity
from overweave.bench.base import Row
from overweave.drivers.capacities import CAPACITIES
from overweave.drivers.tcp.network_file import network_of


def test_a_live_broker_is_measured(monkeypatch):
    monkeypatch.setattr(capacity, "SUBSCRIBERS", 2)
    monkeypatch.setattr(capacity, "FILTERS", 10)
    told = []
    rows = capacity.run(told.append, [50, 20], seconds=0.1)
    assert [row.name for row in rows if row.name.startswith("matching:")] == ["matching: 20 filters", "matching: 50 filters"]
    found = {row.name: row.ours for row in rows[-4:]}
    assert list(found) == list(CAPACITIES)
    assert found["matching_delay_per_subscription_s"] >= 0
    assert all(found[name] > 0 for name in ("output_bandwidth_bytes_per_s", "capacity_hz"))
    assert told == ["output: 1 → 2", "input: 1 → 1, 10 filters", "matching: 20 filters", "matching: 50 filters"]
    text = capacity.fragment(rows)
    document = {"network": {"shape": "chain", "brokers": 1, "port": 7400}, **tomllib.loads(text)}
    broker = network_of(document).overlay.broker("B1")
    for name in CAPACITIES:
        assert getattr(broker, name) == pytest.approx(found[name], rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_the_line_is_the_closest_that_is_nowhere_negative(seed):
    dice = np.random.default_rng(seed)
    sizes = sorted(dice.choice(100, 4, replace=False).tolist())
    delays = (dice.uniform(-1, 1) + dice.uniform(-0.02, 0.02) * np.array(sizes) + dice.normal(0, 0.1, 4)).clip(0.01)
    base, slope = capacity.line_of(sizes, delays.tolist())

    def error(base, slope):
        return float((((base + slope * np.array(sizes)) / delays - 1) ** 2).sum())

    assert base >= 0 <= slope
    bases, slopes = np.meshgrid(np.linspace(0, 4, 201), np.linspace(0, 0.1, 201))
    dumb = min(error(b, s) for b, s in zip(bases.ravel(), slopes.ravel(), strict=True))
    assert error(base, slope) <= dumb + 1e-9


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (1.2345e-9, "1.23e-09"), (987.6, "988.0"), (65_432.1, "65_400")])
def test_figures_have_three_digits(value, text):
    rows = [Row(name, "", value) for name in CAPACITIES]
    assert capacity.fragment(rows).splitlines()[-1] == f"capacity_hz = {text}"


def test_where_the_system_does_not_tell_the_clock_does():
    assert capacity.Spent(10, 10, float("nan"), 2.0).busy_s == 2.0
    assert capacity.Spent(10, 10, 0.5, 2.0).busy_s == 0.5
