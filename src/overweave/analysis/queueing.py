"""Utilisation and delay of brokers and links (STOCH 6): M/G/1 on the rates that routing gives.

A broker is two stations in a row, as in the simulator (THESIS fig 7.1): an engine that matches each publication against the
table, and an uplink that all that goes out shares. Waiting is Pollaczek and Khinchine's lambda E[S^2] / (2 (1 - rho)).

Rates and so utilisation are exact, but for acknowledgements and greetings, which are not counted. Waits are not: arrivals from
other brokers are taken to be Poisson, and what one publication sends out at once to come one by one, so waits at the uplink
are a lower bound. A table's size is taken to be independent from one publication to the next.
"""

from dataclasses import dataclass

import numpy as np

from overweave.analysis.classes import Inclusion
from overweave.analysis.models import Traffic
from overweave.analysis.tree import Reals, Tree
from overweave.analysis.workload import Workload
from overweave.errors import InvalidInput

Cost = float | Reals


@dataclass(frozen=True, eq=False)
class Service:
    """What brokers and links take, for all or for each in the order of the tree; defaults as in the table ``brokers``."""

    matching_delay_base_s: Cost = 1e-5
    matching_delay_per_subscription_s: Cost = 1e-7
    output_bandwidth_bytes_per_s: Cost = 1_000_000.0
    #: Of the link to the parent.
    link_delay_s: Cost = 0.001
    #: What a publication and a control message weigh on a link.
    publication_bytes: float = 200.0
    control_bytes: float = 64.0

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            least, above = (0, "above 0") if name == "output_bandwidth_bytes_per_s" else (-np.finfo(float).tiny, "from 0 on")
            for value in np.ravel(values):
                if not least < value < np.inf:
                    raise InvalidInput(f"{name}: expected a finite number {above}, found {value:g}")


@dataclass(frozen=True, eq=False)
class Load:
    """Per broker, in the order of the tree; a delay is infinite where more comes than can be served."""

    #: Publications per second, and the mean size of the table that they are matched against.
    input_hz: Reals
    table_entries: Reals
    input_utilisation: Reals
    #: Waiting and matching.
    matching_s: Reals
    #: Publications to neighbours and to local subscribers, and control messages, per second.
    output_hz: Reals
    output_utilisation: Reals
    #: Waiting for the uplink and leaving.
    sending_s: Reals
    #: From one end's engine through to the other's, on the link to the parent.
    hop_up_s: Reals
    hop_down_s: Reals
    #: From publishing until matched at the subscriber's broker, over all deliveries; None when nothing is delivered.
    delivery_s: float | None


def load(tree: Tree, workload: Workload, traffic: Traffic, service: Service, inclusion: Inclusion | None = None) -> Load:
    """What ``traffic`` means for brokers."""
    local, delivered, published = _local(workload, inclusion)
    entries = local + _at_parent(tree, traffic.entries_up) + traffic.entries_down
    variance = local + _at_parent(tree, traffic.variance_up) + traffic.variance_down
    input_hz = published + _at_parent(tree, traffic.publications_up) + traffic.publications_down
    per_entry_s = service.matching_delay_per_subscription_s
    match_s = service.matching_delay_base_s + per_entry_s * entries
    engine = _station(input_hz, match_s, match_s**2 + per_entry_s**2 * variance)
    publications_hz = delivered + traffic.publications_up + _at_parent(tree, traffic.publications_down)
    control_hz = traffic.control_up + _at_parent(tree, traffic.control_down)
    uplink = _uplink(publications_hz, control_hz, service)
    sending_s, matching_s = uplink[1], engine[1]
    parents = np.maximum(tree.parents, 0)
    hop_up_s = sending_s + service.link_delay_s + matching_s[parents]
    hop_down_s = sending_s[parents] + service.link_delay_s + matching_s
    for hop in (hop_up_s, hop_down_s):
        hop[0] = 0
    delivery_s = _delivery(tree, workload, matching_s, hop_up_s, hop_down_s, inclusion)
    return Load(
        input_hz,
        entries,
        engine[0],
        matching_s,
        publications_hz + control_hz,
        uplink[0],
        sending_s,
        hop_up_s,
        hop_down_s,
        delivery_s,
    )


