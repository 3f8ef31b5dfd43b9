"""100 brokers of degree 6, each with a publisher and a subscriber (DEST V-A, figures 15 to 18).

One network per protocol: advertisements first, whose copies are counted, then subscriptions, which are counted where they are
stored, then publications at one rate after the other.
"""

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from overweave.batches.trace_fields import trace_fields
from overweave.contract.effects import Parts
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.experiments.dest.chains import COSTS
from overweave.experiments.dest.networks import GENERAL, available, overlay_for, quieten, spread, started
from overweave.experiments.dest.watching import Counts, Watcher
from overweave.experiments.dest.workloads import GROUPS, advertisement, groups_out, quote, windows
from overweave.language.messages import Advertise, Subscribe
from overweave.overlay.graph import Overlay

#: DEST's own number; with fewer, each weighs as much more.
SUBSCRIPTIONS_PER_BROKER = 30
#: Publications a minute over all publishers (figure 15).
RATES = {
    "filter-general": (500, 1000, 2000, 2500),
    "destination": (500, 2000, 8000, 14_000),
    "merc": (500, 2000, 8000, 14_000),
}
#: The share of the brokers that are interested in a publication. The paper does not tell; with half of them lists are as long as
#: it says, and so they are in its other figures.
INTERESTED = 0.5
#: MERC's edge brokers have 8 cores, all others one; here they take an eighth of the time.
EDGE_CORES = 8


class Setup(NamedTuple):
    """One network; ``share`` of the advertisements meets each subscription."""

    protocol: str
    share: float
    subscriptions_per_broker: int
    duration_s: float = 0.0
    brokers: int = 100
    degree: float = 6
    seed: int = 1


def setups(full: bool) -> list[Setup]:
    """Figures 15, 16 and 18 with 60 % of the advertisements, figure 17 with other shares; the longest runs first."""
    protocols = available(GENERAL)
    loaded = [Setup(protocol, 0.6, SUBSCRIPTIONS_PER_BROKER if full else 5, 60.0 if full else 3.0) for protocol in protocols]
    others = [
        Setup(protocol, share, 5 if full else 1)
        for share in ((0.2, 0.4, 0.8, 1.0) if full else (0.2, 0.8))
        for protocol in protocols
    ]
    return [*loaded, *others]


class Measured(NamedTuple):
    """The measurements of one network: a row for itself, a row per broker, and a row per rate."""

    network: pd.DataFrame
    brokers: pd.DataFrame
    rates: pd.DataFrame


def measure_all(several: list[Setup], processes: int) -> Measured:
    """Of all networks together."""
    found = list(spread(measure, several, processes))
    return Measured(
        *(pd.concat([table for table in tables if len(table)], ignore_index=True) for tables in zip(*found, strict=True))
    )


def measure(setup: Setup) -> Measured:
    """Of one network."""
    return _Run(setup).measured()


