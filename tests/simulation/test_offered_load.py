"""Offered load, overloaded brokers, single links and brokers that differ, and counts of faults."""

import copy

import msgspec
import pytest

from overweave.drivers.sim.faults import FaultCounts, Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import read_scenario, scenario_of
from overweave.drivers.sim.utilisation import Overloaded, overload_text
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Link
from overweave.routing import PROTOCOLS

SCENARIO = {
    "duration_s": 10,
    "overlay": {"shape": "chain", "brokers": 1},
    "workload": {"publishers": 1, "subscriptions_per_publisher": 1, "rate_hz": 20},
}


def test_input_utilisation_counts_arrivals():
    metrics = simulate(scenario_of(SCENARIO | {"costs": {"matching_delay_base_s": 0.11}}))
    assert metrics.input_utilisation.max == pytest.approx(2.2, rel=0.02)
    assert [(each.broker, each.part) for each in metrics.overloaded] == [("B1", "input")]
    assert str(metrics.overloaded[0]) == "B1 input 2.20"
    fine = simulate(scenario_of(SCENARIO | {"costs": {"matching_delay_base_s": 0.04}}))
    assert fine.input_utilisation.max == pytest.approx(0.8, rel=0.02)
    assert fine.overloaded == ()


def test_an_overloaded_uplink_and_a_capacity_are_named():
    metrics = simulate(scenario_of(SCENARIO | {"costs": {"output_bandwidth_bytes_per_s": 1500}}))
    (overloaded,) = metrics.overloaded
    assert (overloaded.broker, overloaded.part) == ("B1", "uplink")
    assert overloaded.utilisation == metrics.output_utilisation.max > 1
    metrics = simulate(scenario_of(SCENARIO | {"costs": {"capacity_hz": 8.0, "overload_delay_s": 0.001}}))
    assert metrics.overloaded == (Overloaded("B1", "capacity", 2.5),)


def test_a_network_without_costs_has_no_utilisation():
    metrics = simulate(scenario_of(SCENARIO))
    assert (metrics.input_utilisation, metrics.output_utilisation, metrics.overloaded) == (None, None, ())


def test_many_overloaded_brokers_are_counted():
    text = overload_text([f"B{number} input 2.00" for number in range(13)])
    assert text.startswith("overloaded: B0 input 2.00, B1")
    assert "B9 input 2.00 and 3 more: delays grow" in text


def test_a_network_that_does_not_settle_names_what_is_overloaded(monkeypatch):
    monkeypatch.setattr("overweave.drivers.sim.runner._SETTLE_DURATIONS", 0.0)
    monkeypatch.setattr("overweave.drivers.sim.runner._SETTLE_S", 3.0)
    with pytest.raises(OverweaveError, match=r"did not settle.*overloaded: B1 input 2\.20: delays grow"):
        simulate(scenario_of(SCENARIO | {"costs": {"matching_delay_base_s": 0.11}}))


# ---- single links and brokers


def delivery_s(overlay, **options):
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, **options)
    network.add_client("p", "B1")
    network.add_client("s", "B3")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.scheduler.run(5.0)
    network.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    network.scheduler.run(10.0)
    network.publish("p", Publication({"x": 1}))
    while not network.deliveries:
        network.scheduler.run(network.scheduler.now_s + 0.001)
    return network.scheduler.now_s - 10.0


def test_a_link_with_a_delay_of_its_own_takes_it():
    plain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
    slow = Overlay(["B1", "B2", "B3"], [("B1", "B2"), Link("B3", "B2", delay_s=0.25)])
    assert delivery_s(plain) == pytest.approx(0.004, abs=0.0011)
    assert delivery_s(slow) == pytest.approx(0.253, abs=0.0011)
    assert delivery_s(slow, faults=Faults(duplication=0.01)) == pytest.approx(0.253, abs=0.0011)


CHAIN = """
duration_s = 4
[overlay]
shape = "chain"
brokers = 2
[workload]
publishers = 3
subscriptions_per_publisher = 6
[[link]]
between = ["B2", "B1"]
delay_s = 0.2
[[broker]]
id = "B2"
matching_delay_base_s = 0.05
"""


