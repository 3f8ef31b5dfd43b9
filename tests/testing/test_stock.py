"""The embedded stock workload keeps its shape."""

from collections import Counter

from overweave.language.syntax import parse_filter, parse_publication
from overweave.testing.stock import SYMBOLS, quotes, subscriptions


def test_quotes_can_exist():
    published = quotes(seed=1, days=100)
    assert len(published) == 100 * len(SYMBOLS)
    for quote in published:
        assert 0 < quote["low"] <= min(quote["open"], quote["close"]) <= max(quote["open"], quote["close"]) <= quote["high"]
        assert quote["volume"] > 0
        assert (quote["closeEqualsLow"] == "true") == (quote["close"] == quote["low"])
        assert parse_publication(str(quote)) == quote


def test_templates_have_the_shares_of_thesis_7_1_1():
    count = 20_000
    made = subscriptions(seed=1, count=count, published=quotes(seed=1, days=20))
    shares = Counter(tuple(predicate.attribute for predicate in each.predicates[1:]) for each in made)
    expected = {("symbol", "high"): 20, ("symbol", "low"): 20, ("symbol", "volume"): 20, ("symbol",): 34, ("volume",): 5, (): 1}
    assert set(shares) == set(expected)
    for template, percent in expected.items():
        assert abs(100 * shares[template] / count - percent) < 1
    assert parse_filter(str(made[0])) == made[0]


def test_one_seed_one_workload():
    assert quotes(seed=5, days=3) == quotes(seed=5, days=3) != quotes(seed=6, days=3)
    published = quotes(seed=5, days=3)
    assert subscriptions(1, 9, published) == subscriptions(1, 9, published) != subscriptions(2, 9, published)
