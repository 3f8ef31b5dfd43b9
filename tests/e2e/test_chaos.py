"""Half a minute of chaos on two networks; all of it takes ``make chaos``."""

import pytest

from overweave.testing.chaos.configurations import configuration
from overweave.testing.chaos.run import run

#: A known defect: publications under ``destination`` are settled and lost for some subscribers where brokers are paused.
LOSES = pytest.mark.xfail(reason="a known defect: 'destination' loses publications when brokers are paused", strict=False)


@pytest.mark.parametrize("name", ["filter-chain", pytest.param("destination-pauses", marks=LOSES)])
def test_what_is_acknowledged_arrives_once(name, tmp_path):
    result = run(configuration(name), seed=1, seconds=22.0, out=tmp_path)
    verdict = result.verdict
    assert not result.mistakes, result.mistakes
    assert not result.troubles, result.troubles
    assert len(result.struck) >= 5
    assert verdict.expected > 300
    found = verdict.duplicated, verdict.wrong, verdict.unsettled, verdict.lost
    assert found == (0, 0, 0, 0), "\n".join(verdict.examples)
