"""Stock quotes as THESIS 7.1.1, 7.2.1 and 7.3.2 describe them."""

import re
from collections import Counter

import numpy as np
import pytest
from test_workloads import made

from overweave.language.predicates import Operator
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.index import Index
from overweave.pipeline.workloads.counter_rng import CounterRng
from overweave.pipeline.workloads.walks import PRICES, VOLATILITY, quotes


def matched_share(tables):
    """The share of the publisher's publications that each subscription to a symbol matches."""
    index = Index()
    index.add_many((row.subscription, parse_filter(row.filter), None) for row in tables["subscriptions"].itertuples())
    matched = Counter()
    for ids in index.match_batch([parse_publication(text) for text in tables["publications"].publication]):
        matched.update(ids)
    per_publisher = len(tables["publications"]) / len(tables["publishers"])
    return {id: matched[id] / per_publisher for id in tables["subscriptions"].subscription}


def test_7_1_1_a_publication_has_all_attributes():
    tables = made("stock", {"publishers": 3, "publications": 3000, "subscriptions": 0})
    equals = Counter()
    for text in tables["publications"].publication:
        quote = parse_publication(text)
        assert list(quote) == [
            "class", "symbol", "open", "high", "low", "close", "volume", "date",
            "openClose%Diff", "highLow%Diff", "closeEqualsLow", "closeEqualsHigh",
        ]  # fmt: skip
        assert quote["low"] <= min(quote["open"], quote["close"]) <= max(quote["open"], quote["close"]) <= quote["high"]
        assert quote["openClose%Diff"] == pytest.approx(abs(quote["open"] - quote["close"]) / quote["open"], abs=6e-4)
        assert quote["highLow%Diff"] == pytest.approx((quote["high"] - quote["low"]) / quote["high"], abs=6e-4)
        assert quote["closeEqualsLow"] == ("true" if quote["close"] == quote["low"] else "false")
        assert quote["closeEqualsHigh"] == ("true" if quote["close"] == quote["high"] else "false")
        assert quote["volume"] % 100 == 0 < quote["volume"]
        assert re.fullmatch(r"\d\d?-[A-Z][a-z][a-z]-\d\d", quote["date"])
        equals.update([quote["closeEqualsLow"] + quote["closeEqualsHigh"]])
    assert equals["falsefalse"] > 2000
    assert equals["truefalse"] > 50
    assert equals["falsetrue"] > 50


def test_a_walk_moves_by_its_volatility_and_stays_a_price():
    days = np.arange(50_000)
    close = quotes(1, len(days), np.zeros_like(days), days).close
    # Near the lower end rounding to cents is a move of its own.
    moves = np.diff(np.log(close))[close[1:] > 5]
    assert np.std(moves) == pytest.approx(VOLATILITY, rel=0.05)
    assert abs(np.corrcoef(moves[1:], moves[:-1])[0, 1]) < 0.02
    # Over a hundred days a walk goes ten times as far as in one.
    publishers = np.arange(4000)
    start, end = (quotes(1, 150, publishers, np.full_like(publishers, day)).close for day in (20, 120))
    assert np.std(np.log(end / start)) == pytest.approx(10 * VOLATILITY, rel=0.05)
    # After a million days hardly a walk would still be among prices by itself.
    late = quotes(1, 1_000_000, publishers, np.full_like(publishers, 999_999)).close
    assert PRICES[0] <= late.min() < 1.1
    assert 900 < late.max() <= PRICES[1]


def test_a_day_is_the_same_alone_and_among_others():
    days = np.arange(1000)
    all_days = quotes(3, 1000, np.full(1000, 7), days)
    alone = quotes(3, 1000, np.array([7]), np.array([613]))
    assert [column[613] for column in all_days] == [column[0] for column in alone]
    assert abs(np.log(all_days.open[1:] / all_days.close[:-1])).max() < VOLATILITY * 1.5


def test_draws_are_uniform_and_normal():
    rows = np.arange(100_000)
    assert np.histogram(CounterRng(1, "a").uniform(rows), 10, (0, 1))[0] == pytest.approx(10_000, rel=0.05)
    normal = CounterRng(1, "a").normal(rows, rows * 0)
    assert (normal.mean(), normal.std(), (normal**4).mean()) == pytest.approx((0, 1, 3), abs=0.1)


