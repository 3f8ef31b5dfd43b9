"""The load that a plan means for every broker, predicted from profiles: rates, utilisations, hops and delay (THESIS 6.1.2).

Rates are exact for the profiled publications: a publication visits the brokers on the paths to all who want it. Delays are those
of M/G/1 queues: a broker matches one publication after the other, and what it sends for one of them leaves as one batch,
which is why gathering all subscribers of a publisher at one broker costs delay (7.3.3).
"""

from dataclasses import dataclass

import numpy as np

from overweave.planning.flows import Flows, flows_of, per_bit, table_entries
from overweave.planning.kernels.flow import distances
from overweave.planning.problem import Problem, Reals, Whole
from overweave.planning.tree import Tree


@dataclass(frozen=True, eq=False)
class Predicted:
    """Per node of the tree; hops and delay are means over all deliveries to subscribers (nan: nothing is delivered)."""

    input_hz: Reals
    output_bytes_per_s: Reals
    input_utilisation: Reals
    output_utilisation: Reals
    table_entries: Whole
    deliveries_hz: Reals
    hops: float
    delay_s: float

    @property
    def overloaded(self) -> Whole:
        """Nodes with more input or output than they can carry."""
        return np.flatnonzero((self.input_utilisation > 1) | (self.output_utilisation > 1))


def predict(
    problem: Problem, tree: Tree, unit_node: Whole, homes: Whole, flows: Flows | None = None, link_delay_s: float = 0.0
) -> Predicted:
    """The load with every unit and every publisher at its node."""
    flows = flows or flows_of(problem, tree, unit_node)
    publishers, pool, count = problem.publishers, problem.pool, len(tree)
    rate, size = per_bit(problem, publishers.rate_hz), per_bit(problem, publishers.bytes_per_s)
    input_hz, sent_bytes, sent_hz = np.zeros((3, count))
    for p, home in enumerate(homes.tolist()):
        arrivals, forwards = flows.carried(p, home, int(publishers.window[p]))
        # A publisher without a window is known by its rate alone.
        input_hz += arrivals * rate[p] if publishers.window[p] else np.eye(1, count, home)[0] * publishers.rate_hz[p]
        sent_bytes += forwards * size[p]
        sent_hz += forwards * rate[p]
    local = np.zeros(count)
    np.add.at(local, unit_node, problem.units.output_bytes_per_s)
    deliveries_hz = rate @ flows.delivered
    entries = table_entries(flows, problem, unit_node, homes)
    bandwidth = pool.bandwidth_bytes_per_s[tree.broker]
    match_s = pool.base_s[tree.broker] + pool.slope_s[tree.broker] * entries
    output = local + sent_bytes
    input_utilisation = np.maximum(input_hz * match_s, input_hz / pool.capacity_hz[tree.broker])
    stay_s = _stay(input_hz, match_s) + _sending(input_hz, sent_hz + deliveries_hz, output, bandwidth)
    hops, delay_s = _ways(flows, rate, homes, stay_s, link_delay_s)
    return Predicted(input_hz, output, input_utilisation, output / bandwidth, entries, deliveries_hz, hops, delay_s)


def _stay(rate_hz: Reals, service_s: Reals) -> Reals:
    """Waiting and service, for a fixed time of service (Pollaczek and Khinchine)."""
    used = rate_hz * service_s
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used < 1, service_s + used * service_s / (2 * (1 - used)), np.inf)


def _sending(input_hz: Reals, output_hz: Reals, output: Reals, bandwidth: Reals) -> Reals:
    """The time until one message of a batch has left: the wait for earlier batches and for half of its own."""
    copies = np.divide(output_hz, input_hz, out=np.zeros_like(output_hz), where=input_hz > 0)
    message_s = np.divide(output, output_hz * bandwidth, out=np.zeros_like(output), where=output_hz > 0)
    batch_s = copies * message_s
    wait_s = _stay(input_hz, batch_s) - batch_s
    return np.where(output_hz > 0, wait_s + (np.maximum(copies, 1) + 1) / 2 * message_s, 0.0)


def _ways(flows: Flows, rate: Reals, homes: Whole, stay_s: Reals, link_delay_s: float) -> tuple[float, float]:
    """Means over deliveries of the links from publisher to subscriber, and of the time that takes."""
    total, hops, delay, way = 0.0, 0.0, 0.0, np.empty(len(stay_s))
    still = np.zeros_like(stay_s)
    for p, home in enumerate(homes.tolist()):
        weight = flows.delivered[p] * rate[p]
        used = weight > 0
        total += float(weight.sum())
        distances(flows.tree.parent, home, still, 1.0, way)
        hops += float(weight[used] @ way[used])
        distances(flows.tree.parent, home, stay_s, link_delay_s, way)
        delay += float(weight[used] @ way[used])
    return (hops / total, delay / total) if total > 0 else (float("nan"), float("nan"))
