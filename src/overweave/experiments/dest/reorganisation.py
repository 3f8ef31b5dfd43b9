"""The self-organising overlay (DEST III-C, figure 22): 70 brokers, every two of which talk at a random rate, change their links.

The paper does not say how many links its overlay had, nor how many a broker may have. A random graph of degree 3 has its average
of 3.97 hops. A broker may have four links here, or as many as it began with.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.config import BrokerConfig
from overweave.contract.modules import Environment, Module
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.experiments.dest.networks import spread
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

BROKERS, DEGREE = 70, 3
#: Between any two brokers, in messages a minute.
RATE_MAX = 100
EVERY_S = 6.0
STEPS = 6
CONFIG = BrokerConfig(heartbeat_s=1.0, link_timeout_s=3.5)


class Setup(NamedTuple):
    """One network and how long it organises itself; ``degree_max`` None: no broker gets more links than it began with."""

    degree_max: int | None
    periods: int
    seed: int
    brokers: int = BROKERS


def setups(full: bool) -> list[Setup]:
    """The setup of a measurement."""
    return [Setup(most, 6 if full else 4, seed) for most in (4, None) for seed in range(1, 6 if full else 2)]


def measure_all(several: list[Setup], processes: int) -> pd.DataFrame:
    """A row per setup, period and number of hops."""
    return pd.concat(spread(measure, several, processes), ignore_index=True)


def measure(setup: Setup) -> pd.DataFrame:
    """A row per period and number of hops: the share of messages with that number, and the number of links."""
    overlay = make_overlay("random-graph", brokers=setup.brokers, degree=DEGREE, seed=setup.seed)
    draw = np.random.default_rng(setup.seed)
    rates = draw.integers(1, RATE_MAX + 1, (len(overlay), len(overlay)))
    np.fill_diagonal(rates, 0)
    network = _started(overlay, setup)
    rows = _look(network, overlay, rates, setup, 0)
    for period in range(1, setup.periods + 1):
        _talk(network, overlay, rates, draw)
        rows += _look(network, overlay, rates, setup, period)
    return pd.DataFrame(rows)


def _started(overlay: Overlay, setup: Setup) -> SimulatedNetwork:
    def modules(at: Environment) -> dict[str, Module]:
        broker = at.broker
        most = setup.degree_max or max(2, len(overlay.neighbours(broker)))
        return {"organise": SelfOrganise(broker, SelfOrganiseOptions(EVERY_S, degree_max=most, changes_max=len(overlay)))}

    make = PROTOCOLS["destination"].make
    network = SimulatedNetwork(overlay, make, setup.seed, config=CONFIG, make_modules=modules, on_delivery=lambda *_: None)
    for broker in overlay.ids:
        network.add_client(f"client {broker}", broker)
        network.say(f"client {broker}", Advertise(f"a {broker}", parse_filter("[class,eq,'TALK'],[to,isPresent,'']")))
        network.say(f"client {broker}", Subscribe(f"s {broker}", parse_filter(f"[class,eq,'TALK'],[to,eq,'{broker}']")))
    network.scheduler.run(EVERY_S / 2)
    return network


def _talk(network: SimulatedNetwork, overlay: Overlay, rates: NDArray[np.int64], draw: np.random.Generator) -> None:
    """Everybody to everybody, for a period."""
    said = [parse_publication(f"[class,'TALK'],[to,'{broker}']") for broker in overlay.ids]
    for _ in range(STEPS):
        counts = draw.poisson(rates * (EVERY_S / STEPS / 60))
        for broker, row in zip(overlay.ids, counts.tolist(), strict=True):
            several = [said[to] for to, count in enumerate(row) for _ in range(count)]
            if several:
                network.publish(f"client {broker}", *several)
        network.scheduler.run(network.scheduler.now_s + EVERY_S / STEPS)


def _look(
    network: SimulatedNetwork, overlay: Overlay, rates: NDArray[np.int64], setup: Setup, period: int
) -> list[dict[str, Any]]:
    now = Overlay(overlay.ids, sorted(network.links))
    assert now.is_connected(), "the overlay has fallen apart"
    distances = np.array([[_distance(network, one, other) for other in overlay.ids] for one in overlay.ids])
    told = {"degree_max": setup.degree_max or 0, "seed": setup.seed, "period": period, "links": len(now.links)}
    shares = np.bincount(distances.ravel(), weights=rates.ravel()) / rates.sum()
    return [{**told, "hops": hops, "share": float(share)} for hops, share in enumerate(shares) if share]


def _distance(network: SimulatedNetwork, one: str, other: str) -> int:
    known = network.broker(one).topology
    assert known is not None
    return known.distances[other]
