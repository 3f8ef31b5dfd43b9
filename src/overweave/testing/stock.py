"""A stock-quote workload without any data: daily quotes on geometric random walks, and subscriptions to them.

The shape of both is that of THESIS 7.1.1: a publication is one day of one symbol with its derived attributes, a
subscription follows one of six templates, in the thesis' shares, with thresholds drawn from the symbol's own quotes.
Departures: the walk stands in for the recorded prices, and symbols are wanted by Zipf's law (7.1.1 draws
them uniformly), because some symbols being wanted most is what a reader wants to see.
"""

import itertools
import math
import random
from collections.abc import Sequence

from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.values import is_number

#: Symbols of the embedded workload, most wanted first.
SYMBOLS = (
    "YHOO", "MSFT", "IBM", "INTC", "ORCL", "CSCO", "DELL", "AAPL", "AMZN", "EBAY",
    "HPQ", "XRX", "GE", "F", "KO", "PEP", "MCD", "DIS", "T", "WMT",
)  # fmt: skip

#: Daily moves of a price are about this large.
VOLATILITY = 0.02
#: The templates of THESIS 7.1.1 and their shares in percent: is the symbol asked for, and which threshold.
TEMPLATES: tuple[tuple[int, bool, tuple[str, Operator] | None], ...] = (
    (20, True, ("high", Operator.GT)),
    (20, True, ("low", Operator.LT)),
    (20, True, ("volume", Operator.GT)),
    (34, True, None),
    (5, False, ("volume", Operator.GT)),
    (1, False, None),
)


def quotes(seed: int, days: int, symbols: Sequence[str] = SYMBOLS) -> list[Publication]:
    """``days`` daily quotes of each of ``symbols``, day by day; the same seed gives the same quotes.

    >>> [quote["symbol"] for quote in quotes(seed=1, days=2, symbols=["IBM", "KO"])]
    ['IBM', 'KO', 'IBM', 'KO']
    >>> all(quote["low"] <= quote["close"] <= quote["high"] for quote in quotes(seed=1, days=50))
    True
    """
    dice = random.Random(seed)
    prices = {symbol: math.exp(dice.uniform(2, 5)) for symbol in symbols}
    days_of_quotes: list[Publication] = []
    for day, symbol in itertools.product(range(1, days + 1), symbols):
        quote = _quote(dice, symbol, day, prices[symbol])
        prices[symbol] = float(quote["close"])
        days_of_quotes.append(quote)
    return days_of_quotes


def subscriptions(seed: int, count: int, published: Sequence[Publication]) -> list[Filter]:
    """``count`` subscriptions to what is ``published``, by the templates' shares; the same seed gives the same ones.

    >>> for wanted in subscriptions(seed=3, count=2, published=quotes(seed=1, days=9)):
    ...     print(wanted.predicates[0])
    [class,eq,'STOCK']
    [class,eq,'STOCK']
    """
    dice = random.Random(seed)
    by_symbol: dict[str, list[Publication]] = {}
    for quote in published:
        by_symbol.setdefault(str(quote["symbol"]), []).append(quote)
    symbols = list(by_symbol)
    popularity = list(itertools.accumulate(1 / rank for rank in range(1, len(symbols) + 1)))
    shares = [share for share, _, _ in TEMPLATES]
    chosen = dice.choices(TEMPLATES, shares, k=count)
    wanted = dice.choices(symbols, cum_weights=popularity, k=count)
    return [
        _subscription(symbol if by_name else None, threshold, dice.choice(by_symbol[symbol]))
        for (_, by_name, threshold), symbol in zip(chosen, wanted, strict=True)
    ]


def advertisement(symbol: str) -> Filter:
    """What a publisher of one symbol's quotes says of them beforehand.

    >>> print(str(advertisement("IBM"))[:60])
    [class,eq,'STOCK'],[symbol,eq,'IBM'],[open,isPresent,0],[hig
    """
    (quote,) = quotes(seed=1, days=1, symbols=[symbol])
    named = ("class", "symbol")
    others = (Predicate(name, Operator.PRESENT, 0 if is_number(quote[name]) else "") for name in quote if name not in named)
    return Filter((*(Predicate(name, Operator.EQ, quote[name]) for name in named), *others))


def _quote(dice: random.Random, symbol: str, day: int, previous_close: float) -> Publication:
    opened = previous_close * math.exp(dice.gauss(0, VOLATILITY / 4))
    walk = list(itertools.accumulate((dice.gauss(0, VOLATILITY / 3) for _ in range(9)), initial=0.0))
    open_price, high, low, close = (round(opened * math.exp(step), 2) for step in (walk[0], max(walk), min(walk), walk[-1]))
    return Publication(
        {
            "class": "STOCK",
            "symbol": symbol,
            "open": open_price,
            "high": high,
            "low": low,
            "close": close,
            "volume": int(math.exp(dice.gauss(12, 1))) * 100,
            "day": day,
            "openClose%Diff": round(abs(open_price - close) / open_price, 3),
            "highLow%Diff": round((high - low) / high, 3),
            "closeEqualsLow": close == low,
            "closeEqualsHigh": close == high,
        }
    )


def _subscription(symbol: str | None, threshold: tuple[str, Operator] | None, example: Publication) -> Filter:
    predicates = [Predicate("class", Operator.EQ, "STOCK")]
    if symbol is not None:
        predicates.append(Predicate("symbol", Operator.EQ, symbol))
    if threshold is not None:
        attribute, operator = threshold
        predicates.append(Predicate(attribute, operator, example[attribute]))
    return Filter(tuple(predicates))
