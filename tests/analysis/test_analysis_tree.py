"""Trees are made of parents or of an overlay, and whatever is no tree is refused by name."""

import numpy as np
import pytest

from overweave.analysis.tree import Tree
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ({}, "parent: expected one broker without a parent, the root, found none"),
        ({"B1": "B2", "B2": "B1"}, "parent: expected one broker without a parent, the root, found none"),
        ({"B1": None, "B2": None}, "broker 'B2': parent: expected a broker, as 'B1' is the root already, found none"),
        ({"B1": None, "B2": "B9"}, "broker 'B2': parent: expected one of the brokers, found 'B9'"),
        (
            {"B1": None, "B2": "B3", "B3": "B4", "B4": "B3"},
            "broker 'B2': parent: expected a way up to the root, found the cycle 'B3', 'B4'",
        ),
        ({"B1": None, "B2": "B2"}, "broker 'B2': parent: expected a way up to the root, found the cycle 'B2'"),
    ],
)
def test_parents_that_are_no_tree(parents, expected):
    with pytest.raises(InvalidInput) as error:
        Tree.of_parents(parents)
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        (Overlay([]), "brokers: expected at least one, found none"),
        (Overlay(["B1", "B2"]), "broker 'B2': links: expected a way up to the root 'B1', found none"),
        (Overlay("ABCD", [("A", "B"), ("B", "C"), ("C", "A"), ("D", "A")]), "links: expected a tree, found the cycle"),
    ],
)
def test_overlays_that_are_no_tree(overlay, expected):
    with pytest.raises(InvalidInput) as error:
        Tree.of_overlay(overlay)
    assert str(error.value).startswith(expected)


def test_gathered_is_the_sum_over_the_sub_tree():
    tree = Tree.of_overlay(make_overlay("random-tree", brokers=30, degree_max=4, seed=2))
    values = np.random.default_rng(1).random((30, 3))

    def below(place):
        return values[place] + sum(below(child) for child in range(30) if tree.parents[child] == place)

    assert np.allclose(tree.gathered(values), [below(place) for place in range(30)])
    assert all(parent < place for place, parent in enumerate(tree.parents))
