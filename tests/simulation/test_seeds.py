"""Five hundred seeds of `overweave.testing.seeds`; ten thousand take ``python -m overweave.testing.seeds --seeds 10000``."""

import pytest

from overweave.routing import PROTOCOLS
from overweave.testing.seeds import run_seed
from overweave.testing.seeds.runner import command

SEEDS, CHUNK = 500, 50
#: Where a property does not hold yet, by protocol. To hold everywhere is to leave this empty.
OPEN = {
    # Control settles at the first broker.
    "in-force": set(PROTOCOLS) - {"flooding", "merc"},
    # A broker of a cycle that restarts can cut off a branch of an advertisement's tree (seed 429).
    "convergence": {"filter-general"},
}


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_property_holds(first):
    wrong, expected = [], 0
    for seed in range(first, first + CHUNK):
        outcome = run_seed(seed)
        expected += outcome.expected - outcome.excused
        wrong += [
            f"{failure.property}: {failure.text}\n  {command(seed, outcome.protocol)}"
            for failure in outcome.failures
            if outcome.protocol not in OPEN.get(failure.property, ())
        ]
    assert not wrong, "\n".join(wrong)
    assert expected > 1000  # it is no empty claim
