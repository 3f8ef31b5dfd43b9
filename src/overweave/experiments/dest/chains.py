"""Chains of brokers: a publisher at the head, all subscribers at the tail (DEST V-A, figures 11 to 14).

What takes time is calibrated by figure 14: at 3,000 publications a minute a broker that compares each with 2,000 subscriptions
is busy 63 % of the time, and one that only passes them on 2 %.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from overweave.batches.trace_fields import trace_fields
from overweave.contract.effects import Parts
from overweave.drivers.sim.costs import Costs
from overweave.experiments.dest.networks import LINK_DELAY_S, available, quieten, spread, started
from overweave.experiments.dest.workloads import advertisement, quote, windows
from overweave.language.messages import Advertise, Subscribe
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay

PROTOCOLS_OF_CHAINS = ("filter", "destination", "merc")
RATE_HZ = 3000 / 60
BUSY_MATCHING, BUSY_PASSING, SUBSCRIPTIONS_MATCHED = 0.63, 0.02, 2000
COSTS = Costs(
    link_delay_s=LINK_DELAY_S,
    matching_delay_base_s=BUSY_PASSING / RATE_HZ,
    matching_delay_per_subscription_s=(BUSY_MATCHING - BUSY_PASSING) / RATE_HZ / SUBSCRIPTIONS_MATCHED,
)
SUBSCRIBERS = 100
#: This share of the subscriptions wants each publication.
_SELECTIVITY = 0.1


class Chain(NamedTuple):
    """One run."""

    protocol: str
    brokers: int
    subscriptions: int
    publications: int


def chains(full: bool) -> list[Chain]:
    """All runs; MERC needs an edge broker between two clusters."""
    lengths = range(1, 11) if full else (1, 2, 3, 5, 7, 10)
    return [
        Chain(protocol, brokers, subscriptions, 600 if full else 50)
        for protocol in available(PROTOCOLS_OF_CHAINS)
        for subscriptions in (100, 800, 2000)
        for brokers in lengths
        if protocol != "merc" or brokers >= 3
    ]


def measure_all(several: list[Chain], processes: int) -> pd.DataFrame:
    """A row per run and broker."""
    return pd.concat(spread(measure, several, processes), ignore_index=True)


def measure(chain: Chain) -> pd.DataFrame:
    """A row per broker: how often it looked at a publication, and how busy it was; and the mean latency of the run."""
    overlay, draw = _overlay(chain), np.random.default_rng(1)
    latencies_s: list[float] = []

    def delivered(parts: Parts) -> None:
        arrivals = (arrival for _, batch in parts for arrival in trace_fields(batch))
        latencies_s.extend(network.scheduler.now_s - arrival.published_at_s for arrival in arrivals)

    network = started(overlay, chain.protocol, COSTS, on_delivery=delivered)
    head, tail = overlay.ids[0], overlay.ids[-1]
    network.add_client("publisher", head)
    network.say("publisher", Advertise("a", advertisement()))
    quieten(network)
    subscribers = [f"subscriber {number}" for number in range(SUBSCRIBERS)]
    for subscriber in subscribers:
        network.add_client(subscriber, tail)
    for number, filter in enumerate(windows(chain.subscriptions, _SELECTIVITY, draw)):
        network.say(subscribers[number % SUBSCRIBERS], Subscribe(f"s{number}", filter))
    quieten(network)
    stations = {id: network.station(id) for id in overlay.ids}
    before = {id: (station.matches, station.busy_s) for id, station in stations.items() if station is not None}
    for number in range(chain.publications):
        quoted = quote(draw)
        network.scheduler.at(network.scheduler.now_s + number / RATE_HZ, lambda each: network.publish("publisher", each), quoted)
    quieten(network)
    rows: list[dict[str, Any]] = []
    for position, (id, station) in enumerate(stations.items(), 1):
        assert station is not None
        matches, busy_s = station.matches - before[id][0], station.busy_s - before[id][1]
        rows.append(
            {
                **chain._asdict(),
                "position": position,
                "matches": matches / chain.publications,
                "utilisation": busy_s * RATE_HZ / chain.publications,
                "latency_s": float(np.mean(latencies_s)),
            }
        )
    return pd.DataFrame(rows)


def _overlay(chain: Chain) -> Overlay:
    return make_overlay("clustered-chain" if chain.protocol == "merc" else "chain", brokers=chain.brokers)
