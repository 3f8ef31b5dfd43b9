"""Five hundred seeds of `overweave.testing.seeds`; ten thousand take ``python -m overweave.testing.seeds --seeds 10000``."""

import pytest

from overweave.testing.seeds import run_seed
from overweave.testing.seeds.runner import command

SEEDS, CHUNK = 500, 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_property_holds(first):
    wrong, expected = [], 0
    for seed in range(first, first + CHUNK):
        outcome = run_seed(seed)
        expected += outcome.expected - outcome.excused
        wrong += [f"{failure.property}: {failure.text}\n  {command(seed, outcome.protocol)}" for failure in outcome.failures]
    assert not wrong, "\n".join(wrong)
    assert expected > 1000  # it is no empty claim