def _station(rate_hz: Reals, service_s: Reals, service_s_squared: Reals) -> tuple[Reals, Reals]:
    """Utilisation, and the mean time from coming to leaving."""
    utilisation = rate_hz * service_s
    stable = utilisation < 1
    wait_s = np.full(rate_hz.shape, np.inf)
    wait_s[stable] = rate_hz[stable] * service_s_squared[stable] / 2 / (1 - utilisation[stable])
    return utilisation, wait_s + service_s


def _uplink(publications_hz: Reals, control_hz: Reals, service: Service) -> tuple[Reals, Reals]:
    """Messages of two sizes; publications are asked for the time that they take."""
    publication_s, control_s = (
        np.broadcast_to(size / service.output_bandwidth_bytes_per_s, publications_hz.shape)
        for size in (service.publication_bytes, service.control_bytes)
    )
    total = publications_hz + control_hz
    safe = np.where(total > 0, total, 1)
    mean_s = (publication_s * publications_hz + control_s * control_hz) / safe
    squared = (publication_s**2 * publications_hz + control_s**2 * control_hz) / safe
    utilisation, stay_s = _station(total, mean_s, squared)
    return utilisation, stay_s - mean_s + publication_s


def _at_parent(tree: Tree, values: Reals) -> Reals:
    """Sums over the children of each broker."""
    sums = np.zeros(len(tree))
    np.add.at(sums, tree.parents[1:], values[1:])
    return sums


def _local(workload: Workload, inclusion: Inclusion | None) -> tuple[Reals, Reals, Reals]:
    """Per broker: local subscriptions, deliveries to them per second, and publications of local clients per second."""
    sums = np.zeros((3, len(workload.arrival_hz)))
    for part, copies in _parts(workload, inclusion):
        wanting = _wanting(part, inclusion)
        everything = part.publication_hz.sum(axis=0)
        sums += copies * np.stack([part.offered.sum(axis=1), wanting @ everything, part.publication_hz.sum(axis=1)])
    return sums[0], sums[1], sums[2]


def _delivery(
    tree: Tree, workload: Workload, matching_s: Reals, up_s: Reals, down_s: Reals, inclusion: Inclusion | None
) -> float | None:
    """Every pair of a publication and a subscription that it matches crosses the links between them."""
    taken_s, pairs = 0.0, 0.0
    for part, copies in _parts(workload, inclusion):
        wanting, published = _wanting(part, inclusion), part.publication_hz
        wanting_below, published_below = tree.gathered(wanting), tree.gathered(published)
        upwards = published_below * tree.left_out(wanting, wanting_below)
        downwards = tree.left_out(published, published_below) * wanting_below
        upwards[0] = downwards[0] = 0
        first = published * wanting_below[0]
        with np.errstate(invalid="ignore"):
            for rates, times_s in ((upwards, up_s), (downwards, down_s), (first, matching_s)):
                crossings = rates.sum(axis=1)
                taken_s += copies * float(np.where(crossings > 0, crossings * times_s, 0).sum())
        pairs += copies * float(first.sum())
    return taken_s / pairs if pairs else None


def _parts(workload: Workload, inclusion: Inclusion | None) -> list[tuple[Workload, int]]:
    return list(workload.parts()) if inclusion is None or inclusion.is_empty else [(workload, 1)]


def _wanting(workload: Workload, inclusion: Inclusion | None) -> Reals:
    """Local subscriptions that a publication of each class matches."""
    offered = workload.offered
    return offered if inclusion is None or inclusion.is_empty else offered + inclusion.above(offered)
