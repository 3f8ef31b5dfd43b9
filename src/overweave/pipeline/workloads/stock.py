"""Stock quotes: a publisher per symbol, and subscriptions by the templates of the thesis.

=============== ==================================================================================================
distribution    subscriptions
=============== ==================================================================================================
``uniform``     THESIS 7.1.1: six templates, 20/20/20/34/5/1 %, thresholds from the symbol's own quotes
``random``      THESIS 7.2.1: 70 % sink about 10 % of their publisher's traffic, 25 % about 50 %, 5 % all of it
``enterprise``  THESIS 7.2.1: 95 % sink about 10 %, 5 % all; those on the first broker, the others on the others
``allocation``  THESIS 7.3.2: 40 % the whole symbol, 60 % with ``low`` below a value from the symbol's own quotes
=============== ==================================================================================================

The i-th publisher gets subscriptions in proportion to i to the power of ``-zipf``, by quota: 0 gives all the same number, 1 is
Zipf's law, and -1 is the thesis' heterogeneous scenario (7.3.2; the text's Ns/i does not fit its own totals, Ns*i/40 does).
Departures: walks stand in for recorded prices; where the thesis has one threshold for "about 10 %" and "about
50 %", they are spread (5..15 %, 40..60 %), since otherwise all such filters of a symbol would be one.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from overweave.pipeline.workloads.base import Count, Options, Some, Source, numbered, wire_bytes
from overweave.pipeline.workloads.brokers import brokers
from overweave.pipeline.workloads.counter_rng import CounterRng, Real, Whole, pick_by_share, share_ends, shuffled, zipf
from overweave.pipeline.workloads.walks import Quotes, quotes, texts, volume_level


class StockOptions(Options, frozen=True, kw_only=True):
    """Defaults are those of THESIS 7.3.2."""

    publishers: Some = 40
    subscriptions: Count = 8_000
    publications: Count = 40_000
    brokers: Some = 80
    #: Of each publisher.
    rate_hz: Annotated[float, Meta(gt=0)] = 70 / 60
    distribution: Literal["uniform", "random", "enterprise", "allocation"] = "uniform"
    zipf: Annotated[float, Meta(ge=-10, le=10)] = 0.0
    #: The share of subscriptions that never match anything (THESIS table 7.3).
    zero_traffic: Annotated[float, Meta(ge=0, le=1)] = 0.0
    heterogeneous: bool = False

    @property
    def days(self) -> int:
        """The most quotes of a publisher; each has as many or one less."""
        return max(1, -(-self.publications // self.publishers))


def make(source: Source, options: StockOptions) -> dict[str, DataFrame]:
    """All tables."""
    arguments = options, source.seed
    return {
        "brokers": brokers(source, options.brokers, heterogeneous=options.heterogeneous),
        "publishers": source.table("publishers", options.publishers, partial(_publishers, *arguments)),
        "subscriptions": source.table("subscriptions", options.subscriptions, partial(_subscriptions, *arguments)),
        "publications": source.table("publications", options.publications, partial(_publications, *arguments)),
    }


def _publishers(options: StockOptions, seed: int, rows: Whole) -> dict[str, object]:
    first = np.zeros_like(rows)
    return {
        "publisher": numbered("P", rows),
        "broker": numbered("B", CounterRng(seed, "publisher's broker").below(options.brokers, rows)),
        "advertisement": [_advertisement(symbol) for symbol in numbered("S", rows)],
        "rate_hz": np.full(len(rows), options.rate_hz),
        "message_bytes": [wire_bytes(text) for text in texts(rows, first, quotes(seed, options.days, rows, first))],
    }


def _advertisement(symbol: str) -> str:
    numbers = "".join(
        f",[{name},isPresent,0]" for name in ("open", "high", "low", "close", "volume", "openClose%Diff", "highLow%Diff")
    )
    words = "".join(f",[{name},isPresent,'']" for name in ("date", "closeEqualsLow", "closeEqualsHigh"))
    return f"[class,eq,'STOCK'],[symbol,eq,'{symbol}']{numbers}{words}"


def _publications(options: StockOptions, seed: int, rows: Whole) -> dict[str, object]:
    """Publisher by publisher; the first ones have one more when it does not come out even."""
    few, longer = divmod(options.publications, options.publishers)
    edge = longer * (few + 1)
    beyond = rows - edge
    publisher = np.where(beyond < 0, rows // (few + 1), longer + beyond // max(few, 1))
    day = np.where(beyond < 0, rows % (few + 1), beyond % max(few, 1))
    return {
        "publisher": numbered("P", publisher),
        "sequence": day,
        "publication": texts(publisher, day, quotes(seed, options.days, publisher, day)),
    }


class Wanted(NamedTuple):
    """What conditions of some subscriptions are drawn from: a publisher, one of its quotes, and a position from 0 to 1."""

    seed: int
    publisher: Whole
    example: Quotes
    at: Real

    def where(self, chosen: Whole) -> "Wanted":
        """Those of some rows."""
        return Wanted(self.seed, self.publisher[chosen], self.example.at(chosen), self.at[chosen])


Conditions = Callable[[Wanted], list[str]]


class Template(NamedTuple):
    """What a share of the subscriptions looks like."""

    percent: int
    #: Predicates besides the class and the symbol.
    conditions: Conditions
    by_symbol: bool = True
    #: Whether it is for all of a publisher's traffic, which the enterprise has at its main office.
    whole: bool = False


def _subscriptions(options: StockOptions, seed: int, rows: Whole) -> dict[str, object]:
    at = (shuffled(rows, options.subscriptions) + 0.5) / options.subscriptions
    publisher = pick_by_share(share_ends(zipf(options.publishers, options.zipf)), at)
    day = CounterRng(seed, "example").below(options.days, rows)
    wanted = Wanted(seed, publisher, quotes(seed, options.days, publisher, day), CounterRng(seed, "threshold").uniform(rows))
    templates = TEMPLATES[options.distribution]
    which = pick_by_share(
        share_ends(np.array([float(each.percent) for each in templates])), CounterRng(seed, "template").uniform(rows)
    )
    filters = np.empty(len(rows), object)
    for number, template in enumerate(templates):
        chosen = np.flatnonzero(which == number)
        symbols = numbered("S", publisher[chosen])
        filters[chosen] = [
            "[class,eq,'STOCK']" + (f",[symbol,eq,'{symbol}']" if template.by_symbol else "") + condition
            for symbol, condition in zip(symbols, template.conditions(wanted.where(chosen)), strict=True)
        ]
    idle = np.flatnonzero(CounterRng(seed, "zero traffic").uniform(rows) < options.zero_traffic)
    # Advertisements admit it, so it is routed as any other; but no volume is below 0.
    filters[idle] = [f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[volume,<,0]" for symbol in numbered("S", publisher[idle])]
    whole = np.array([each.whole for each in templates])[which]
    return {
        "subscription": numbered("s", rows),
        "client": numbered("c", rows),
        "broker": numbered("B", _brokers(options, CounterRng(seed, "subscriber's broker"), rows, whole)),
        "filter": filters,
    }


def _brokers(options: StockOptions, dice: CounterRng, rows: Whole, whole: NDArray[np.bool_]) -> Whole:
    if options.distribution != "enterprise" or options.brokers == 1:
        return dice.below(options.brokers, rows)
    return np.where(whole, 0, 1 + dice.below(options.brokers - 1, rows))


def _everything(wanted: Wanted) -> list[str]:
    return [""] * len(wanted.publisher)


def _high(wanted: Wanted) -> list[str]:
    return [f",[high,>,{value}]" for value in wanted.example.high.tolist()]


def _low(wanted: Wanted) -> list[str]:
    return [f",[low,<,{value}]" for value in wanted.example.low.tolist()]


def _volume(wanted: Wanted) -> list[str]:
    return [f",[volume,>,{value}]" for value in wanted.example.volume.tolist()]


#: Of the quotes that a medium-rated subscription lets pass by their volume, which is more than it wants in the end.
_VOLUME_PASSES = 0.7


def _tenth(wanted: Wanted) -> list[str]:
    """About 10 %: days with a wide range."""
    bounds = np.quantile(_typical(wanted.seed).high_low_diff, 0.85 + 0.1 * wanted.at)
    return [f",[highLow%Diff,>,{bound}]" for bound in np.round(bounds, 4).tolist()]


def _half(wanted: Wanted) -> list[str]:
    """About 50 %: days with some volume, for this symbol, and some move."""
    typical = _typical(wanted.seed)
    # The publisher's own level times how far above or below it volumes lie.
    least = np.quantile(typical.volume, 1 - _VOLUME_PASSES)
    moves = typical.open_close_diff[typical.volume > least]
    bounds = np.quantile(moves, 1 - (0.4 + 0.2 * wanted.at) / _VOLUME_PASSES)
    volumes = (least / 1e6 * volume_level(wanted.seed, wanted.publisher)).astype(np.int64)
    columns = zip(volumes.tolist(), np.round(bounds, 4).tolist(), strict=True)
    return [f",[volume,>,{volume}],[openClose%Diff,>,{bound}]" for volume, bound in columns]


@lru_cache(maxsize=4)
def _typical(seed: int) -> Quotes:
    """First quotes of many symbols, with volumes in millionths of the symbol's level: moves and ranges are distributed alike."""
    publisher = np.arange(20_000)
    some = quotes(seed, 2, publisher, np.zeros_like(publisher))
    return some._replace(volume=(some.volume / volume_level(seed, publisher) * 1e6).astype(np.int64))


#: By the name of the distribution (see above).
TEMPLATES: Mapping[str, tuple[Template, ...]] = {
    "uniform": (
        Template(20, _high),
        Template(20, _low),
        Template(20, _volume),
        Template(34, _everything),
        Template(5, _volume, by_symbol=False),
        Template(1, _everything, by_symbol=False),
    ),
    "random": (Template(70, _tenth), Template(25, _half), Template(5, _everything, whole=True)),
    "enterprise": (Template(95, _tenth), Template(5, _everything, whole=True)),
    "allocation": (Template(40, _everything), Template(60, _low)),
}
