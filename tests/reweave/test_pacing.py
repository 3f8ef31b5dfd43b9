"""The rate of migrations, and when continuous planning acts."""

from hypothesis import given
from hypothesis import strategies as st

from overweave.reweave.deliveries import Deliveries
from overweave.reweave.hysteresis import BUDGET_S, Applied, Health, Hysteresis, Limits, Proposal
from overweave.reweave.pacing import Pacing

SAMPLES = st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 10)), st.integers(0, 10_000)), max_size=60)


@given(SAMPLES)
def test_the_rate_stays_within_its_bounds_and_backs_off_by_half(samples):
    pacing = Pacing(64.0)
    for delay_s, unsettled in samples:
        before = pacing.rate_hz
        if pacing.sample(Deliveries(delay_s, unsettled)):
            assert pacing.rate_hz == max(before / 2, 1.0)
        else:
            assert before <= pacing.rate_hz <= 64.0
        assert pacing.interval_s == 1 / pacing.rate_hz


def test_the_rate_recovers_when_deliveries_do():
    pacing = Pacing(50.0)
    for _ in range(5):
        assert not pacing.sample(Deliveries(0.1, 20))
    assert [pacing.sample(Deliveries(0.5, 20)) for _ in range(4)] == [True] * 4
    assert pacing.rate_hz == 50 / 16
    assert pacing.sample(Deliveries(0.1, 5_000))
    while pacing.rate_hz < 50:
        assert not pacing.sample(Deliveries(0.1, 20))


def test_what_lasts_becomes_usual():
    pacing = Pacing(50.0)
    for _ in range(10):
        pacing.sample(Deliveries(0.1, 20))
    samples = [pacing.sample(Deliveries(0.5, 20)) for _ in range(1200)]
    assert samples[:120] == [True] * 120  # a minute
    assert not any(samples[-100:])
    assert pacing.rate_hz == 50.0


def test_a_network_at_rest_may_vary():
    pacing = Pacing(50.0)
    samples = [(0.001, 0), (0.04, 90), (0.002, 3), (0.049, 100)]
    assert not any(pacing.sample(Deliveries(delay_s, unsettled)) for delay_s, unsettled in samples)


#: Whole seconds, many of them around the cool-down: no sum of them is rounded.
_GAPS_S = st.sampled_from([1, 59, 60, 61]) | st.integers(1, 900)


@given(st.lists(st.tuples(_GAPS_S, st.floats(0, 1), st.integers(0, 400)), max_size=80))
def test_no_hour_has_more_moves_than_the_budget_and_no_change_is_within_the_cooldown(proposals):
    limits = Limits(saving_min=0.2, cooldown_s=60.0, moves_per_hour_max=500)
    hysteresis, now_s, acted = Hysteresis(limits), 0.0, []
    for gap_s, saving, moves in proposals:
        now_s += gap_s
        verdict = hysteresis.decide(Proposal(saving, moves), now_s)
        recent = sum(count for at_s, count in acted if at_s > now_s - BUDGET_S)
        assert verdict.is_approved == (saving >= 0.2 and (not acted or now_s - acted[-1][0] >= 60.0) and recent + moves <= 500), (
            verdict.reason
        )
        if verdict.is_approved:
            hysteresis.begin(moves, now_s)
            hysteresis = Hysteresis(limits, hysteresis.applied)  # started again
            acted.append((now_s, moves))


def decided(hysteresis, health, now_s):
    hysteresis.observe(health, now_s)
    return hysteresis.decide(Proposal(0.5, 1), now_s)


def of_delay(delay_s):
    return Health(Deliveries(delay_s))


def test_the_breaker_opens_when_brokers_fail_or_deliveries_slow_down():
    hysteresis = Hysteresis(Limits(breaker_s=100.0))
    assert decided(hysteresis, of_delay(0.1), 0.0).is_approved
    found = decided(hysteresis, of_delay(0.4), 10.0)
    assert not found.is_approved
    assert found.reason == "the circuit breaker is open: deliveries take 0.4 s instead of 0.1 s"
    assert not decided(hysteresis, of_delay(0.1), 109.0).is_approved
    assert decided(hysteresis, of_delay(0.1), 110.0).is_approved
    assert decided(hysteresis, Health(missing=("B3",)), 111.0).reason.endswith("no answer from B3")
    hysteresis = Hysteresis(Limits(breaker_s=100.0))
    assert decided(hysteresis, Health(Deliveries(None, 400)), 0.0).is_approved
    found = decided(hysteresis, Health(Deliveries(None, 4_000)), 10.0)
    assert found.reason.endswith("4,000 publications are unsettled instead of 400")
    hysteresis = Hysteresis(Limits(breaker_s=100.0))
    hysteresis.trip("the last change failed: no space left", 0.0)
    assert decided(hysteresis, Health(), 99.0).reason.endswith("failed: no space left")
    assert decided(hysteresis, Health(), 100.0).is_approved


def test_the_breaker_ignores_what_is_harmless_however_much_it_grows():
    hysteresis = Hysteresis(Limits())
    calm = [(0.0016, 0), (0.0168, 3), (0.0016, 900), (0.24, 1_000), (0.0001, 0), (0.25, 1_000)]
    for second, (delay_s, unsettled) in enumerate(calm):
        assert decided(hysteresis, Health(Deliveries(delay_s, unsettled)), second).is_approved
    assert not decided(hysteresis, of_delay(0.3), len(calm)).is_approved


def test_traffic_that_has_grown_for_good_does_not_keep_the_breaker_open():
    hysteresis = Hysteresis(Limits(breaker_s=300.0))
    for second in range(0, 600, 10):
        assert decided(hysteresis, of_delay(0.1), second).is_approved
    held = [not decided(hysteresis, of_delay(1.0), second).is_approved for second in range(600, 7200, 10)]
    assert held[:60] == [True] * 60  # ten minutes
    assert not any(held[-360:])


def test_a_change_that_was_killed_counts_with_all_its_moves():
    hysteresis = Hysteresis(Limits(moves_per_hour_max=10, cooldown_s=60.0))
    hysteresis.begin(8, 0.0)
    again = Hysteresis(Limits(moves_per_hour_max=10, cooldown_s=60.0), hysteresis.applied)
    assert again.decide(Proposal(0.5, 1), 30.0).reason == "30 s of the cool-down are left"
    assert again.decide(Proposal(0.5, 3), 61.0).reason == "3 moves exceed the 2 that are left of this hour's budget"
    hysteresis.end(2, 10.0)
    assert hysteresis.applied == (Applied(10.0, 2),)
