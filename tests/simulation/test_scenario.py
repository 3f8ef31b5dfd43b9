"""Scenarios are refused with the path of the field; a small one is what one computes by hand."""

import itertools
from collections import Counter

import pytest

from overweave.drivers.sim.costs import FRAME_BYTES, Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.metrics import Delays
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import KINDS, OverlaySpec, RoutingSpec, Scenario, WorkloadSpec, read_scenario, scenario_of
from overweave.drivers.sim.workload import WORKLOADS, Publisher, Subscriber, Workload, make_workload
from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.relations import intersects, matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.routing import PROTOCOLS

OVERLAY = {"shape": "balanced", "brokers": 12, "degree": 3}
WORKLOAD = {"kind": "stock", "publishers": 3, "subscriptions_per_publisher": 4, "rate_hz": 2}
DOCUMENT = {"seed": 3, "duration_s": 5, "overlay": OVERLAY, "workload": WORKLOAD}
GRAPH = {"shape": "random-graph", "brokers": 10, "degree": 4}


def test_a_document_is_read_with_defaults():
    scenario = scenario_of(DOCUMENT)
    assert scenario == Scenario(
        seed=3,
        duration_s=5.0,
        overlay=OverlaySpec("balanced", {"brokers": 12, "degree": 3}),
        routing=RoutingSpec("filter"),
        workload=WorkloadSpec(publishers=3, subscriptions_per_publisher=4, rate_hz=2.0),
        costs=Costs(),
        faults=Faults(),
    )
    assert len(scenario.make_overlay()) == 12


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"durtion_s": 1}, "durtion_s: unknown key, the nearest known one is 'duration_s'"),
        ({"workload": {**WORKLOAD, "rate": 1}}, "workload.rate: unknown key, the nearest known one is 'rate_hz'"),
        ({"overlay": {**OVERLAY, "degre": 1}}, "overlay.degre: unknown key, the nearest known one is 'degree'"),
        ({"routing": {"protocl": "filter"}}, "routing.protocl: unknown key, the nearest known one is 'protocol'"),
        ({"costs": {"link_delay": 1}}, "costs.link_delay: unknown key, the nearest known one is 'link_delay_s'"),
        ({"faults": {"los": 0.1}}, "faults.los: unknown key, the nearest known one is 'loss'"),
        ({"modules": {"load_balancing": {}}}, "modules.load_balancing: unknown module, the nearest known one is 'self_organise'"),
        (
            {"modules": {"self_organise": {"every_s": 1, "degree_max": 3}}},
            "modules.self_organise: expected routing whose brokers know the overlay (destination), got 'filter'",
        ),
        ({"overlay": {**OVERLAY, "shape": "balancd"}}, "overlay.shape: unknown 'balancd', the nearest known one is 'balanced'"),
        ({"overlay": {"brokers": 3}}, "overlay.shape: expected one of chain"),
        ({"overlay": {"shape": "balanced", "brokers": 3}}, "overlay.degree: expected a value"),
        ({"overlay": {**OVERLAY, "brokers": 0}}, "overlay.brokers: expected an integer of at least 1, got 0"),
        ({"overlay": {**OVERLAY, "brokers": []}}, "overlay.brokers: expected a number or a text, got []"),
        ({"overlay": {**GRAPH, "degree": 1}}, "overlay.degree: expected from 1.8"),
        ({"overlay": 3}, "overlay: expected a table [overlay], got 3"),
        ({"overlay": GRAPH}, "routing.protocol: expected one for overlays with cycles (filter-general, destination, merc)"),
        ({"routing": {"protocol": "filtr"}}, "routing.protocol: unknown 'filtr', the nearest known one is 'filter'"),
        ({"workload": {**WORKLOAD, "kind": "stok"}}, "workload.kind: unknown 'stok', the nearest known one is 'stock'"),
        ({"workload": {**WORKLOAD, "rate_hz": -1}}, "workload.rate_hz: expected a finite number above 0, got -1"),
        ({"workload": {**WORKLOAD, "rate_hz": "1"}}, "workload.rate_hz: expected a number, got '1'"),
        ({"workload": {**WORKLOAD, "batch": 0}}, "workload.batch: expected an integer of at least 1, got 0"),
        ({"workload": {**WORKLOAD, "publishers": 0}}, "workload.publishers: expected an integer of at least 1"),
        ({"workload": {**WORKLOAD, "publishers": 1.5}}, "workload.publishers: expected an integer, got 1.5"),
        ({"workload": {**WORKLOAD, "subscriptions_per_publisher": -1}}, "workload.subscriptions_per_publisher: expected"),
        ({"workload": {"publishers": 1}}, "workload.subscriptions_per_publisher: expected a value, which is missing"),
        ({"costs": {"link_delay_s": -1}}, "costs.link_delay_s: expected a time from 0 on"),
        ({"costs": {"link_delay_s": float("inf")}}, "costs.link_delay_s: expected a finite number"),
        ({"faults": {"loss": 1.5}}, "faults.loss: expected a chance"),
        ({"seed": -1}, "seed: expected an integer of at least 0"),
        ({"seed": True}, "seed: expected an integer, got True"),
        ({"duration_s": 0}, "duration_s: expected a finite number above 0"),
        ({"duration_s": float("nan")}, "duration_s: expected a finite number"),
    ],
)
def test_what_is_wrong_is_named(change, text):
    with pytest.raises(InvalidInput) as refused:
        scenario_of(DOCUMENT | change).make_overlay()
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize("table", ["overlay", "workload"])
def test_overlay_and_workload_are_needed(table):
    with pytest.raises(InvalidInput, match=f"^{table}: expected a table"):
        scenario_of({name: value for name, value in DOCUMENT.items() if name != table})


