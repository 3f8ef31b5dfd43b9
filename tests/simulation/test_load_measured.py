"""Simulated brokers with modules get `LoadMeasured` every second, as live ones do."""

from overweave.contract.stimuli import LoadMeasured
from overweave.drivers.sim.costs import FRAME_BYTES, Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scheduler import Scheduler
from overweave.language.codec import encode_publication
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

CHAIN = Overlay(["B1", "B2"], [("B1", "B2")])
CONTENT = Publication({"x": 1})


class Probe:
    """Writes down all measurements."""

    watches = ()

    def __init__(self):
        self.loads = []

    def handle(self, stimulus, now_s):
        if isinstance(stimulus, LoadMeasured):
            self.loads.append((now_s, stimulus))
        return ()


def network(probes, **options):
    made = SimulatedNetwork(
        CHAIN,
        PROTOCOLS["filter"].make,
        make_modules=lambda at: {"probe": probes[at.broker]} if at.broker in probes else {},
        **options,
    )
    for client, broker in (("p", "B1"), ("s", "B2")):
        made.add_client(client, broker)
    made.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    made.scheduler.run(1.0)
    made.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    made.scheduler.run(2.0)
    return made


def publish(made, count, period_s):
    for number in range(count):
        made.scheduler.at(2.0 + (number + 0.5) * period_s, lambda _: made.publish("p", CONTENT))


def test_the_load_of_each_second_reaches_modules():
    probes = {"B1": Probe(), "B2": Probe()}
    made = network(probes, costs=Costs(matching_delay_base_s=0.004))
    publish(made, 60, 0.05)
    made.scheduler.run(6.0)
    times_s, loads = zip(*probes["B2"].loads, strict=True)
    assert times_s == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert [load.input_hz for load in loads[2:]] == [20.0, 20.0, 20.0, 0.0]
    assert abs(loads[3].matching_delay_s - 0.004) < 1e-9
    content = FRAME_BYTES + len(encode_publication(CONTENT))
    assert 20 * content <= loads[3].put_bytes_per_s <= 20 * (content + 2 * FRAME_BYTES)
    assert loads[5].queue_length == 0


def test_brokers_that_take_no_time_have_a_load_too():
    probes = {"B2": Probe()}
    made = network(probes)
    publish(made, 20, 0.05)
    made.scheduler.run(4.0)
    assert [load.input_hz for _, load in probes["B2"].loads] == [0.0, 0.0, 20.0, 0.0]


def test_contents_that_wait_are_the_queue():
    probes = {"B1": Probe()}
    made = network(probes)
    made.cut_link(("B1", "B2"))
    publish(made, 20, 0.05)
    made.scheduler.run(3.0)
    assert probes["B1"].loads[-1][1].queue_length == 20


def test_a_paused_broker_measures_nothing():
    probes = {"B2": Probe()}
    made = network(probes)
    made.pause("B2", 2.5)
    made.scheduler.run(6.0)
    assert [now_s for now_s, _ in probes["B2"].loads] == [1.0, 2.0, 5.0, 6.0]


def test_a_restarted_broker_begins_anew():
    probes = {"B2": Probe()}
    made = network(probes)
    made.crash("B2", 1.5)
    made.scheduler.run(6.0)
    assert [now_s for now_s, _ in probes["B2"].loads] == [1.0, 2.0, 4.0, 5.0, 6.0]


def test_measurements_do_not_keep_a_quiet_network_going():
    made = network({"B1": Probe()})
    made.scheduler.run()
    assert made.scheduler.now_s < 10.0
    assert made.scheduler.pending() == 0


def test_periodic_actions_come_after_all_else_of_their_time_and_may_plan():
    scheduler, seen = Scheduler(), []

    def tick(_):
        seen.append(("tick", scheduler.now_s))
        scheduler.at(scheduler.now_s + 0.5, seen.append, "planned")

    scheduler.every(1.0, tick)
    scheduler.at(1.0, seen.append, "first")
    scheduler.at(1.0, lambda _: scheduler.every(0.25, lambda _: seen.append(("other", scheduler.now_s))))
    scheduler.run(1.6)
    assert seen == ["first", ("tick", 1.0), ("other", 1.25), "planned", ("other", 1.5)]
    assert scheduler.now_s == 1.6


def test_an_overloaded_engine_has_a_ratio_above_one_and_a_growing_delay():
    probes = {"B1": Probe()}
    made = network(probes, own_costs={"B1": Costs(matching_delay_base_s=0.075)})
    publish(made, 60, 0.05)
    made.scheduler.run(5.0)
    loads = [load for _, load in probes["B1"].loads[2:5]]
    assert [load.input_hz for load in loads] == [20.0, 20.0, 20.0]
    assert all(abs(load.input_ratio - 1.5) < 1e-6 and load.cpu_ratio == 1.0 for load in loads)
    assert 0 < loads[0].input_delay_s < loads[1].input_delay_s < loads[2].input_delay_s


def test_an_overloaded_uplink_has_a_ratio_above_one_and_delays_by_neighbour():
    size = FRAME_BYTES + len(encode_publication(CONTENT))
    probes = {"B1": Probe()}
    made = network(probes, own_costs={"B1": Costs(output_bandwidth_bytes_per_s=10.0 * size)})
    publish(made, 60, 0.05)
    made.scheduler.run(5.0)
    load = probes["B1"].loads[3][1]
    assert load.output_bandwidth_bytes_per_s == 10.0 * size
    assert load.output_busy > 0.95
    assert load.put_bytes_per_s > 1.5 * load.sent_bytes_per_s
    assert load.output_ratio == load.output_busy * load.put_bytes_per_s / load.sent_bytes_per_s > 1.4
    assert set(load.output_delays_s) == {"", "B2"}
    assert load.output_delays_s["B2"] > 0.3
    assert load.output_delays_s[""] <= load.output_delay_s <= load.output_delays_s["B2"]
    assert probes["B1"].loads[1][1].output_ratio < 0.5


def test_only_subscriptions_of_clients_are_counted():
    probes = {"B1": Probe(), "B2": Probe()}
    network(probes)
    assert [probes[at].loads[-1][1].subscriptions for at in ("B1", "B2")] == [0, 1]
