"""CRAM (THESIS 6.2.3): the fast path against the literal algorithm, its golden figures and its rules."""

import numpy as np
import pytest
from literal_cram import LiteralCram

from overweave.errors import DoesNotFit, GoalNotMet
from overweave.planning.allocate.cram import clusters_of, cram
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.canonical import canonical
from overweave.planning.closeness import CLOSENESS
from overweave.planning.model import make_model
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
CASES = [(seed, metric, KINDS[seed % len(KINDS)]) for seed in range(64) for metric in CLOSENESS]


def model_of(seed, kind):
    return make_model(canonical(random_problem(seed, **{"clients": 14, **kind})))


@pytest.mark.parametrize("no_worse", [False, True])
def test_the_fast_path_equals_the_literal_algorithm(no_worse):
    rule = "no-worse" if no_worse else "literal"
    compared, clustered = 0, 0
    for seed, metric, kind in CASES:
        model = model_of(seed, kind)
        options = CramOptions(closeness=metric, rule=rule)
        try:
            found = cram(options)(model, model.items, model.bins, np.random.default_rng(0))
        except DoesNotFit:
            continue
        literal = LiteralCram(model, model.items, model.bins, metric, no_worse=no_worse).run()
        assert {frozenset(each) for each in clusters_of(model, model.items, model.bins, options)} == literal.clusters(), (seed, metric)
        assert {i: int(bin) for i, bin in enumerate(found.bin)} == literal.bins_of(), (seed, metric)
        compared += 1
        clustered += len(literal.clusters()) < len(model.items)
    assert compared >= 200
    assert clustered >= 150
