"""A few seconds of ``python -m overweave.testing.fuzz``; ``OVERWEAVE_FUZZ_S`` makes it more."""

import os

from overweave.testing.fuzz import fuzz


def test_a_broker_among_peers_that_mean_no_good():
    report = fuzz(float(os.environ.get("OVERWEAVE_FUZZ_S", "4")), seed=3)
    report.check()
    assert report.connections > 100
    assert report.frames > 100
    assert len(report.attacks) >= 5
