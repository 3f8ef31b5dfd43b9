"""Trees of MINIMAL: commonality against networkx, zones against grids and inclusion-exclusion, rewiring written out."""

import itertools

import networkx as nx
import numpy as np
import pytest
from dumb_minimal import some_clients

from overweave.planning.box_design import design_boxes
from overweave.planning.box_similarity import BoxSimilarity, disjoint_boxes
from overweave.planning.build.baldoni import rewired
from overweave.planning.build.random import random_parents
from overweave.planning.build.spanning_tree import maximum_tree


def some_weights(seed, count):
    draw = np.random.default_rng(seed)
    # Few values, so that there are ties, and zeros, as between brokers without anything in common.
    weights = draw.choice([0.0, 0.1, 0.1, 0.25, 0.5, draw.random()], size=(count, count))
    return np.triu(weights, 1) + np.triu(weights, 1).T


def tree_of(parents):
    tree = nx.Graph()
    tree.add_nodes_from(range(len(parents)))
    tree.add_edges_from((i, int(p)) for i, p in enumerate(parents) if p >= 0)
    return tree


def weight_of(tree, weights):
    return sum(weights[edge] for edge in tree.edges)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 30])
def test_the_maximum_spanning_tree_is_that_of_networkx(count):
    for seed in range(10):
        weights = some_weights(seed, count)
        asked = []
        parents = maximum_tree(count, lambda i, weights=weights, asked=asked: (asked.append(i), weights[i])[1])
        tree = tree_of(parents)
        assert nx.is_tree(tree)
        assert len(asked) == len(set(asked)) == count - 1, "a row per broker, once"
        graph = nx.from_numpy_array(weights + 1)  # networkx leaves out weights of 0
        best = weight_of(nx.maximum_spanning_tree(graph), weights)
        assert weight_of(tree, weights) == pytest.approx(best)


def boxes(seed, count, axes):
    draw = np.random.default_rng(seed)
    lo = draw.integers(0, 7, size=(count, axes)).astype(float)
    return lo, lo + draw.integers(1, 5, size=lo.shape)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_zone_is_the_exact_union(axes, seed):
    lo, hi = boxes(seed, 9, axes)
    draw = np.random.default_rng(seed)
    groups = [np.flatnonzero(draw.random(9) < 0.6) for _ in range(4)]
    parts_lo, parts_hi, start = disjoint_boxes(lo, hi, groups)
    for i, group in enumerate(groups):
        part = slice(start[i], start[i + 1])
        covers = cells(parts_lo[part], parts_hi[part], axes)
        assert (covers <= 1).all(), "parts are disjoint"
        assert (covers == (cells(lo[group], hi[group], axes) > 0)).all()
        volume = np.prod(parts_hi[part] - parts_lo[part], axis=1).sum()
        assert volume == pytest.approx(inclusion_exclusion(lo[group], hi[group]))


def cells(lo, hi, axes):
    """How many boxes there are at each point of a grid."""
    grid = np.zeros((12,) * axes, np.int64)
    for a, b in zip(lo.astype(int), hi.astype(int), strict=True):
        grid[tuple(slice(x, y) for x, y in zip(a, b, strict=True))] += 1
    return grid


def inclusion_exclusion(lo, hi):
    total = 0.0
    for size in range(1, len(lo) + 1):
        for chosen in itertools.combinations(range(len(lo)), size):
            sides = np.minimum.reduce(hi[list(chosen)]) - np.maximum.reduce(lo[list(chosen)])
            total += (-1) ** (size + 1) * float(np.prod(np.maximum(sides, 0)))
    return total


def test_many_boxes_outgrow_the_first_buffers():
    draw = np.random.default_rng(0)
    lo = draw.integers(0, 60, size=(150, 3)).astype(float)
    hi = lo + draw.integers(1, 30, size=lo.shape)
    parts_lo, parts_hi, _ = disjoint_boxes(lo, hi, [np.arange(150)])
    grid = np.zeros((92, 92, 92), np.bool_)
    for a, b in zip(lo.astype(int), hi.astype(int), strict=True):
        grid[tuple(slice(x, y) for x, y in zip(a, b, strict=True))] = True
    assert np.prod(parts_hi - parts_lo, axis=1).sum() == grid.sum()


@pytest.mark.parametrize("seed", range(6))
def test_similarity_of_zones_by_a_grid(seed):
    clients, _ = some_clients(seed, subscribers=20).ordered()
    home = np.random.default_rng(seed).integers(-1, 5, size=len(clients))
    row = BoxSimilarity(clients).zones(home, 5)
    at = home[clients.subscriptions.owner]
    zones = [cells(clients.subscriptions.lo[at == i], clients.subscriptions.hi[at == i], 2) > 0 for i in range(5)]
    for i, j in itertools.product(range(5), repeat=2):
        common = (zones[i] & zones[j]).sum()
        expected = common**2 / (zones[i].sum() * zones[j].sum()) if common else 0.0
        assert row(i)[j] == pytest.approx(expected)


def dumb_rewiring(parents, weights, rounds):
    """MINIMAL 6.1, with a graph."""
    tree = tree_of(parents)
    for _ in range(rounds):
        changed = False
        for b in range(len(parents)):
            others = [c for c in tree if c != b and not tree.has_edge(b, c)]
            for c in sorted(others, key=lambda c: (-weights[b, c], c)):
                way = nx.shortest_path(tree, c, b)
                cycle = list(itertools.pairwise(way))
                least = min(weights[edge] for edge in cycle)
                if weights[b, c] > least:
                    tree.remove_edge(*next(edge for edge in cycle if weights[edge] == least))
                    tree.add_edge(b, c)
                    changed = True
                    break
        if not changed:
            break
    return tree


@pytest.mark.parametrize("rounds", [1, 2, 100])
def test_rewiring_step_by_step(rounds):
    for seed in range(12):
        weights = some_weights(seed, 3 + seed)
        found = tree_of(rewired(len(weights), weights.__getitem__, np.random.default_rng(seed), rounds))
        expected = dumb_rewiring(random_parents(len(weights), np.random.default_rng(seed)), weights, rounds)
        assert nx.is_tree(found)
        assert {frozenset(edge) for edge in found.edges} == {frozenset(edge) for edge in expected.edges}


def test_rewiring_to_the_end_makes_a_maximum_tree():
    """With symmetric similarity a tree that no exchange improves is one of the greatest sum."""
    for seed in range(5):
        weights = some_weights(seed, 25)
        found = tree_of(rewired(25, weights.__getitem__, np.random.default_rng(seed)))
        assert weight_of(found, weights) == pytest.approx(weight_of(tree_of(maximum_tree(25, weights.__getitem__)), weights))


def test_designs_are_joined_by_their_own_similarity():
    clients, _ = some_clients(3, publishers=10, subscribers=40).ordered()
    for ranking, tree in (("gig", "commonality"), ("random", "baldoni")):
        design = design_boxes(clients, ranking=ranking, tree=tree, capacity_hz=80.0, seed=5)
        brokers = len(design.brokers)
        assert brokers > 8
        similarity = BoxSimilarity(clients)
        row = (similarity.commonality if tree == "commonality" else similarity.zones)(design.home, brokers)
        weights = np.array([row(i) for i in range(brokers)])
        assert weights == pytest.approx(weights.T)
        found = sum(weights[one, other] for one, other in design.links.tolist())
        assert found == pytest.approx(weight_of(tree_of(maximum_tree(brokers, weights.__getitem__)), weights))
