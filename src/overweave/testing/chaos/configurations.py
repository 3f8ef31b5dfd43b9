"""Configurations of the chaos harness: a network, and which faults strike it how often."""

import itertools
from collections.abc import Mapping

import msgspec

from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay

#: Kinds of faults with their weight: processes (kill is SIGKILL and a restart, stop is SIGSTOP and SIGCONT) and connections.
FAULTS: Mapping[str, int] = {
    "kill": 4, "stop": 3, "stop-clients": 2, "restart-all": 0, "reset": 4, "truncate": 4, "stall": 3, "trickle": 3, "cut": 3,
}  # fmt: skip


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One network with its clients and faults."""

    name: str
    #: Several take turns, by the seed.
    protocols: tuple[str, ...]
    overlay: Overlay
    #: Weights that differ from `FAULTS`.
    faults: Mapping[str, int] = {}
    fault_every_s: float = 1.5
    #: How long a subscription that does not stay lives on average, and how many of them there are at a time.
    churn_s: float = 8.0
    churning: int = 3
    #: Publishers do not wait for clients that stand still (`BrokerConfig.stall_timeout_s`).
    stall_timeout_s: float | None = None

    def protocol(self, seed: int) -> str:
        """The one that is on with this seed."""
        return self.protocols[seed % len(self.protocols)]

    def weights(self) -> dict[str, int]:
        """How often each kind of fault strikes, relative to others."""
        return {**FAULTS, **self.faults}


def configuration(name: str) -> Configuration:
    """By name."""
    if name not in CONFIGURATIONS:
        raise InvalidInput(f"configuration: expected one of {', '.join(CONFIGURATIONS)}, got {name!r}")
    return CONFIGURATIONS[name]


def _ring(brokers: int) -> Overlay:
    ids = [f"B{number}" for number in range(1, brokers + 1)]
    return Overlay(ids, itertools.pairwise([*ids, ids[0]]))


def _clusters(pairs: str) -> Overlay:
    """Clusters of two brokers, and an edge broker for each pair: ``UV VW`` is a row of three."""
    names = sorted(set(pairs) - {" "})
    brokers = [Broker(f"{name}{i}", cluster=name) for name in names for i in (1, 2)]
    brokers += [Broker(pair, cluster=pair[0], other_clusters=(pair[1],)) for pair in pairs.split()]
    links = [(f"{name}1", f"{name}2") for name in names]
    links += [(f"{name}{i}", pair) for pair in pairs.split() for i, name in ((1, pair[0]), (2, pair[1]))]
    return Overlay(brokers, links)


_ALL = (
    Configuration(name="filter-chain", protocols=("filter",), overlay=make_overlay("chain", brokers=4)),
    Configuration(
        name="filter-tree", protocols=("filter",), overlay=make_overlay("random-tree", brokers=6, degree_max=3, seed=3)
    ),
    Configuration(
        name="filter-churn", protocols=("filter",), overlay=make_overlay("star", brokers=4),
        churning=10, churn_s=3.0, stall_timeout_s=0.5,
    ),
    Configuration(
        name="filter-restarts", protocols=("filter",), overlay=make_overlay("chain", brokers=3), faults={"restart-all": 8},
        fault_every_s=3.0,
    ),
    Configuration(name="general-ring", protocols=("filter-general",), overlay=_ring(4)),
    Configuration(
        name="general-graph", protocols=("filter-general",), overlay=make_overlay("random-graph", brokers=6, degree=3, seed=2)
    ),
    Configuration(
        name="destination-graph", protocols=("destination",), overlay=make_overlay("random-graph", brokers=6, degree=3, seed=4)
    ),
    Configuration(
        name="destination-pauses", protocols=("destination",), overlay=_ring(4),
        faults={"kill": 1, "stop": 10}, stall_timeout_s=0.5,
    ),
    Configuration(name="merc-row", protocols=("merc",), overlay=_clusters("UV VW")),
    Configuration(name="merc-circle", protocols=("merc",), overlay=_clusters("UV VW UW")),
    Configuration(name="simple-chain", protocols=("simple",), overlay=make_overlay("chain", brokers=4)),
    Configuration(name="flooding-star", protocols=("flooding",), overlay=make_overlay("star", brokers=4), stall_timeout_s=0.5),
    Configuration(
        name="upwards", protocols=("hierarchical-simple", "identity", "covering"),
        overlay=make_overlay("balanced", brokers=5, degree=3), faults={"restart-all": 1},
    ),
    Configuration(
        name="peers", protocols=("identity-peer", "covering-peer", "identity-advertised"),
        overlay=make_overlay("chain", brokers=4), faults={"restart-all": 1},
    ),
)  # fmt: skip
#: By name.
CONFIGURATIONS: Mapping[str, Configuration] = {each.name: each for each in _ALL}