class _Run:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._draw = np.random.default_rng(setup.seed)
        self._overlay: Overlay = overlay_for(setup.protocol, setup.brokers, setup.degree, setup.seed)
        #: Which groups the advertisement at each broker leaves out; brokers are in no order.
        self._out = {
            id: groups_out(number, setup.share)
            for number, id in enumerate(np.random.default_rng(setup.seed).permutation(self._overlay.ids).tolist())
        }
        self._counts, self._latencies_s = Counts(), list[float]()
        # Fewer subscriptions weigh more, so that brokers are as busy.
        costs = _scaled(COSTS, SUBSCRIPTIONS_PER_BROKER / setup.subscriptions_per_broker)
        edges = [broker.id for broker in self._overlay.brokers if broker.other_clusters]
        self._network: SimulatedNetwork = started(
            self._overlay,
            setup.protocol,
            costs,
            watcher=lambda broker: Watcher(broker, self._overlay.position(broker), self._counts),
            on_delivery=self._delivered,
            own_costs=dict.fromkeys(edges, _scaled(costs, 1 / EDGE_CORES, 1 / EDGE_CORES)),
        )

    def measured(self) -> Measured:
        told = {"protocol": self._setup.protocol, "advertisers": self._setup.share}
        self._advertise()
        self._subscribe()
        rates = [{**told, "rate": rate, **self._publish(rate)} for rate in self._rates()]
        issued = len(self._overlay) * self._setup.subscriptions_per_broker
        brokers = pd.DataFrame([{**told, "broker": id, "issued": issued, **self._broker(id)} for id in self._overlay.ids])
        network = {
            **told,
            "duplicate_advertisements": self._counts.duplicates(),
            "copies": float(brokers["stored"].sum() / issued),
            "copies_at_advertisers": float(brokers["stored_at_advertisers"].sum() / issued),
        }
        return Measured(pd.DataFrame([network]), brokers, pd.DataFrame(rates))

    def _rates(self) -> tuple[int, ...]:
        return RATES[self._setup.protocol] if self._setup.duration_s else ()

    def _delivered(self, parts: Parts) -> None:
        arrivals = (arrival for _, batch in parts for arrival in trace_fields(batch))
        self._latencies_s.extend(self._network.scheduler.now_s - arrival.published_at_s for arrival in arrivals)

    def _advertise(self) -> None:
        for id in self._overlay.ids:
            self._network.add_client(f"publisher {id}", id)
            self._network.say(f"publisher {id}", Advertise(f"a {id}", advertisement(self._out[id], grouped=True)))
        quieten(self._network)

    def _subscribe(self) -> None:
        each = self._setup.subscriptions_per_broker
        filters = windows(each * len(self._overlay), self._selectivity(), self._draw, group_first=0)
        for id in self._overlay.ids:
            self._network.add_client(f"subscriber {id}", id)
            for number in range(each):
                self._network.say(f"subscriber {id}", Subscribe(f"s {id} {number}", next(filters)))
        quieten(self._network)

    def _selectivity(self) -> float:
        """The share of prices that each subscription wants; a broker has several of each group."""
        return float(1 - (1 - INTERESTED) ** (GROUPS / self._setup.subscriptions_per_broker))

    def _publish(self, per_minute: int) -> dict[str, Any]:
        """Publications at random times by random publishers, and how long they took."""
        network, draw = self._network, self._draw
        self._latencies_s.clear()
        before = {id: self._busy_s(id) for id in self._overlay.ids}
        count = round(per_minute / 60 * self._setup.duration_s)
        for after_s in (self._setup.duration_s * draw.random(count)).tolist():
            id = self._overlay.ids[int(draw.integers(len(self._overlay)))]
            groups = tuple(group for group in range(GROUPS) if group not in self._out[id])
            network.scheduler.at(network.scheduler.now_s + after_s, self._publish_one, (id, quote(draw, groups)))
        network.scheduler.run(network.scheduler.now_s + self._setup.duration_s)
        busy = [(self._busy_s(id) - before[id]) / self._setup.duration_s for id in self._overlay.ids]
        quieten(network, 3600.0)
        return {
            "latency_s": float(np.mean(self._latencies_s)),
            "deliveries": len(self._latencies_s) / count,
            "utilisation_max": max(busy),
            "utilisation_mean": float(np.mean(busy)),
        }

    def _publish_one(self, what: tuple[str, Any]) -> None:
        self._network.publish(f"publisher {what[0]}", what[1])

    def _busy_s(self, broker: str) -> float:
        station = self._network.station(broker)
        return 0.0 if station is None else station.busy_s

    def _broker(self, id: str) -> dict[str, Any]:
        sizes, counts = self._network.broker(id).statistics().tables, self._counts
        each, position = self._setup.subscriptions_per_broker, self._overlay.position(id)
        groups = [(position * each + number) % GROUPS for number in range(each)]
        idle = sum(group in self._out[id] for group in groups)
        return {
            "stored": sizes["subscriptions"],
            # Its own clients' that its own advertisement does not meet are stored all the same, to be delivered to.
            "stored_at_advertisers": sizes["subscriptions"] - idle,
            "list_mean": counts.destinations[id] / counts.lists[id] if counts.lists[id] else math.nan,
            "lists": counts.lists[id],
            "destinations": counts.destinations[id],
        }


def _scaled(costs: Costs, per_subscription: float, base: float = 1.0) -> Costs:
    return msgspec.structs.replace(
        costs,
        matching_delay_base_s=costs.matching_delay_base_s * base,
        matching_delay_per_subscription_s=costs.matching_delay_per_subscription_s * per_subscription,
    )
