"""Traffic of boxes on an overlay, against paths in a graph; and designs in which forwarding has its room."""

import networkx as nx
import numpy as np
import pytest

from overweave.planning.box_design import design_boxes
from overweave.planning.box_similarity import BoxClients
from overweave.planning.box_traffic import POINTS, box_input_hz
from overweave.planning.boxes import Boxes
from overweave.planning.build.random import random_parents


def some_clients(seed, count=160):
    draw, few = np.random.default_rng(seed), count // 4
    lo = draw.random((count, 2))
    hi = lo + draw.random((count, 2)) * 0.3
    ads, subs = Boxes(lo[:few], hi[:few], np.arange(few)), Boxes(lo[few:], hi[few:], np.arange(few, count))
    return BoxClients(tuple(f"c{i}" for i in range(count)), ads, draw.integers(1, 6, size=few).astype(float), subs)


@pytest.mark.parametrize("seed", range(4))
def test_input_is_what_paths_to_subscribers_carry(seed):
    clients = some_clients(seed, 60)
    draw = np.random.default_rng(seed)
    home, parents = draw.integers(7, size=60), random_parents(7, draw)
    tree = nx.Graph()
    tree.add_nodes_from(range(7))
    tree.add_edges_from((i, int(p)) for i, p in enumerate(parents) if p >= 0)
    ads, subs = clients.advertisements, clients.subscriptions
    points, expected = np.random.default_rng(seed), np.zeros(7)
    for x in range(len(ads)):
        for point in ads.lo[x] + (ads.hi[x] - ads.lo[x]) * points.random((POINTS, 2)):
            inside = ((point >= subs.lo) & (point < subs.hi)).all(axis=1)
            start = int(home[ads.owner[x]])
            visited = {start}.union(*(nx.shortest_path(tree, start, int(at)) for at in home[subs.owner[inside]]))
            expected[list(visited)] += clients.rate_hz[x] / POINTS
    assert box_input_hz(clients, home, parents, np.random.default_rng(seed)) == pytest.approx(expected)


def overloaded(clients, design, capacity_hz):
    parents = np.full(len(design.brokers), -1)
    parents[design.links[:, 0]] = design.links[:, 1]
    return int((box_input_hz(clients, design.home, parents, np.random.default_rng(1)) > capacity_hz).sum())


def test_designs_in_turn_leave_room_for_forwarding():
    """Where all of every broker for its clients is too much, iteration finds what is enough; where it is not, that is kept."""
    for seed, capacity_hz, is_enough in ((0, 40.0, False), (1, 60.0, False), (2, 60.0, False), (3, 40.0, False), (3, 80.0, True)):
        clients = some_clients(seed)
        full, fixed, found = (design_boxes(clients, lcf=lcf, capacity_hz=capacity_hz, seed=1) for lcf in (1.0, 0.75, None))
        assert (overloaded(clients, full, capacity_hz) == 0) == is_enough
        assert overloaded(clients, found, capacity_hz) == 0
        assert len(found.brokers) <= len(fixed.brokers) or overloaded(clients, fixed, capacity_hz)
        if is_enough:
            assert found.home.tolist() == full.home.tolist()


def test_what_no_iteration_can_help_costs_no_brokers():
    """Brokers in the middle forward more than they can carry: twice as many brokers would not change that."""
    clients = some_clients(1)
    full, found = (design_boxes(clients, lcf=lcf, capacity_hz=20.0, seed=1) for lcf in (1.0, None))
    assert overloaded(clients, full, 20.0) > 0
    assert len(found.brokers) <= len(full.brokers) + 2
