"""Checkers must see what is wrong, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overweave.contract.frames import BatchFrame, ControlFrame, SessionEpoch
from overweave.drivers.sim.checkers import Checks, DeliveryOracle, check_brokers, check_deliveries
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.station import Station
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.headers import Header
from overweave.language.messages import Publish, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import BUILT_IN, PROTOCOLS, RoutingProtocol
from overweave.routing.base import Engine
from overweave.routing.filter import FilterBased

EPOCH = SessionEpoch(1, 0)

SCENARIO = {
    "duration_s": 5,
    "overlay": {"shape": "balanced", "brokers": 7, "degree": 3},
    "workload": {"publishers": 3, "subscriptions_per_publisher": 10, "rate_hz": 5},
}


@given(st.lists(st.integers(0, 5), max_size=10), st.data())
def test_the_ledger_balances_when_each_gets_its_own_once(values, data):
    oracle = DeliveryOracle([("low", parse_filter("[x,<,3]")), ("all", parse_filter("[x,>=,0]"))])
    due = []
    for sequence, x in enumerate(values):
        oracle.published("p", sequence, Publication({"x": x}))
        due += [(sequence, "all")] + [(sequence, "low")] * (x < 3)
    for sequence, id in data.draw(st.permutations(due)):
        oracle.delivered("p", sequence, id)
    assert oracle.faults() == []
    if due:
        oracle.delivered("p", *due[0])
        assert oracle.faults()


def test_the_wrong_one_does_not_make_up_for_the_right_one():
    oracle = DeliveryOracle([("s", parse_filter("[x,>,0]"))])
    oracle.published("p", 0, Publication({"x": 1}))
    oracle.delivered("p", 1, "s")
    with pytest.raises(OverweaveError, match="not the right ones"):
        check_deliveries(oracle)


class Forgetful(FilterBased):
    """Loses what matches at every third broker."""

    def route(self, batch, origin):
        return super().route(batch, origin)[1:]


def test_a_simulation_that_loses_something_fails(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "filter", RoutingProtocol(lambda *_: Engine(Forgetful()), acyclic=True))
    with pytest.raises(OverweaveError, match=r"deliveries are wrong: subscription .* missing"):
        simulate(scenario_of(SCENARIO))
    simulate(scenario_of(SCENARIO | {"checks": {"deliveries": False}}))


def test_a_queue_that_grows_too_long_is_named():
    slow = {"matching_delay_base_s": 0.5}
    with pytest.raises(OverweaveError, match=r"broker B\d at .* frames wait in its input queue, more than checks.queue_max = 20"):
        simulate(scenario_of(SCENARIO | {"costs": slow, "checks": {"queue_max": 20}}))


def test_a_broken_state_is_named():
    network = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS["filter"].make)
    network.scheduler.run()
    check_brokers(network, Checks())
    network.broker("B2")._sessions["B1"].outbound.in_flight.next_to_send += 1
    with pytest.raises(OverweaveError, match="broker B2"):
        check_brokers(network, Checks())


def test_checks_are_checked():
    with pytest.raises(InvalidInput, match=r"checks\.queue_max"):
        Checks(queue_max=0)


def test_control_goes_first_but_nothing_overtakes_its_own_peer():
    from overweave.batches.objects import Rows

    served, scheduler = [], Scheduler()
    station = Station(
        scheduler, Costs(matching_delay_base_s=1.0), lambda *_: 0, lambda peer, frame, _: served.append((peer, frame))
    )
    batch = BatchFrame(EPOCH, EPOCH, 0, 0, Rows((Publish(Publication({"x": 1}), Header("p", 0)),)))
    word = ControlFrame(EPOCH, EPOCH, 1, 0, Unsubscribe("s"))
    for peer, frame in (("a", batch), ("b", batch), ("b", word), ("c", word)):
        station.arrive(peer, frame)
    scheduler.run()
    assert served == [("a", batch), ("c", word), ("b", batch), ("b", word)]


def test_what_modules_say_is_control_and_not_in_the_trace():
    quiet = simulate(scenario_of(SCENARIO))
    records = []
    chatty = simulate(scenario_of(SCENARIO | {"modules": {"report": {"every_s": 0.5}}}), on_record=records.append)
    assert (chatty.useful_arrivals, chatty.pure_forwards, chatty.deliveries) == (
        quiet.useful_arrivals, quiet.pure_forwards, quiet.deliveries,
    )  # fmt: skip
    assert {record.publisher for record in records} == {"P1", "P2", "P3"}