def test_a_protocol_for_cycles_takes_them():
    assert not scenario_of(DOCUMENT | {"overlay": GRAPH, "routing": {"protocol": "filter-general"}}).make_overlay().is_tree()


@pytest.mark.parametrize(
    ("content", "text"), [(b"seed = ", "expected TOML"), (b"\xff", "expected UTF-8"), (b"x = 1", "x: unknown")]
)
def test_errors_name_the_file(tmp_path, content, text):
    file = tmp_path / "scenario.toml"
    file.write_bytes(content)
    with pytest.raises(InvalidInput) as refused:
        read_scenario(file)
    assert str(refused.value).startswith(f"{file}: {text}")


def test_kinds_of_workload_are_those_that_can_be_made():
    assert set(KINDS) == set(WORKLOADS)


def test_the_stock_workload_is_seeded_and_within_its_advertisements():
    scenario = scenario_of(DOCUMENT)
    first, second = (make_workload(scenario, scenario.make_overlay()) for _ in range(2))
    assert first.subscribers == second.subscribers
    assert (len(first.publishers), len(first.subscribers)) == (3, 12)
    for one, other in zip(first.publishers, second.publishers, strict=True):
        quotes = list(itertools.islice(one.publications(), 30))
        assert quotes == list(itertools.islice(other.publications(), 30))
        assert all(matches(one.advertisement, quote) for quote in quotes)
        wanted = [each.filter for each in first.subscribers if each.id.startswith(f"{one.id}.")]
        assert all(intersects(one.advertisement, each) for each in wanted)
        # A threshold may be the highest of all quotes, which none exceeds.
        assert any(matches(each, quote) for quote in quotes for each in wanted)
        assert 0 <= one.phase_s < 0.5


# ---- a chain of three, computed by hand

QUOTE = parse_publication("[class,'STOCK'],[x,1]")
CHAIN = {"shape": "chain", "brokers": 3}
HAND = Workload(
    (Publisher("p", "B1", parse_filter("[class,eq,'STOCK'],[x,isPresent,0]"), 2.0, 0.25, lambda: itertools.repeat(QUOTE)),),
    (Subscriber("s", "B3", parse_filter("[class,eq,'STOCK']")),),
)


def by_hand(**costs):
    scenario = scenario_of({"duration_s": 5, "overlay": CHAIN, "workload": WORKLOAD, "costs": costs})
    records = []
    return simulate(scenario, on_record=records.append, workload=HAND), records


