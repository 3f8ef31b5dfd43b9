"""The load of a tree while clients move, one after the other: the utilisation of every broker after each of the moves.

All prefixes of the moves are computed together: what a link carries is the union of what stays on its far side, of what has
arrived there so far, and of what has not left yet. The last two are running unions, forwards and backwards.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from overweave.planning.flows import per_bit
from overweave.planning.problem import BitWords, Problem, Reals, Whole, counted
from overweave.planning.tree import Tree

_Number = TypeVar("_Number", np.int64, np.float64)


class Moving(NamedTuple):
    """The nodes of some clients or publishers: ``after`` from prefix ``step`` on, ``before`` until then."""

    before: Whole
    after: Whole
    step: Whole

    def take(self, which: Whole) -> "Moving":
        """Some of them."""
        return Moving(self.before[which], self.after[which], self.step[which])


class _Rows(NamedTuple):
    """What clients receive of one publisher, one row for each client."""

    at: Moving
    words: BitWords
    filters: Whole


def prefix_utilisation(problem: Problem, tree: Tree, units: Moving, publishers: Moving, moves: int) -> Reals:
    """The higher of the input and the output utilisation, by prefix (``moves`` + 1 rows) and node; as `predict` has them."""
    shape, inside = (moves + 1, len(tree)), _inside(tree)
    rate, size = per_bit(problem, problem.publishers.rate_hz), per_bit(problem, problem.publishers.bytes_per_s)
    input_hz, sent_bytes, above = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    for p, rows in enumerate(_rows_by_publisher(problem, units)):
        window = int(problem.publishers.window[p])
        down, up = (_united(rows, members, shape) for members in (inside, ~inside))
        wanted = _summed(rows.filters, rows.at, shape) @ inside.T
        for home, part in _stays(publishers, p):
            arrivals, forwards = _carried(tree, home, down[part], up[part], window)
            input_hz[part] += arrivals * rate[p] if window else np.eye(1, shape[1], home) * problem.publishers.rate_hz[p]
            sent_bytes[part] += forwards * size[p]
            path = tree.path_to_root(home)[:-1]
            above[part, path] += wanted[part, :1] - wanted[part, path]
    below = _summed(problem.units.filters, units, shape) @ inside.T
    entries = below + np.minimum(above, below[:, :1] - below)
    pool, local = problem.pool, _summed(problem.units.output_bytes_per_s, units, shape)
    match_s = pool.base_s[tree.broker] + pool.slope_s[tree.broker] * entries
    input_share = np.maximum(input_hz * match_s, input_hz / pool.capacity_hz[tree.broker])
    found: Reals = np.maximum(input_share, (local + sent_bytes) / pool.bandwidth_bytes_per_s[tree.broker])
    return found


def _inside(tree: Tree) -> NDArray[np.bool_]:
    """Whether a node (column) is at or below another (row)."""
    found = np.zeros((len(tree), len(tree)), np.bool_)
    for node in range(len(tree)):
        found[tree.path_to_root(node), node] = True
    return found


def _rows_by_publisher(problem: Problem, units: Moving) -> Iterator[_Rows]:
    vectors, of = problem.vectors, problem.units
    owner = np.repeat(np.arange(len(of)), np.diff(of.row_start))
    publisher = vectors.publisher[of.rows]
    order = np.argsort(publisher, kind="stable")
    ends = np.searchsorted(publisher[order], np.arange(len(problem.publishers) + 1))
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        some = order[begin:end]
        yield _Rows(units.take(owner[some]), vectors.words[of.rows[some]], of.filters[owner[some]])


def _united(rows: _Rows, members: NDArray[np.bool_], shape: tuple[int, int]) -> Whole:
    """The bits of all rows whose client is at a member, by prefix and set of members."""
    found = np.zeros(shape, np.int64)
    for v, member in enumerate(members):
        before, after = member[rows.at.before], member[rows.at.after]
        stays, comes, goes = before & after, ~before & after, before & ~after
        base = np.bitwise_or.reduce(rows.words[stays], axis=0)
        if not (comes.any() or goes.any()):
            found[:, v] = counted(base[None])[0]
            continue
        arrived, left = np.zeros((2, shape[0], rows.words.shape[1]), np.uint64)
        np.bitwise_or.at(arrived, rows.at.step[comes], rows.words[comes])
        np.bitwise_or.at(left, rows.at.step[goes] - 1, rows.words[goes])
        arrived = np.bitwise_or.accumulate(arrived, axis=0)
        left = np.bitwise_or.accumulate(left[::-1], axis=0)[::-1]
        found[:, v] = counted(base | arrived | left)
    return found


def _summed(values: "NDArray[_Number]", at: Moving, shape: tuple[int, int]) -> "NDArray[_Number]":
    """The sum of values at each node, by prefix."""
    found = np.zeros(shape, values.dtype)
    np.add.at(found[0], at.before, values)
    moving = np.flatnonzero(at.before != at.after)
    np.add.at(found, (at.step[moving], at.before[moving]), -values[moving])
    np.add.at(found, (at.step[moving], at.after[moving]), values[moving])
    return np.cumsum(found, axis=0)


def _stays(publishers: Moving, publisher: int) -> Iterator[tuple[int, slice]]:
    """The nodes of a publisher, with the prefixes during which it is there."""
    before, after, step = (int(column[publisher]) for column in publishers)
    if before == after:
        yield before, slice(None)
    else:
        yield before, slice(step)
        yield after, slice(step, None)


def _carried(tree: Tree, home: int, down: Whole, up: Whole, window: int) -> tuple[Whole, Whole]:
    """See `Flows.carried`, for all prefixes."""
    arrivals, forwards, path = np.zeros_like(down), np.zeros_like(down), set(tree.path_to_root(home))
    arrivals[:, home] += window
    for v in range(1, len(tree)):
        parent = int(tree.parent[v])
        if v in path:
            forwards[:, v] += up[:, v]
            arrivals[:, parent] += up[:, v]
        else:
            forwards[:, parent] += down[:, v]
            arrivals[:, v] += down[:, v]
    return arrivals, forwards
