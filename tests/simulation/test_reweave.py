"""Plans on simulated networks under faults, with crashes of brokers and of the coordinator in every phase."""

import msgspec
import pytest

from overweave.broker import epoch_tables
from overweave.broker.client import migration
from overweave.language.messages import Advertise
from overweave.reweave import coordinator
from overweave.testing.reweave import FAULTS, run_seed


@pytest.mark.parametrize("faults", FAULTS)
def test_a_plan_is_applied_and_nothing_is_lost_or_duplicated(faults):
    seed = list(FAULTS).index(faults)
    outcome = run_seed(seed, ["filter", "covering-peer"][seed % 2], faults)
    assert outcome.failures == []
    assert outcome.moved
    assert outcome.crashes >= 3 * (faults not in ("none", "cuts"))


@pytest.mark.parametrize("seed", [0, 9])  # a broker joins in the first of them
def test_a_protocol_that_routes_around_failures(seed):
    assert run_seed(seed, "destination", "none").failures == []


def lost(faults, seeds=8):
    """The publications lost in the first seed that loses any."""
    failures = (run_seed(seed, "filter", faults).failures for seed in range(seeds))
    return next((each for each in ([f for f in found if "lost" in f] for found in failures) if each), [])


def test_an_epoch_that_closes_before_it_is_quiet_loses_publications(monkeypatch):
    monkeypatch.setattr(coordinator, "restless", lambda *_: None)
    monkeypatch.setattr(epoch_tables.EpochTables, "unsettled", lambda *_: 0)
    assert lost("cuts")


def has_all_at_once(current):
    """Without a barrier; a client that does not advertise does not even wait for its new subscriptions, as the drain does."""
    if not current.source.of_kind(Advertise):
        current.order = msgspec.structs.replace(current.order, publishing=False)
    return current.target.session.established


def test_a_subscription_that_is_withdrawn_before_the_barrier_loses_publications(monkeypatch):
    monkeypatch.setattr(migration, "has_all", has_all_at_once)
    assert lost("none")
