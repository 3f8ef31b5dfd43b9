import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay_strategies import oracle, overlays, quick

from overweave.errors import OverlayError
from overweave.overlay import (
    Overlay,
    average_path_length,
    diameter,
    distances,
    make_overlay,
    maximum_spanning_tree,
    minimum_spanning_tree,
    neighbourhood,
    next_hops,
    path_between,
    spanning_tree,
)


@quick
@given(overlays())
def test_distances_agree_with_networkx(overlay):
    lengths = dict(networkx.all_pairs_shortest_path_length(oracle(overlay)))
    expected = [[lengths[one].get(other, -1) for other in overlay.ids] for one in overlay.ids]
    assert distances(overlay).tolist() == expected


@quick
@given(overlays())
def test_next_hops_follow_the_smallest_of_all_shortest_paths(overlay):
    graph, hops = oracle(overlay), next_hops(overlay)
    for source, destination in itertools.product(overlay.ids, repeat=2):
        if not networkx.has_path(graph, source, destination):
            assert hops.next_hop(source, destination) is None
            assert hops.distance(source, destination) is None
            assert hops.path(source, destination) is None
            assert path_between(overlay, source, destination) is None
            continue
        paths = networkx.all_shortest_paths(graph, source, destination)
        smallest = min(tuple(overlay.position(broker) for broker in path) for path in paths)
        expected = tuple(overlay.ids[position] for position in smallest)
        assert hops.path(source, destination) == expected == path_between(overlay, source, destination)
        assert hops.next_hop(source, destination) == expected[min(1, len(expected) - 1)]
        assert hops.distance(source, destination) == len(expected) - 1


@quick
@given(overlays(size_min=1), st.data())
def test_split_serves_every_destination_once(overlay, data):
    hops, source = next_hops(overlay), data.draw(st.sampled_from(overlay.ids))
    destinations = data.draw(st.lists(st.sampled_from(overlay.ids), unique=True))
    lists = hops.split(source, destinations)
    assert sorted(itertools.chain(*lists.values())) == sorted(destinations)
    assert all(hops.next_hop(source, destination) == hop for hop, served in lists.items() for destination in served)


@quick
@given(overlays(size_min=1), st.integers(0, 5), st.data())
def test_neighbourhood_agrees_with_networkx(overlay, radius, data):
    broker = data.draw(st.sampled_from(overlay.ids))
    found = neighbourhood(overlay, broker, radius)
    assert found == networkx.single_source_shortest_path_length(oracle(overlay), broker, cutoff=radius)
    assert list(found) == sorted(found, key=lambda other: (found[other], overlay.position(other)))


@quick
@given(overlays(size_min=1))
def test_diameter_and_average_agree_with_networkx(overlay):
    graph = oracle(overlay)
    if networkx.is_connected(graph):
        assert diameter(overlay) == networkx.diameter(graph)
        assert average_path_length(overlay) == pytest.approx(networkx.average_shortest_path_length(graph))
    else:
        for measure in (diameter, average_path_length):
            with pytest.raises(OverlayError, match="expected a connected overlay"):
                measure(overlay)


@quick
@given(overlays(size_min=1), st.data())
def test_spanning_tree_keeps_the_distances_from_its_root(overlay, data):
    root = data.draw(st.sampled_from(overlay.ids))
    tree, hops = spanning_tree(overlay, root), next_hops(overlay)
    position = overlay.position(root)
    assert set(tree.links) <= set(overlay.links)
    assert len(tree.links) == len(networkx.node_connected_component(oracle(overlay), root)) - 1
    assert distances(tree)[position].tolist() == distances(overlay)[position].tolist()
    assert all(path_between(tree, broker, root) == hops.path(broker, root) for broker in overlay.ids)


@quick
@given(overlays(), st.data())
def test_spanning_trees_have_the_weight_that_networkx_finds(overlay, data):
    weights = {link.ends: float(data.draw(st.integers(-3, 3))) for link in overlay.links}
    graph = oracle(overlay)
    networkx.set_edge_attributes(graph, weights, "weight")
    for ours, theirs in (
        (maximum_spanning_tree, networkx.maximum_spanning_tree),
        (minimum_spanning_tree, networkx.minimum_spanning_tree),
    ):
        tree, expected = ours(overlay, weights), theirs(graph)
        assert sum(weights[link.ends] for link in tree.links) == expected.size(weight="weight")
        assert len(tree.links) == expected.number_of_edges()
        assert len(list(networkx.connected_components(oracle(tree)))) == len(list(networkx.connected_components(graph)))


@quick
@given(st.integers(1, 8), st.integers(0, 2**32))
def test_weights_as_function_mapping_and_matrix_give_one_tree(size, seed):
    overlay = make_overlay("chain", brokers=size)
    upper = np.triu(np.random.default_rng(seed).integers(0, 3, (size, size)).astype(float), 1)
    matrix = upper + upper.T
    mapping = {
        (one, other): matrix[overlay.position(one), overlay.position(other)]
        for other, one in itertools.combinations(overlay.ids, 2)
    }
    by_matrix = maximum_spanning_tree(overlay, matrix)
    assert by_matrix.is_tree()
    assert maximum_spanning_tree(overlay, mapping) == by_matrix
    assert maximum_spanning_tree(overlay, lambda one, other: matrix[overlay.position(one), overlay.position(other)]) == by_matrix


def test_equal_weights_join_everybody_to_the_first():
    assert maximum_spanning_tree(Overlay(["B1", "B2", "B3", "B4"]), lambda one, other: 1.0) == make_overlay("star", brokers=4)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda two: maximum_spanning_tree(two, np.zeros((3, 3))), "weights: expected a matrix of 2 x 2, got 3 x 3"),
        (
            lambda two: minimum_spanning_tree(two, {("B2", "B1"): float("nan")}),
            "weights: pair 'B1'-'B2': expected a number, got nan",
        ),
        (lambda two: minimum_spanning_tree(two, {("B1", "B9"): 1.0}), "broker 'B9' is not in the overlay"),
        (lambda two: neighbourhood(two, "B1", -1), "radius: expected an integer of at least 0, got -1"),
        (lambda two: next_hops(two).next_hop("B1", "B9"), "broker 'B9' is not in the overlay"),
        (lambda two: path_between(two, "B9", "B1"), "broker 'B9' is not in the overlay"),
        (lambda two: spanning_tree(two, "B9"), "broker 'B9' is not in the overlay"),
        (lambda two: diameter(Overlay([])), "diameter: expected a connected overlay with at least one broker"),
    ],
)
def test_refusals_name_what_is_wrong(act, text):
    with pytest.raises(OverlayError) as raised:
        act(make_overlay("chain", brokers=2))
    assert text in str(raised.value)


def test_tables_cannot_be_changed():
    hops = next_hops(make_overlay("chain", brokers=2))
    for table in (hops.table, hops.distances):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 5
