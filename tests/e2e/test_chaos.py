"""Half a minute of chaos on two networks; all of it takes ``make chaos``."""

import pytest

from overweave.testing.chaos.configurations import configuration
from overweave.testing.chaos.run import run


@pytest.mark.parametrize("name", ["filter-chain", "destination-pauses"])
def test_what_is_acknowledged_arrives_once(name, tmp_path):
    result = run(configuration(name), seed=1, seconds=22.0, out=tmp_path)
    verdict = result.verdict
    assert not result.mistakes, result.mistakes
    assert not result.troubles, result.troubles
    assert len(result.injected) >= 5
    assert verdict.expected > 300
    found = verdict.duplicated, verdict.wrong, verdict.unsettled, verdict.lost
    assert found == (0, 0, 0, 0), "\n".join(verdict.examples)
