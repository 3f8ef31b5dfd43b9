"""The kind ``churn``: subscriptions come and go on brokers with a real protocol, next to what the model expects (STOCH 3.1, 4).

A scenario is one run; those that differ in their seed alone are independent repetitions of it, each begun in equilibrium, so that
means and intervals over them are what they seem. Rates are unequal: ``draw`` names the dice that gave them.
"""

import hashlib
from typing import NamedTuple

import msgspec
import numpy as np

from overweave.analysis.classes import Inclusion
from overweave.analysis.models import MODELS, traffic
from overweave.analysis.tree import Reals, Tree
from overweave.analysis.workload import Workload
from overweave.drivers.sim.churn import LIFETIMES, Churn, Process, measure
from overweave.drivers.sim.scenario import OverlaySpec
from overweave.drivers.toml_config import check_keys, converted, table, unknown, values
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES
from overweave.pipeline.sweeps.base import Document, Evaluator


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """``[workload]``: totals of the whole network, and how unequally they are spread over brokers and filter classes."""

    subscriptions: float
    classes: int = 5
    lifetime_s: float = 1.0
    #: Publications per second.
    rate_hz: float = 10.0
    #: One of `LIFETIMES`.
    lifetimes: str = "exponential"
    #: The standard deviation of the logarithms of rates, twice that of lifetimes; 0: all are equal.
    spread: float = 1.0
    draw: int = 1
    #: The chance of a class to be within an earlier one.
    within: float = 0.0
    #: The mean number of advertisements, with churn like subscriptions; 0: publishers have permanent ones.
    advertisements: float = 0.0

    def __post_init__(self) -> None:
        if self.lifetimes not in LIFETIMES:
            raise InvalidInput(unknown("workload.lifetimes", self.lifetimes, LIFETIMES))
        if self.classes < 1:
            raise InvalidInput(f"workload.classes: expected an integer of at least 1, got {self.classes}")
        for name in ("subscriptions", "rate_hz", "spread", "draw", "within", "advertisements"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"workload.{name}: expected a number from 0 on, got {getattr(self, name):g}")
        if self.lifetime_s <= 0:
            raise InvalidInput(f"workload.lifetime_s: expected a time above 0, got {self.lifetime_s:g}")


class Case(NamedTuple):
    """One run."""

    seed: int
    overlay: Overlay
    protocol: str
    clients: Clients
    warm_up_s: float
    duration_s: float


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Measured and expected rates per second between brokers."""

    routing_entries: float
    notification_rate: float
    control_rate: float
    routing_entries_expected: float
    notification_rate_expected: float
    control_rate_expected: float


def read(document: Document) -> Case:
    """A run whose overlay is a tree and whose protocol has a model."""
    for name in ("overlay", "workload"):
        if name not in document:
            raise InvalidInput(f"{name}: expected a table [{name}], which is missing")
    plain = converted(_Plain, "", {name: document[name] for name in ("seed", "warm_up_s", "duration_s") if name in document})
    given = _Plain(**plain)
    for name, least in (("warm_up_s", 0.0), ("duration_s", 1e-9)):
        if getattr(given, name) < least:
            raise InvalidInput(f"{name}: expected a time {'from' if least == 0 else 'above'} 0, got {getattr(given, name):g}")
    clients = values(Clients, "workload", document["workload"])
    options = dict(table("overlay", document["overlay"]))
    shape = options.pop("shape", None)
    if not isinstance(shape, str):
        raise InvalidInput(f"overlay.shape: expected one of {', '.join(SHAPES)}, got {shape!r}")
    # The same draw has the same overlay, whatever the seed of the run.
    overlay = OverlaySpec(shape, options).make(clients.draw)
    if not overlay.is_tree():
        raise InvalidInput(f"overlay.shape: expected a tree, got {shape!r} with cycles")
    routing = table("routing", document.get("routing", {}))
    check_keys("routing.", routing, ("protocol",))
    protocol = routing.get("protocol", "identity")
    if protocol not in MODELS:
        raise InvalidInput(unknown("routing.protocol", str(protocol), MODELS))
    return Case(given.seed, overlay, protocol, clients, given.warm_up_s, given.duration_s)


def evaluate(case: Case) -> Compared:
    """Run it, and ask the model."""
    drawn = draw(case.clients, len(case.overlay))
    churn = Churn(
        subscriptions=Process(drawn.arrival_hz, drawn.lifetime_s),
        publication_hz=drawn.publication_hz,
        advertisements=None if drawn.advertising_hz is None else Process(drawn.advertising_hz, drawn.lifetime_s),
        wider=drawn.inclusion.wider,
        lifetimes=case.clients.lifetimes,
    )
    found = measure(case.overlay, case.protocol, churn, _dice(case), warm_up_s=case.warm_up_s, duration_s=case.duration_s)
    tree = Tree.of_overlay(case.overlay)
    rows = [case.overlay.position(id) for id in tree.ids]
    advertising = () if drawn.advertising_hz is None else (drawn.advertising_hz[rows], drawn.lifetime_s[rows])
    workload = Workload(drawn.arrival_hz[rows], drawn.lifetime_s[rows], drawn.publication_hz[rows], *advertising)
    expected = traffic(case.protocol, tree, workload, drawn.inclusion)
    names = ("routing_entries", "notification_rate", "control_rate")
    return Compared(**msgspec.to_builtins(found), **{f"{name}_expected": getattr(expected, name) for name in names})


class Drawn(NamedTuple):
    """Rates by broker, in the order of the overlay, and class."""

    arrival_hz: Reals
    lifetime_s: Reals
    publication_hz: Reals
    advertising_hz: Reals | None
    inclusion: Inclusion


def draw(clients: Clients, brokers: int) -> Drawn:
    """The rates of ``clients``: lognormal shares of the totals."""
    dice, shape = np.random.default_rng(clients.draw), (brokers, clients.classes)

    def shares() -> Reals:
        values = dice.lognormal(0, clients.spread, shape)
        return np.asarray(values / values.sum())

    lifetime_s = clients.lifetime_s * dice.lognormal(0, clients.spread / 2, shape)
    arrival_hz = clients.subscriptions * shares() / lifetime_s
    publication_hz = clients.rate_hz * shares()
    advertising_hz = clients.advertisements * shares() / lifetime_s if clients.advertisements else None
    pairs = [(each, int(dice.integers(each))) for each in range(1, clients.classes) if dice.random() < clients.within]
    return Drawn(arrival_hz, lifetime_s, publication_hz, advertising_hz, Inclusion.of(clients.classes, pairs))


def _dice(case: Case) -> int:
    """A seed of this scenario alone: with common random numbers the errors of scenarios would be correlated."""
    words = [case.seed, len(case.overlay), case.protocol, *msgspec.structs.astuple(case.clients)]
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest())


class _Plain(msgspec.Struct):
    seed: int = 1
    warm_up_s: float = 1.0
    duration_s: float = 10.0


CHURN = Evaluator(
    read,
    evaluate,
    Compared,
    keys=("seed", "warm_up_s", "duration_s", "overlay", "routing", "workload"),
    drawn=("routing_entries", "notification_rate", "control_rate"),
    per_task=60,
)
