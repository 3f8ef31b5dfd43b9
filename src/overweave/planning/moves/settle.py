"""The placement of all clients and publishers in a tree, with as few displaced ones as possible.

Who has no place goes where all brokers together get least more, the largest first. Where that fails, or somebody who stays is too
much for a broker, one more client gives up its place, and all is tried again: a bounded number of times. The last word on
capacity has `predict`, as for every plan.
"""

from dataclasses import dataclass

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.flows import per_bit
from overweave.planning.kernels.settle import arrive, best_home, settle
from overweave.planning.load import Predicted, predict
from overweave.planning.model import Model
from overweave.planning.moves.arrangement import Arrangement, Settled, moves_from_today
from overweave.planning.problem import BitWords, Reals, Whole
from overweave.planning.tree import Tree

#: Rounds of displacement, and rounds for many clients.
ROUNDS_MAX, ROUNDS_OF_MANY, MANY = 12, 3, 1_000
#: BitWords of vectors, for all publishers and brokers together, that are kept in memory (256 MB).
WORDS_MAX = 1 << 25
_CLOSE = 1e-9


@dataclass(eq=False)
class _Fill:
    """What nodes carry while clients are put into them."""

    arrival: BitWords
    input: Reals
    output: Reals


class Settler:
    """Settles the arrangements of one model, which is in canonical order."""

    def __init__(self, model: Model, link_delay_s: float = 0.0) -> None:
        problem = self._problem = model.problem
        self._model, self._link_delay_s = model, link_delay_s
        units, publishers = problem.units, problem.publishers
        self._rate, self._size = per_bit(problem, publishers.rate_hz), per_bit(problem, publishers.bytes_per_s)
        self._need = units.output_bytes_per_s.copy()
        hosted = publishers.unit >= 0
        np.add.at(self._need, publishers.unit[hosted], publishers.bytes_per_s[hosted])
        self._order = np.lexsort((np.arange(len(units)), -self._need))
        free = 1 - problem.goals.headroom
        pool = problem.pool
        self._room = pool.bandwidth_bytes_per_s * free * (1 - _CLOSE)
        # Whatever moves, no table has more than all filters.
        match_s = pool.base_s + pool.slope_s * float(units.filters.sum())
        with np.errstate(divide="ignore"):
            self._input_max = np.minimum(free / match_s, pool.capacity_hz * free)
        #: Who stays whatever happens, by pins of clients and of their publishing sides.
        self._pinned = model.items.fixed[: len(units)] >= 0
        pins = problem.goals.pins
        self._free_publishers = np.array([id not in pins for id in publishers.ids], np.bool_) & ~hosted
        self._rows_max = int(model.table.count[model.items.profile].max(initial=1))

    def check_size(self, brokers: int) -> None:
        """Refuse what does not fit into memory."""
        words = len(self._problem.publishers) * brokers * self._problem.vectors.words.shape[1]
        if words > WORDS_MAX:
            raise PlanningError(
                f"moves: expected at most {WORDS_MAX:,} words of vectors for publishers and brokers together, found {words:,}"
            )

    def settled(self, arrangement: Arrangement) -> Settled | None:
        """The arrangement with everybody in place, or none."""
        places, homes = arrangement.units.copy(), arrangement.publishers.copy()
        for _ in range(ROUNDS_MAX if len(places) <= MANY else ROUNDS_OF_MANY):
            now = Arrangement(arrangement.tree, places, homes)
            made, loser = self._placed(now)
            if made is None:
                if loser < 0:
                    return None
                places[loser] = -1
                continue
            load = self._load(made)
            over = self._overloaded(load)
            if not len(over):
                return Settled(made, load, moves_from_today(self._problem, made))
            senders = np.concatenate([self._sends_too_much(made.tree, homes, load, node) for node in over.tolist()])
            homes[senders] = -1
            losers = np.concatenate([self._too_much(made.tree, places, load, node) for node in over.tolist()])
            if not len(losers) and not len(senders):
                return None
            # What publishers leave behind may be enough.
            places[losers[: 0 if len(senders) else None]] = -1
        return None

    def busiest(self, arrangement: Arrangement) -> int:
        """The node with the largest overload, or the least room, with placed clients alone."""
        tree = arrangement.tree
        room = self._room[tree.broker]
        fill, _ = self._base(arrangement, arrangement.node_of(len(self._problem.pool))[arrangement.units], room)
        return int(np.argmax(np.maximum(fill.output / room, fill.input / self._input_max[tree.broker])))

    def _placed(self, now: Arrangement) -> tuple[Arrangement | None, int]:
        """Everybody in place by estimate; or none, and a client that makes room when it goes (-1: there is none)."""
        tree, pool = now.tree, self._problem.pool
        node_of = now.node_of(len(pool))
        unit_node = node_of[now.units]
        room = self._room[tree.broker]
        fill, homes = self._base(now, unit_node, room)
        order = self._order[unit_node[self._order] < 0]
        placed, table = unit_node.copy(), self._model.table
        input_max = np.maximum(self._input_max[tree.broker], fill.input)
        more_input, more_output = np.zeros((2, len(tree)))
        touched = np.empty(2 * self._rows_max * len(tree) + 2, np.int64)
        failed = settle(
            order, self._model.items.profile, self._need, table.start, table.count, table.publisher, table.words, tree.parent,
            tree.depth, homes, fill.arrival, self._rate, self._size, fill.input, fill.output, room, input_max, more_input,
            more_output, touched, placed,
        )  # fmt: skip
        if failed >= 0:
            return None, self._makes_room(int(order[failed]), unit_node, room - fill.output)
        units = tree.broker[placed]
        sides = self._problem.publishers.unit
        publishers = np.where(sides >= 0, units[np.maximum(sides, 0)] if len(units) else -1, tree.broker[homes])
        return Arrangement(tree, units, publishers), -1

    def _base(self, now: Arrangement, unit_node: Whole, room: Reals) -> tuple[_Fill, Whole]:
        """The load of nodes by placed clients, and the node of every publisher: the best one for those without a place."""
        problem, tree = self._problem, now.tree
        publishers, width = problem.publishers, problem.vectors.words.shape[1]
        local = self._local(unit_node, len(tree))
        fill = _Fill(np.empty((len(publishers), len(tree), width), np.uint64), np.zeros(len(tree)), np.zeros(len(tree)))
        placed = unit_node >= 0
        np.add.at(fill.output, unit_node[placed], problem.units.output_bytes_per_s[placed])
        homes = now.node_of(len(problem.pool))[now.publishers]
        sides = publishers.unit
        # A side whose client has no place sends from the root, as if it were sent up there.
        homes = np.where(sides >= 0, np.maximum(unit_node[np.maximum(sides, 0)], 0) if len(unit_node) else 0, homes)
        depth = tree.depth
        for p in np.lexsort((np.arange(len(homes)), -publishers.bytes_per_s, homes < 0)).tolist():
            if homes[p] < 0:
                homes[p] = self._best_home(p, tree, depth, local[p], fill, room)
            self._arrive(p, int(homes[p]), tree, depth, local[p], fill.arrival[p], fill.input, fill.output)
        return fill, homes

    def _best_home(self, p: int, tree: Tree, depth: Whole, local: BitWords, fill: _Fill, room: Reals) -> int:
        more_input, more_output = np.zeros((2, len(tree)))
        found = best_home(
            tree.parent, depth, local, float(self._rate[p]), float(self._size[p]), int(self._problem.publishers.window[p]),
            fill.arrival[p], more_input, more_output, fill.input, fill.output, room, self._input_max[tree.broker],
        )  # fmt: skip
        return int(found)

    def _arrive(
        self, p: int, home: int, tree: Tree, depth: Whole, local: BitWords, arrival: BitWords, input: Reals, output: Reals
    ) -> None:
        window = int(self._problem.publishers.window[p])
        rate, size = float(self._rate[p]), float(self._size[p])
        arrive(tree.parent, depth, home, local, rate, size, window, arrival, input, output)
        if not window:
            input[home] += float(self._problem.publishers.rate_hz[p])

    def _local(self, unit_node: Whole, nodes: int) -> BitWords:
        """What the clients of each node want, per publisher."""
        units, vectors = self._problem.units, self._problem.vectors
        owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
        placed = unit_node[owner] >= 0
        rows, node = units.rows[placed], unit_node[owner][placed]
        found = np.zeros((len(self._problem.publishers) * nodes, vectors.words.shape[1]), np.uint64)
        key = vectors.publisher[rows] * nodes + node
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        if len(first):
            found[key[order][first]] = np.bitwise_or.reduceat(vectors.words[rows[order]], first, axis=0)
        return found.reshape(len(self._problem.publishers), nodes, -1)

    def _makes_room(self, client: int, unit_node: Whole, left: Reals) -> int:
        """The smallest of those with a place that leaves room for a client when it goes, or -1."""
        staying = (unit_node >= 0) & ~self._pinned & (self._need < self._need[client])
        enough = self._need[client] - left[np.maximum(unit_node, 0)]
        able = np.flatnonzero(staying & (enough > 0) & (self._need >= enough))
        return int(able[np.argmin(self._need[able])]) if len(able) else -1

    def _load(self, made: Arrangement) -> Predicted:
        node_of = made.node_of(len(self._problem.pool))
        return predict(self._problem, made.tree, node_of[made.units], node_of[made.publishers], link_delay_s=self._link_delay_s)

    def _overloaded(self, load: Predicted) -> Whole:
        most = 1 - self._problem.goals.headroom
        return np.flatnonzero((load.input_utilisation > most * (1 + _CLOSE)) | (load.output_utilisation > most * (1 + _CLOSE)))

    def _sends_too_much(self, tree: Tree, homes: Whole, load: Predicted, node: int) -> Whole:
        """The publisher with the highest rate at a broker whose input is too much, if it may go; never more than one."""
        if load.input_utilisation[node] <= 1 - self._problem.goals.headroom:
            return np.zeros(0, np.int64)
        there = np.flatnonzero((homes == tree.broker[node]) & self._free_publishers)
        return there[np.argsort(-self._problem.publishers.rate_hz[there], kind="stable")][:1]

    def _too_much(self, tree: Tree, places: Whole, load: Predicted, node: int) -> Whole:
        """Clients that leave an overloaded broker: as few of the largest as its output needs, or a share of all for its input."""
        broker = int(tree.broker[node])
        staying = np.flatnonzero((places == broker) & ~self._pinned)
        by_need = staying[np.lexsort((staying, -self._need[staying]))]
        excess = float(load.output_bytes_per_s[node]) - float(self._room[broker])
        if excess > 0:
            return by_need[: int(np.searchsorted(np.cumsum(self._need[by_need]), excess)) + 1]
        share = 1 - (1 - self._problem.goals.headroom) / float(load.input_utilisation[node])
        return by_need[: int(np.ceil(share * len(by_need)))]
