"""CRAM (THESIS 6.2.3): the fast path against the literal algorithm, its golden figures and its rules."""

import numpy as np
import pytest
from literal_cram import LiteralCram

from overweave.errors import DoesNotFit, GoalNotMet
from overweave.planning.allocate import ALLOCATORS
from overweave.planning.allocate.cram import clusters_of, cram
from overweave.planning.allocate.cram.allocatable import Allocatable
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.canonical import canonical
from overweave.planning.closeness import CLOSENESS
from overweave.planning.model import Bins, Items, make_model
from overweave.testing.planning import _some_problem, random_problem

KINDS = [
    {},
    {"equal_brokers": True},
    {"fill": 0.85},
    {"fill": 0.7, "clients": 30},
    {"input_bound": True},
    {"publishing": True},
    {"brokers": 20, "fill": 0.2},
    {"publishers": 2, "bits": 128, "clients": 16},
]
CASES = [(seed, metric, KINDS[seed % len(KINDS)]) for seed in range(32) for metric in CLOSENESS]
# Groups that get another unit after they were paired with themselves.
TIGHT = {"publishers": 1, "fill": 0.9, "brokers": 4}
CASES += [(240, "iou", {"publishers": 1, "fill": 0.6}), *((seed, "iou", TIGHT) for seed in (317, 776)), (860, "intersect", TIGHT)]


def model_of(seed, kind):
    return make_model(canonical(random_problem(seed, **{"clients": 14, **kind})))


@pytest.mark.parametrize("no_worse", [False, True])
def test_the_fast_path_equals_the_literal_algorithm(no_worse):
    rule = "no-worse" if no_worse else "literal"
    compared, clustered = 0, 0
    for seed, metric, kind in CASES[:32] if no_worse else CASES:
        model = model_of(seed, kind)
        options = CramOptions(closeness=metric, rule=rule)
        try:
            found = cram(options)(model, model.items, model.bins, np.random.default_rng(0))
        except DoesNotFit:
            continue
        literal = LiteralCram(model, model.items, model.bins, metric, no_worse=no_worse).run()
        assert {frozenset(each) for each in clusters_of(model, model.items, model.bins, options)} == literal.clusters(), (
            seed,
            metric,
        )
        assert {i: int(bin) for i, bin in enumerate(found.bin)} == literal.bins_of(), (seed, metric)
        compared += 1
        clustered += len(literal.clusters()) < len(model.items)
    assert compared >= (20 if no_worse else 100)
    assert clustered >= compared / 2


def test_switched_off_groups_are_the_literal_algorithm_without_them():
    for seed, metric, kind in CASES[:32]:
        model = model_of(seed, {**kind, "clients": 9})
        options = CramOptions(closeness=metric, rule="literal", groups=False, one_to_many=seed % 2 == 0)
        literal = LiteralCram(model, model.items, model.bins, metric, groups=False, one_to_many=seed % 2 == 0)
        if literal.pack(literal.units) is None:
            continue
        found = clusters_of(model, model.items, model.bins, options)
        assert {frozenset(each) for each in found} == literal.run().clusters(), (seed, metric)


def test_the_allocation_test_equals_packing_everything():
    """Tight pools, where most changes fail: what is not packed would have fitted."""
    answers = []
    for seed in range(300):
        draw = np.random.default_rng(seed)
        rooms = np.sort(draw.integers(5, 40, size=draw.integers(1, 7)))[::-1].copy()
        loads, wanted = [], draw.uniform(0.75, 1.0) * rooms.sum()
        while sum(loads) < wanted:
            loads.append(int(draw.integers(0, 12)))
        model = flat_model()
        bins = Bins(np.arange(len(rooms)), rooms, *np.zeros((2, len(rooms))), *np.full((2, len(rooms)), np.inf))
        items = Items(np.zeros(len(loads), np.int64), np.array(loads), np.ones(len(loads), np.int64), np.full(len(loads), -1))
        if dumb_pack(rooms, loads) is None:
            continue
        for no_worse in (False, True):
            test = Allocatable(model, bins, items.take(np.zeros(0, np.int64)), items, no_worse=no_worse)
            now = dict(enumerate(loads))
            for number in range(len(loads), len(loads) + 6):
                removed = draw.permutation(list(now))[: draw.integers(1, 4)].tolist()
                output = sum(now[i] for i in removed)
                changed = {i: load for i, load in now.items() if i not in removed} | {number: output}
                before, after = dumb_pack(rooms, now.values()), dumb_pack(rooms, changed.values())
                expected = after is not None and not (no_worse and after > before)
                answers.append(expected)
                assert test.passes(removed, 0, output, 1) == expected, (seed, no_worse)
                if expected:
                    test.commit(removed, number, 0, output, 1)
                    now = changed
    assert 0.1 < np.mean(answers) < 0.9


def flat_model():
    model = model_of(0, {})
    empty = model.table.add(np.zeros(0, np.int64), model.table.words[:0])
    assert model.table.count[empty] == 0
    return model


def dumb_pack(rooms, loads):
    left, used = rooms.tolist(), set()
    for load in sorted(loads, reverse=True):
        bin = next((b for b, room in enumerate(left) if room >= load), None)
        if bin is None:
            return None
        left[bin] -= load
        used.add(bin)
    return len(used)


@pytest.mark.parametrize("metric", CLOSENESS)
def test_split_needs_no_more_brokers_than_bin_packing(metric):
    compared = 0
    for seed in range(60):
        model = make_model(canonical(_some_problem(seed)))
        try:
            packed = ALLOCATORS["bin-packing"](model, model.items, model.bins, np.random.default_rng(0))
        except (DoesNotFit, GoalNotMet):
            continue
        found = cram(CramOptions(closeness=metric))(model, model.items, model.bins, np.random.default_rng(0))
        assert len(np.unique(found.bin)) <= len(np.unique(packed.bin)), seed
        compared += 1
    assert compared > 40


def test_a_bounded_search_finds_what_an_exhaustive_one_does():
    for seed, metric, kind in CASES[:64]:
        model = model_of(seed, {**kind, "clients": 40})
        try:
            found = [
                cram(CramOptions(closeness=metric, search=search))(
                    model, model.items, model.bins, np.random.default_rng(0)
                ).bin.tolist()
                for search in ("bounded", "exhaustive")
            ]
        except DoesNotFit:
            continue
        assert found[0] == found[1]