def test_links_and_brokers_of_a_scenario_file_differ(tmp_path):
    file = tmp_path / "scenario.toml"
    file.write_text(CHAIN)
    records = []
    simulate(read_scenario(file), on_record=records.append)
    delays_s = {(each.broker, each.hops): each.arrived_at_s - each.published_at_s for each in records}
    assert {key: round(delay_s, 3) for key, delay_s in delays_s.items()} == {
        ("B1", 0): 0.001, ("B1", 1): 0.251, ("B2", 0): 0.051, ("B2", 1): 0.251,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('["B2", "B1"]', '["B2", "B7"]', "link[0].between: broker 'B7' is not in the overlay"),
        ('["B2", "B1"]', '["B2"]', "link[0].between: expected"),
        ("delay_s = 0.2", "delay_s = -0.2", "link[0].delay_s: expected a time from 0 on, got -0.2"),
        ("delay_s = 0.2", "dely_s = 0.2", "link[0].dely_s: unknown key, the nearest known one is 'delay_s'"),
        ("[[broker]]", '[[link]]\nbetween = ["B1", "B2"]\ndelay_s = 1\n[[broker]]', "link[1].between: expected every link once"),
    ],
)
def test_wrong_links_are_named(tmp_path, old, new, text):
    file = tmp_path / "scenario.toml"
    file.write_text(CHAIN.replace(old, new))
    with pytest.raises(InvalidInput) as refused:
        read_scenario(file)
    assert str(refused.value).startswith(f"{file}: {text}")


# ---- counts of faults

FAULTS = {
    "loss": 0.02, "duplication": 0.02, "reordering": 0.02, "cut_every_s": 2, "crash_every_s": 3, "partition_every_s": 3,
    "pause_every_s": 2, "full_every_s": 2, "broker_pause_every_s": 4, "broker_pause_s": 0.5,
}  # fmt: skip


def test_faults_are_counted_by_class():
    overlay = {"shape": "chain", "brokers": 4}
    metrics = simulate(scenario_of(SCENARIO | {"overlay": overlay, "faults": FAULTS, "checks": {"deliveries": False}}))
    counts = msgspec.structs.asdict(metrics.faults)
    absent = {"clocks_back", "client_crashes", "client_returns"}
    assert all(counts[name] for name in counts if name not in absent), counts
    assert not any(counts[name] for name in absent)
    assert simulate(scenario_of(SCENARIO | {"overlay": overlay})).faults == FaultCounts()


def test_crashes_and_lost_frames_are_those_that_happened():
    overlay = Overlay(["B1", "B2"], [("B1", "B2")])
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, faults=Faults(crash_every_s=2.0, crash_s=0.1, loss=0.5))
    network.scheduler.run(30.0)
    network.scheduler.run(30.2)
    counts, down = network.fault_counts(), 2 - len(network.running())
    assert counts.crashes == sum(network.incarnation(id) - 1 for id in overlay.ids) + down > 5
    assert counts.lost_frames == pytest.approx(network.frames / 2, rel=0.2)


@pytest.mark.parametrize("protocol", ["filter", "filter-general", "destination", "merc"])
def test_a_copy_of_a_network_acts_on_itself(protocol):
    overlay = Overlay(["B1", "B2"], [("B1", "B2")])
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make)
    network.add_client("p", "B1")
    network.add_client("s", "B2")
    network.scheduler.run(1.0)
    other = copy.deepcopy(network)
    other.say("p", Advertise("a", parse_filter("[x,>,0]")))
    other.scheduler.run(2.0)
    other.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    other.scheduler.run(3.0)
    other.publish("p", Publication({"x": 1}))
    other.scheduler.run(4.0)
    assert (other.deliveries.total(), network.deliveries.total()) == (1, 0)
    assert (len(other.journal("B1")), len(network.journal("B1"))) == (1, 0)
    assert not any(network.broker("B1").statistics().tables.values())
    assert network.scheduler.now_s == 1.0