def test_7_1_1_templates_have_their_shares_and_thresholds_from_quotes():
    tables = made("stock", {"publishers": 5, "publications": 500, "subscriptions": 10_000})
    quoted = [parse_publication(text) for text in tables["publications"].publication]
    values = {name: {(quote["symbol"], quote[name]) for quote in quoted} for name in ("high", "low", "volume")}
    shares = Counter()
    for text in tables["subscriptions"]["filter"]:
        first, *rest = parse_filter(text).predicates
        symbol = rest[0].value if rest and rest[0].attribute == "symbol" else None
        threshold = rest[-1] if rest and rest[-1].attribute != "symbol" else None
        assert (first.attribute, first.value) == ("class", "STOCK")
        if threshold is not None:
            assert symbol is None or (symbol, threshold.value) in values[threshold.attribute]
        shares[symbol is not None, threshold and (threshold.attribute, threshold.operator)] += 1
    high, low, volume = ("high", Operator.GT), ("low", Operator.LT), ("volume", Operator.GT)
    expected = {(True, high): 20, (True, low): 20, (True, volume): 20, (True, None): 34, (False, volume): 5, (False, None): 1}
    assert {template: count / 100 for template, count in shares.items()} == pytest.approx(expected, abs=1.5)


@pytest.mark.parametrize(
    ("zipf", "counts"),
    [(0, [1000] * 4), (1, [1920, 960, 640, 480]), (-1, [400, 800, 1200, 1600])],
)
def test_symbols_are_wanted_by_quota(zipf, counts):
    options = {"publishers": 4, "publications": 4, "subscriptions": 4000, "zipf": zipf, "distribution": "allocation"}
    wanted = Counter(parse_filter(text).predicates[1].value for text in made("stock", options)["subscriptions"]["filter"])
    assert [wanted[f"S{number}"] for number in range(1, 5)] == pytest.approx(counts, abs=1)


def test_7_3_2_heterogeneous_totals():
    # "in an experiment with Ns set to 200, the total number of subscriptions is 4,100, the lowest and highest 5 and 200"
    options = {"publishers": 40, "publications": 40, "subscriptions": 4100, "zipf": -1, "distribution": "allocation"}
    tables = made("stock", options | {"heterogeneous": True})
    wanted = Counter(parse_filter(text).predicates[1].value for text in tables["subscriptions"]["filter"])
    assert [wanted[f"S{number}"] for number in (1, 20, 40)] == [5, 100, 200]
    plain = sum(len(parse_filter(text).predicates) == 2 for text in tables["subscriptions"]["filter"])
    assert plain / 4100 == pytest.approx(0.4, abs=0.03)
    bandwidth = Counter(tables["brokers"].output_bandwidth_bytes_per_s / tables["brokers"].output_bandwidth_bytes_per_s.max())
    assert bandwidth == {1.0: 15, 0.5: 25, 0.25: 40}


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [("random", {0.1: 0.70, 0.5: 0.25, 1.0: 0.05}), ("enterprise", {0.1: 0.95, 1.0: 0.05})],
)
def test_7_2_1_low_medium_and_high_rated(distribution, expected):
    options = {"publishers": 4, "publications": 4000, "subscriptions": 4000, "distribution": distribution}
    tables = made("stock", options)
    matched = matched_share(tables)
    rated = [min((0.1, 0.5, 1.0), key=lambda rate: abs(rate - share)) for share in matched.values()]
    assert {rate: count / 4000 for rate, count in Counter(rated).items()} == pytest.approx(expected, abs=0.03)
    for rate in expected:
        sunk = [share for share, nearest in zip(matched.values(), rated, strict=True) if nearest == rate]
        assert np.mean(sunk) == pytest.approx(rate, rel=0.2)
    if distribution == "enterprise":
        at_office = tables["subscriptions"].broker == "B1"
        assert [rate == 1.0 for rate in rated] == at_office.tolist()


def test_table_7_3_zero_traffic_subscribers():
    options = {"publishers": 4, "publications": 2000, "subscriptions": 4000, "zero_traffic": 0.25, "distribution": "random"}
    matched = matched_share(made("stock", options))
    assert sum(share == 0 for share in matched.values()) / 4000 == pytest.approx(0.25, abs=0.03)


def test_what_does_not_come_out_even():
    for publications in (0, 1, 3, 10):
        tables = made("stock", {"publishers": 4, "publications": publications, "subscriptions": 2, "brokers": 1})
        counts = Counter(tables["publications"].publisher)
        assert sum(counts.values()) == publications
        assert max(counts.values(), default=0) - min((counts[f"P{i}"] for i in range(1, 5)), default=0) <= 1
