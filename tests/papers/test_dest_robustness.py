"""DEST V-B, figures 23 and 24, on 30 brokers; the overlay itself says what can be delivered."""

import numpy as np
import pytest
import rustworkx

from overweave.experiments.dest import robustness
from overweave.experiments.dest.networks import available
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay

SHARES = (0.0, 0.3, 0.5, 0.7)


@pytest.fixture(scope="module", params=available(robustness.PROTOCOLS_OF_FAILURES[:2]))
def measured(request):
    return request.param, robustness.measure(robustness.Setup(request.param, 3, SHARES, brokers=30))


def reachable(kind, share):
    """The share of pairs that have a way, as the failures of seed 3 leave it."""
    overlay = make_overlay("waxman", brokers=30, degree=6, seed=3)
    size = len(overlay) if kind == "brokers" else len(overlay.links)
    gone = np.random.default_rng((3, 0)).permutation(size)[: round(share * size)]
    if kind == "brokers":
        for id in [overlay.ids[number] for number in gone]:
            overlay = overlay.without_broker(id)
    else:
        overlay = Overlay(overlay.brokers, [link for number, link in enumerate(overlay.links) if number not in gone])
    return sum(len(part) ** 2 for part in rustworkx.connected_components(overlay.lookup.graph)) / 30**2


@pytest.mark.parametrize("kind", robustness.KINDS)
def test_destination_based_routing_delivers_wherever_there_is_a_way(measured, kind):
    protocol, table = measured
    for row in table[table["kind"] == kind].itertuples():
        if protocol == "destination":
            assert row.delivered == pytest.approx(reachable(kind, row.share))
        else:
            assert row.delivered == 1 if row.share == 0 else row.delivered < reachable(kind, row.share)


def test_what_the_claims_are_counted_of(measured):
    """All pairs, also those of crashed brokers: half of them gone leaves a quarter of the pairs at most."""
    _, table = measured
    half = table[(table["kind"] == "brokers") & (table["share"] == 0.5)].iloc[0]
    assert half["delivered"] <= 0.25
    assert half["delivered_of_living"] == pytest.approx(4 * half["delivered"])


def test_every_claim_has_its_runs():
    setups = robustness.setups(full=False)
    for protocol in ("filter-general", "destination"):
        overlays = {setup.seed for setup in setups if setup.protocol == protocol and robustness.HALF in setup.shares}
        assert len(overlays) >= 20