def test_counts_on_a_chain_of_three():
    metrics, records = by_hand(link_delay_s=0.01)
    assert metrics.publications == 10
    assert (metrics.useful_arrivals, metrics.deliveries, metrics.pure_forwards) == (10, 10, 20)
    assert metrics.yield_ == pytest.approx(1 / 3)
    assert (metrics.hops_mean, metrics.publication_hops) == (2.0, 20)
    # The advertisement goes to B2 and B3, the subscription back to B2 and B1, all before anything is measured.
    assert (metrics.control_messages_setup, metrics.control_messages, metrics.control_share) == (4, 0, 0.0)
    assert (metrics.refusals, metrics.seed, metrics.duration_s) == (0, 1, 5.0)
    assert [(each.sequence, each.broker, each.subscription) for each in records[:3]] == [
        (0, "B1", None),
        (0, "B2", None),
        (0, "B3", "s"),
    ]


def test_delays_are_links_matching_and_bandwidth():
    metrics, _ = by_hand(
        link_delay_s=0.01,
        matching_delay_base_s=0.002,
        matching_delay_per_subscription_s=0.001,
        output_bandwidth_bytes_per_s=10_000,
    )
    sends_s = (FRAME_BYTES + len(encode_publication(QUOTE))) / 10_000
    expected_s = 3 * 0.01 + 3 * 0.003 + 2 * sends_s
    assert isinstance(metrics.delay_s, Delays)
    for delay_s in (metrics.delay_s.mean, metrics.delay_s.p50, metrics.delay_s.p99, metrics.delay_s.max):
        # Acknowledgements share the uplink, at most one frame ahead.
        assert expected_s - 1e-9 <= delay_s <= expected_s + 3 * FRAME_BYTES / 10_000
    assert metrics.input_utilisation.max == pytest.approx(10 * 0.003 / 5)
    assert metrics.input_utilisation.mean == pytest.approx(10 * 0.003 / 5)
    assert metrics.output_utilisation.max >= 10 * sends_s / 5


def test_nobody_subscribes():
    scenario = scenario_of(DOCUMENT | {"workload": {**WORKLOAD, "subscriptions_per_publisher": 0}})
    metrics = simulate(scenario)
    assert (metrics.publications, metrics.deliveries, metrics.pure_forwards) == (30, 0, 30)
    assert (metrics.yield_, metrics.hops_mean, metrics.delay_s) == (0.0, None, None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_delivers_the_same_whatever_goes_wrong(protocol):
    plain = simulate(scenario_of(DOCUMENT | {"routing": {"protocol": protocol}}))
    faults = {"loss": 0.05, "duplication": 0.05}
    troubled = simulate(scenario_of(DOCUMENT | {"routing": {"protocol": protocol}, "faults": faults}))
    reference = simulate(scenario_of(DOCUMENT))
    assert plain.publications == 30
    assert plain.deliveries == troubled.deliveries == reference.deliveries > 0


@pytest.mark.parametrize("batch", [2, 5, 7])
def test_publications_that_leave_together_arrive_as_those_that_leave_alone(batch):
    records, alone = [], []
    together = simulate(scenario_of(DOCUMENT | {"workload": {**WORKLOAD, "batch": batch}}), on_record=records.append)
    simulate(scenario_of(DOCUMENT | {"duration_s": 10}), on_record=alone.append)
    published = Counter(publisher for publisher, _ in {(each.publisher, each.sequence) for each in records})
    assert together.publications == published.total()
    assert all(count % batch == 0 for count in published.values())
    assert delivered(records) == {each for each in delivered(alone) if each[1] < published[each[0]]}


def delivered(records):
    return {(each.publisher, each.sequence, each.subscription) for each in records if each.subscription is not None}


def test_cuts_and_crashes_without_an_end_end_with_the_publications():
    troubled = simulate(scenario_of(DOCUMENT | {"faults": {"cut_every_s": 2, "crash_every_s": 5}}))
    assert troubled.deliveries == simulate(scenario_of(DOCUMENT)).deliveries


def test_progress_is_told_in_simulated_seconds():
    told = []
    simulate(scenario_of(DOCUMENT), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 5.0
