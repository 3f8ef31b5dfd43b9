"""GRAPE's choice of a broker for every publisher (THESIS 5.2.2), applied to a plan as the last step of 6.3.

The metric with priority is computed for all brokers and normalised, (x - min) / (max - min); brokers above 1 - weight are
dropped; of the others the best by the second metric is taken. Departures: a broker is refused where the publisher would leave
some broker of the tree without its headroom (the thesis moves publishers whatever the capacity), and the publishers with most
bandwidth choose first.
"""

from typing import Literal

import msgspec
import numpy as np

from overweave.planning.flows import Flows, per_bit, table_entries
from overweave.planning.kernels.flow import distances
from overweave.planning.load import predict
from overweave.planning.model import Model
from overweave.planning.place.base import Placement, hosted
from overweave.planning.problem import Reals, Whole
from overweave.planning.tree import Design


class GrapeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first metric to minimise and its weight; defaults are those of THESIS 7.3.2."""

    priority: Literal["load", "delay"] = "load"
    weight: float = 1.0
    #: Refuse places that take a broker's headroom.
    capacity: bool = True


def grape(options: GrapeOptions) -> Placement:
    """The placement with some options."""

    def place(model: Model, design: Design, flows: Flows, draw: np.random.Generator) -> Whole:  # noqa: ARG001
        fixed = hosted(model, design)
        homes = np.maximum(design.publisher, 0)
        publishers = model.problem.publishers
        state = _State(model, design, flows, homes) if options.capacity else None
        stay_s = _stays(model, design, flows, homes)
        for p in np.lexsort((np.arange(len(homes)), -publishers.bytes_per_s)).tolist():
            if fixed[p] >= 0:
                continue
            for node in _ranked(options, flows, p, stay_s, int(homes[p])):
                if node == homes[p] or state is None or state.moves(p, int(homes[p]), node):
                    homes[p] = node
                    break
        return homes

    return place


def _ranked(options: GrapeOptions, flows: Flows, publisher: int, stay_s: Reals, home: int) -> list[int]:
    """Nodes from the best to the worst; those that the weight drops come last, by the first metric. Ties: the current place."""
    rates = flows.total_rates(publisher).astype(np.float64)
    delays = _delays(flows, publisher, stay_s)
    first, second = (rates, delays) if options.priority == "load" else (delays, rates)
    spread = float(first.max() - first.min())
    share = (first - first.min()) / spread if spread > 0 else np.zeros(len(first))
    dropped = share > 1 - options.weight + 1e-12
    nodes = np.arange(len(first))
    found: list[int] = np.lexsort(
        (nodes, nodes != home, np.where(dropped, 0.0, first), np.where(dropped, first, second), dropped)
    ).tolist()
    return found


def _stays(model: Model, design: Design, flows: Flows, homes: Whole) -> Reals:
    """The time of a publication at each broker, by matching alone: queues depend on later choices."""
    unit_node = design.item[: len(model.problem.units)]
    entries = table_entries(flows, model.problem, unit_node, homes)
    pool, broker = model.problem.pool, design.tree.broker
    return pool.base_s[broker] + pool.slope_s[broker] * entries


def _delays(flows: Flows, publisher: int, stay_s: Reals) -> Reals:
    """Algorithm 5 for a publisher at every node."""
    weight = flows.delivered[publisher].astype(np.float64)
    total, way = weight.sum(), np.empty(len(stay_s))
    found = np.zeros(len(stay_s))
    if total > 0:
        # A hop costs also where matching takes no time.
        for node in range(len(stay_s)):
            distances(flows.tree.parent, node, stay_s, 1e-9, way)
            found[node] = float(weight @ way) / total
    return found


class _State:
    """Loads with publishers where they are at the moment."""

    def __init__(self, model: Model, design: Design, flows: Flows, homes: Whole) -> None:
        problem = model.problem
        self._flows, self._problem = flows, problem
        self._rate, self._size = per_bit(problem, problem.publishers.rate_hz), per_bit(problem, problem.publishers.bytes_per_s)
        unit_node = design.item[: len(problem.units)]
        now = predict(problem, design.tree, unit_node, homes, flows)
        self._input, self._output = now.input_hz, now.output_bytes_per_s
        pool, broker, free = problem.pool, design.tree.broker, 1 - problem.goals.headroom
        self._room = pool.bandwidth_bytes_per_s[broker] * free
        local = np.zeros(len(design.tree), np.int64)
        np.add.at(local, unit_node, problem.units.filters)
        # Whatever moves, no table has more than all filters.
        entries = np.full(len(design.tree), int(problem.units.filters.sum()))
        match_s = pool.base_s[broker] + pool.slope_s[broker] * entries
        with np.errstate(divide="ignore"):
            self._input_max = np.minimum(free / match_s, pool.capacity_hz[broker] * free)

    def moves(self, publisher: int, now: int, then: int) -> bool:
        """Move a publisher if no broker that gets more by it has too much then."""
        window = int(self._problem.publishers.window[publisher])
        before, after = (self._flows.carried(publisher, node, window) for node in (now, then))
        input = self._input + (after[0] - before[0]) * self._rate[publisher]
        output = self._output + (after[1] - before[1]) * self._size[publisher]
        worse = (input > np.maximum(self._input_max, self._input)) | (
            output >= np.maximum(self._room, self._output * (1 + 1e-12))
        )
        worse &= (after[0] > before[0]) | (after[1] > before[1])
        if worse.any():
            return False
        self._input, self._output = input, output
        return True
