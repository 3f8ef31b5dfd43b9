"""What arrives when brokers or links are gone permanently (DEST V-B, figures 23 and 24).

Every broker has a publisher and a subscriber, and every event is for every subscriber. Failures add up in one network: more and
more brokers, or links, drawn at random; each time the brokers have some seconds to notice and to find other ways, then every
publisher publishes once. Filter-based routing has its trees, and finds none.

What can be reached at all depends on how links lie. The paper drew its overlays with GT-ITM, whose flat networks follow
Waxman's model, so these do too; MERC has its clusters.
"""

import gc
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from overweave.contract.config import BrokerConfig
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.experiments.dest.networks import available, copied, overlay_for, quieten, spread, started
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay

PROTOCOLS_OF_FAILURES = ("filter-general", "destination", "merc")
KINDS = ("brokers", "connections")
HALF = 0.5
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CONFIG = BrokerConfig(heartbeat_s=0.5, link_timeout_s=1.2, undeliverable_timeout_s=0.5)
#: The time to detect and announce a failure, and to deliver.
NOTICE_S, ARRIVE_S = 3.0, 2.0
_EVENTS, _EVENT = parse_filter("[class,eq,'EVENT'],[x,isPresent,0]"), parse_publication("[class,'EVENT'],[x,1]")


class Setup(NamedTuple):
    """One overlay with one protocol; what fails is drawn by the same seed, in growing shares."""

    protocol: str
    seed: int
    shares: tuple[float, ...]
    brokers: int = 100
    degree: float = 6


def setups(full: bool) -> list[Setup]:
    """20 overlays with half of everything gone, and whole curves for some; at full size 40 overlays with whole curves."""
    if full:
        return [Setup(protocol, seed, SHARES) for protocol in available(PROTOCOLS_OF_FAILURES) for seed in range(1, 41)]
    return [
        Setup(protocol, seed, SHARES if seed <= 3 else (HALF,))
        for protocol in reversed(PROTOCOLS_OF_FAILURES[:2])
        for seed in range(1, 21)
    ]


def measure_all(several: list[Setup], processes: int) -> pd.DataFrame:
    """A row per setup, kind of failure and share."""
    return pd.concat(spread(measure, several, processes), ignore_index=True)


def measure(setup: Setup) -> pd.DataFrame:
    """A row per kind of failure and share: how many of all pairs of publisher and subscriber had their event delivered."""
    if setup.protocol == "merc":
        overlay = overlay_for(setup.protocol, setup.brokers, setup.degree, setup.seed)
    else:
        overlay = make_overlay("waxman", brokers=setup.brokers, degree=setup.degree, seed=setup.seed)
    network = started(overlay, setup.protocol, config=CONFIG)
    _populate(network, overlay)
    gc.freeze()
    rows = []
    for kind in KINDS:
        # Both have the same past: the start takes longer than everything else.
        rows += _fail(copied(network), overlay, kind, setup)
        gc.collect()
    gc.unfreeze()
    return pd.DataFrame(rows)


def _populate(network: SimulatedNetwork, overlay: Overlay) -> None:
    for id in overlay.ids:
        network.add_client(f"publisher {id}", id)
        network.say(f"publisher {id}", Advertise(f"a {id}", _EVENTS))
    quieten(network)
    for id in overlay.ids:
        network.add_client(f"subscriber {id}", id)
        network.say(f"subscriber {id}", Subscribe(f"s {id}", _EVENTS))
    quieten(network)


def _fail(network: SimulatedNetwork, overlay: Overlay, kind: str, setup: Setup) -> list[dict[str, Any]]:
    size = len(overlay) if kind == "brokers" else len(overlay.links)
    draw = np.random.default_rng((setup.seed, 0))  # not the one that the overlay came from
    order, gone, rows = draw.permutation(size).tolist(), 0, []
    for share in setup.shares:
        for number in order[gone : round(share * size)]:
            network.crash(overlay.ids[number]) if kind == "brokers" else network.cut_link(overlay.links[number].ends)
        gone = round(share * size)
        network.scheduler.run(network.scheduler.now_s + NOTICE_S)
        network.deliveries.clear()
        for id in overlay.ids:
            network.publish(f"publisher {id}", _EVENT)
        network.scheduler.run(network.scheduler.now_s + ARRIVE_S)
        assert max(network.deliveries.values(), default=0) <= 1, "an event came twice"
        told = {"protocol": setup.protocol, "seed": setup.seed, "kind": kind, "share": share}
        alive = len(network.running())
        rows.append(
            {
                **told,
                "delivered": len(network.deliveries) / len(overlay) ** 2,
                "delivered_of_living": len(network.deliveries) / alive**2,
            }
        )
    return rows
