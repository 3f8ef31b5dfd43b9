"""Brokers with more publications than their capacity delay them, in order."""

import msgspec
import pytest

from overweave.batches.objects import Rows
from overweave.contract.frames import BatchFrame, ControlFrame, SessionEpoch
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.overload import Overload
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.station import Station
from overweave.errors import InvalidInput
from overweave.language.headers import Header
from overweave.language.messages import Publish, Unsubscribe
from overweave.language.publications import Publication

EPOCH = SessionEpoch(1, 0)

SCENARIO = {
    "duration_s": 5,
    "overlay": {"shape": "chain", "brokers": 3},
    "workload": {"publishers": 4, "subscriptions_per_publisher": 3, "rate_hz": 10},
}


def frame(sequence):
    return BatchFrame(EPOCH, EPOCH, sequence, 0, Rows((Publish(Publication({"x": 1}), Header("p", sequence)),)))


def test_the_load_is_that_of_the_last_second_and_one_that_came_a_second_ago_is_gone():
    overload = Overload(capacity_hz=2.0, delay_s=0.1)
    assert [overload.release_s(at, 1) for at in (0.0, 0.3, 0.6)] == [0.0, 0.3, pytest.approx(0.7)]
    assert overload.release_s(1.0, 1) == pytest.approx(1.1)  # 0.3, 0.6 and itself
    assert overload.release_s(3.0, 5) == pytest.approx(3.3)
    assert overload.peak == 5


def test_the_delay_falls_with_the_load_but_nothing_overtakes():
    overload = Overload(capacity_hz=1.0, delay_s=0.5)
    assert overload.release_s(0.0, 4) == pytest.approx(1.5)
    assert overload.release_s(1.25, 1) == pytest.approx(1.5)


def test_a_station_delays_publications_and_what_is_behind_them_on_the_same_connection():
    served, scheduler = [], Scheduler()
    costs = Costs(capacity_hz=1.0, overload_delay_s=2.0)
    station = Station(
        scheduler, costs, lambda *_: 0, lambda peer, frame, _: served.append((scheduler.now_s, peer, type(frame).__name__))
    )
    word = ControlFrame(EPOCH, EPOCH, 9, 0, Unsubscribe("s"))
    for peer, some in (("a", frame(1)), ("b", frame(2)), ("b", word), ("c", word), ("c", frame(3))):
        station.arrive(peer, some)
    scheduler.run()
    assert served == [
        (0.0, "a", "BatchFrame"), (0.0, "c", "ControlFrame"),
        (2.0, "b", "BatchFrame"), (2.0, "b", "ControlFrame"), (4.0, "c", "BatchFrame"),
    ]  # fmt: skip
    assert station.overload.peak == 3


def test_a_capacity_that_is_enough_changes_nothing():
    plain = simulate(scenario_of(SCENARIO))
    roomy = simulate(scenario_of(SCENARIO | {"costs": {"capacity_hz": 1000.0, "overload_delay_s": 0.01}}))
    same = {"input_utilisation": None, "output_utilisation": None, "queue_max": None}
    assert msgspec.structs.replace(roomy, **same) == msgspec.structs.replace(plain, **same)


def test_overloaded_brokers_deliver_everything_later():
    plain = simulate(scenario_of(SCENARIO))
    costs = {"capacity_hz": 20.0, "overload_delay_s": 0.01}
    late = simulate(scenario_of(SCENARIO | {"costs": costs}))
    assert late.deliveries == plain.deliveries
    assert late.pure_forwards == plain.pure_forwards
    assert late.delay_s.mean > plain.delay_s.mean + 0.01


def test_own_capacity_of_one_broker():
    costs = {"capacity_hz": 1000.0, "overload_delay_s": 0.01}
    slow = simulate(scenario_of(SCENARIO | {"costs": costs, "broker": [{"id": "B2", "capacity_hz": 5.0}]}))
    assert slow.delay_s.max > simulate(scenario_of(SCENARIO | {"costs": costs})).delay_s.max + 0.05


@pytest.mark.parametrize("field", ["capacity_hz", "overload_delay_s"])
def test_wrong_costs_are_named(field):
    with pytest.raises(InvalidInput, match=f"costs.{field}: expected"):
        Costs(**{field: -1.0})


def test_an_overloaded_network_settles_though_frames_are_lost():
    """Each copy of a frame in a queue makes the queue longer, so retransmission must not outpace the brokers."""
    workload = {"publishers": 4, "subscriptions_per_publisher": 3, "rate_hz": 20}
    costs, faults = {"matching_delay_base_s": 0.05}, {"loss": 0.02}
    metrics = simulate(scenario_of(SCENARIO | {"workload": workload, "costs": costs, "faults": faults}))
    assert metrics.overloaded
    assert metrics.faults.lost_frames
    without_loss = simulate(scenario_of(SCENARIO | {"workload": workload, "costs": costs}))
    assert metrics.deliveries == without_loss.deliveries
    assert metrics.frames < 10 * without_loss.frames
