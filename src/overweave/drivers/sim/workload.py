"""Workloads of simulations: publishers with their publications, and subscribers. A kind is a function and a line in `WORKLOADS`.

``stock`` has the shape of THESIS 7.1.1: every publisher publishes the quotes of one symbol, every subscription asks for one
symbol, most with a threshold. Departures: a geometric random walk stands in for recorded prices, and the templates
without a symbol (6 of 100) are left out, so that every subscription belongs to one publisher.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from overweave.drivers.sim.scenario import Scenario, WorkloadSpec
from overweave.drivers.sim.timeline import Clients
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay

#: The volatility of a price from one quote to the next.
VOLATILITY = 0.02
#: The share of each template in percent, and its threshold; without one all quotes of the symbol are wanted.
TEMPLATES: tuple[tuple[int, tuple[str, Operator] | None], ...] = (
    (20, ("high", Operator.GT)),
    (20, ("low", Operator.LT)),
    (20, ("volume", Operator.GT)),
    (34, None),
)


class Publisher(msgspec.Struct, frozen=True):
    """A client that advertises once and publishes batches at a rate, the first after ``phase_s``."""

    id: str
    broker: str
    advertisement: Filter
    rate_hz: float
    phase_s: float
    #: Gives what it publishes, from the beginning.
    publications: Callable[[], Iterator[Publication]]
    batch: int = 1

    def at_s(self, number: int) -> float:
        """The time of a publication, counted from the start so that rounding errors do not add up."""
        return self.phase_s + (number - number % self.batch) / self.rate_hz


class Subscriber(msgspec.Struct, frozen=True):
    """A client with one subscription, which has the client's id."""

    id: str
    broker: str
    filter: Filter


class Workload(msgspec.Struct, frozen=True):
    """All clients of a simulation."""

    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]

    def ids(self) -> Clients:
        """The ids of all clients."""
        return Clients([each.id for each in self.publishers], [each.id for each in self.subscribers])


def make_workload(scenario: Scenario, overlay: Overlay) -> Workload:
    """The workload of a scenario; the same seed gives the same one."""
    return WORKLOADS[scenario.workload.kind](scenario.workload, overlay, scenario.seed)


def stock(spec: WorkloadSpec, overlay: Overlay, seed: int) -> Workload:
    """Publishers ``P1…`` of symbols ``S1…``, and subscribers ``P1.1…`` to each, all on brokers drawn at random."""
    dice = random.Random(seed)
    publishers: list[Publisher] = []
    subscribers: list[Subscriber] = []
    for number in range(1, spec.publishers + 1):
        symbol, walk_seed = f"S{number}", dice.getrandbits(64)
        price = math.exp(random.Random(walk_seed).uniform(2, 5))
        publications = partial(quotes, symbol, price, walk_seed)
        phase_s, broker = dice.random() * spec.batch / spec.rate_hz, dice.choice(overlay.ids)
        publishers.append(
            Publisher(f"P{number}", broker, _advertisement(symbol), spec.rate_hz, phase_s, publications, spec.batch)
        )
        examples = list(itertools.islice(publications(), _EXAMPLES))
        for place in range(1, spec.subscriptions_per_publisher + 1):
            wanted = _subscription(dice, symbol, dice.choice(examples))
            subscribers.append(Subscriber(f"P{number}.{place}", dice.choice(overlay.ids), wanted))
    return Workload(tuple(publishers), tuple(subscribers))


def quotes(symbol: str, price: float, seed: int) -> Iterator[Publication]:
    """The endless quotes of a symbol, on a geometric random walk from ``price``.

    >>> first, second = itertools.islice(quotes("S1", 20.0, seed=1), 2)
    >>> first["symbol"], second["day"], second["open"] == first["close"]
    ('S1', 2, True)
    """
    dice = random.Random(seed)
    for day in itertools.count(1):
        walk = list(itertools.accumulate((dice.gauss(0, VOLATILITY / 2) for _ in range(4)), initial=0.0))
        opened, high, low, close = (round(price * math.exp(step), 2) for step in (0.0, max(walk), min(walk), walk[-1]))
        volume = int(math.exp(dice.gauss(12, 1))) * 100
        yield Publication(
            {"class": "STOCK", "symbol": symbol, "open": opened, "high": high, "low": low, "close": close,
             "volume": volume, "day": day}
        )  # fmt: skip
        # A price that has rounded to nothing could never rise again.
        price = max(close, 0.01)


#: Thresholds of subscriptions are drawn from this number of the symbol's first quotes.
_EXAMPLES = 20


def _advertisement(symbol: str) -> Filter:
    numbers = (Predicate(name, Operator.PRESENT, 0) for name in ("open", "high", "low", "close", "volume", "day"))
    return Filter((*_of(symbol), *numbers))


def _subscription(dice: random.Random, symbol: str, example: Publication) -> Filter:
    (_, threshold), *_ = dice.choices(TEMPLATES, [share for share, _ in TEMPLATES])
    if threshold is None:
        return Filter(_of(symbol))
    attribute, operator = threshold
    return Filter((*_of(symbol), Predicate(attribute, operator, example[attribute])))


def _of(symbol: str) -> tuple[Predicate, ...]:
    return Predicate("class", Operator.EQ, "STOCK"), Predicate("symbol", Operator.EQ, symbol)


#: Every kind of workload that a scenario can name.
WORKLOADS: Mapping[str, Callable[[WorkloadSpec, Overlay, int], Workload]] = {"stock": stock}
