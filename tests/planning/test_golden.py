"""Worked examples from the text of THESIS ch 6, errata corrected."""

import numpy as np
import pytest

from overweave.planning.allocate.cram.one_to_many import coverings
from overweave.planning.canonical import canonical
from overweave.planning.closeness import CLOSENESS
from overweave.planning.groups import Groups
from overweave.planning.model import make_model
from overweave.planning.problem import Pool, Publishers
from overweave.planning.profiles import Profiles, Window, assemble, corrected, packed, share
from overweave.planning.table import ProfileTable


def test_a_window_shifts_just_enough():
    """6.1.2: length 10, first 100, id 119: shifted by 10, index 9, counter 110."""
    window = Window(10, first=100)
    window.record(104)
    window.record(119)
    assert (window.first, np.flatnonzero(window.bits).tolist()) == (110, [9])
    window.record(120)
    assert (window.first, np.flatnonzero(window.bits).tolist()) == (111, [8, 9])
    window.record(100)  # long gone
    assert (window.first, np.flatnonzero(window.bits).tolist()) == (111, [8, 9])


def test_the_load_of_a_subscription():
    """6.1.2: 10 of 100 bits of 50 msg/s and 50 kB/s are 5 msg/s and 5 kB/s."""
    assert share(10, 100, 50.0) == 5.0
    assert share(10, 100, 50_000.0) == 5_000.0
    bits = np.zeros((1, 100), np.uint8)
    bits[0, :10] = 1
    publishers = Publishers(("P1",), np.array([50.0]), np.array([50_000.0]), np.array([100]), np.array([-1]))
    problem = assemble(Pool.equal(1, 1e6), publishers, Profiles(np.array([0]), np.array([0]), packed(bits)), ["s1"])
    assert problem.units.output_bytes_per_s.tolist() == [5_000.0]
    model = make_model(canonical(problem))
    assert model.input(int(model.items.profile[0])) * model.tick_hz == pytest.approx(5.0)


def test_two_subscriptions_clustered():
    """Figure 6.1: S1 received 75..77 of Adv1 and 144..148 of Adv2; a cluster receives what any of its members does."""

    def received(*ids):
        window = Window(64, first=min(ids) // 64 * 64)
        for id in ids:
            window.record(id)
        return packed(window.bits[None, :])

    table = ProfileTable(1)
    one = table.add(np.array([0, 1]), np.concatenate([received(75, 76, 77), received(144, 145, 146, 147, 148)]))
    other = table.add(np.array([1, 2]), np.concatenate([received(147, 148, 149), received(3)]))
    publishers, words = table.of(table.unite([one, other]))
    assert publishers.tolist() == [0, 1, 2]
    assert words[0].tolist() == received(75, 76, 77)[0].tolist()
    assert words[1].tolist() == received(144, 145, 146, 147, 148, 149)[0].tolist()
    assert words[2].tolist() == received(3)[0].tolist()


FIGURE = {
    "s1": range(36),
    "s2": [*range(28, 36), *range(36, 52)],
    **{f"a{i}": range(4 * i, 4 * i + 4) for i in range(3)},
    **{f"b{i}": [36 + i] for i in range(8)},
}


@pytest.mark.parametrize("metric", ["ios", "iou", "intersect"])
def test_one_to_many_before_an_intersecting_pair(metric):
    """Figure 6.2, with S2 = 24 bits: with IOS 8^2/60, 4^2/40, 1/25; with all they cover 12^2/48 = 3 and 8^2/32 = 2."""
    ids = list(FIGURE)
    bits = np.zeros((len(ids), 64), np.uint8)
    for row, id in enumerate(ids):
        bits[row, list(FIGURE[id])] = 1
    count = np.arange(len(ids))
    publishers = Publishers(("P1",), np.array([64.0]), np.array([64.0]), np.array([64]), np.array([-1]))
    problem = assemble(Pool.equal(4, 1e4), publishers, Profiles(count, np.zeros_like(count), packed(bits)), ids)
    model = make_model(problem)
    groups = Groups(model, model.items, identical=True, one_component=False)
    by_name = {problem.units.ids[groups.units[g][0][1]]: g for g in range(groups.size)}
    closeness, s1, s2 = CLOSENESS[metric], by_name["s1"], by_name["s2"]
    assert [int(groups.ones[g]) for g in (s1, s2)] == [36, 24]
    if metric == "ios":
        assert closeness(8, 36, 24) == pytest.approx(1.07, abs=0.005)
        assert (closeness(4, 36, 4), closeness(1, 24, 1)) == (0.4, 0.04)
    found = coverings(groups, closeness, s1, s2, closeness(8, 36, 24))
    names = {g: name for name, g in by_name.items()}
    chosen = {names[each.group]: sorted(names[g] for g in each.chosen) for each in found}
    assert chosen.get("s1") == ["a0", "a1", "a2"]
    if metric == "ios":
        assert {names[each.group]: each.value for each in found} == {"s1": 3.0, "s2": 2.0}
        assert chosen["s2"] == [f"b{i}" for i in range(8)]


def test_corrections_of_short_vectors():
    """7.3.8; beyond the text: 513..1,023 as 512, above 1,024 none, nothing stays nothing, at most everything."""
    ones = np.array([0, 1, 256, 409, 410, 1024])
    assert corrected(ones, 1024).tolist() == [0, 205, 320, 512, 410, 1024]
    assert corrected(np.array([0, 1, 127, 128, 204, 205, 512]), 512).tolist() == [0, 180, 180, 186, 296, 205, 512]
    assert corrected(np.array([1]), 800).tolist() == [280]
    assert corrected(np.array([1, 500]), 1280).tolist() == [1, 500]
    assert corrected(np.array([2, 5]), 5).tolist() == [2, 5]
