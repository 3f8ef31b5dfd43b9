"""Reading sweeps: the grid, its seeds and figures, and what is refused before anything runs."""

import itertools
from pathlib import Path

import pytest

from overweave.drivers.sim.scenario import scenario_of
from overweave.errors import InvalidInput
from overweave.pipeline.sweeps import EVALUATORS
from overweave.pipeline.sweeps.base import columns_of
from overweave.pipeline.sweeps.file import FigureSpec, read_sweep, sweep_of

ROOT = Path(__file__).parents[2]
DOCUMENT = {
    "duration_s": 2,
    "overlay": {"shape": "chain", "brokers": [2, 3]},
    "routing": {"protocol": ["filter", "flooding"]},
    "workload": {"publishers": 1, "subscriptions_per_publisher": [1, 2]},
}
GRAPH = {"shape": "random-graph", "brokers": 8, "degree": 3}


def test_the_grid_is_the_product_of_all_lists():
    sweep = sweep_of(DOCUMENT | {"sweep": {"repetitions": 2}, "seed": 5})
    columns = ("overlay_brokers", "routing_protocol", "workload_subscriptions_per_publisher", "seed")
    expected = list(itertools.product([2, 3], ["filter", "flooding"], [1, 2], [5, 6]))
    assert [tuple(task.parameters[name] for name in columns) for task in sweep.tasks] == expected
    assert len({task.key for task in sweep.tasks}) == 16
    for task in sweep.tasks:
        scenario = scenario_of(task.document)
        assert (scenario.overlay.options["brokers"], scenario.seed) == (
            task.parameters["overlay_brokers"],
            task.parameters["seed"],
        )


def test_tables_may_be_listed_with_options_of_their_own():
    overlays = [{"shape": "chain", "brokers": [2, 3]}, {"shape": "balanced", "brokers": 7, "degree": 3}]
    sweep = sweep_of(
        DOCUMENT | {"overlay": overlays, "routing": {}, "workload": {"publishers": 1, "subscriptions_per_publisher": 1}}
    )
    names = ("overlay_shape", "overlay_brokers", "overlay_degree")
    found = [tuple(task.parameters.get(name) for name in names) for task in sweep.tasks]
    assert found == [("chain", 2, None), ("chain", 3, None), ("balanced", 7, 3)]
    # The degree is not there for all, so it is no axis to draw over.
    assert sweep.figures[0] == FigureSpec(x="overlay_brokers", y="delay_s_mean", series=("overlay_shape", "overlay_degree"))


def test_single_brokers_and_links_are_in_every_scenario_and_their_lists_are_axes():
    own = {
        "broker": [{"id": "B1", "matching_delay_base_s": [0.001, 0.002]}, {"id": "B2", "capacity_hz": 5}],
        "link": [{"between": ["B1", "B2"], "delay_s": [0.01, 0.02]}],
    }
    sweep = sweep_of(DOCUMENT | own | {"overlay": {"shape": "chain", "brokers": 2}})
    assert len(sweep.tasks) == 16
    task = sweep.tasks[-1]
    assert [task.parameters[name] for name in ("broker_0_matching_delay_base_s", "link_0_between", "link_0_delay_s")] == [
        0.002, "B1, B2", 0.02,
    ]  # fmt: skip
    scenario = scenario_of(task.document)
    assert scenario.own_costs()["B1"].matching_delay_base_s == 0.002
    assert scenario.make_overlay().broker("B2").capacity_hz == 5
    assert scenario.make_overlay().link("B1", "B2").delay_s == 0.02


def test_what_is_wrong_in_an_array_is_named():
    for own, text in (
        ({"broker": [{"id": "B9"}]}, r"broker\[0\]\.id: unknown 'B9'"),
        ({"link": [{"between": ["B1", "B2"], "delay_s": []}]}, r"link\[0\]\.delay_s: expected at least one value"),
        ({"link": 3}, r"link: expected tables \[\[link\]\], got 3"),
    ):
        with pytest.raises(InvalidInput, match=f"^{text}"):
            sweep_of(DOCUMENT | own)


def test_a_key_is_that_of_the_values_alone():
    first, second = (sweep_of(document) for document in (DOCUMENT, dict(reversed(DOCUMENT.items()))))
    assert {task.key for task in first.tasks} == {task.key for task in second.tasks}
    longer = sweep_of(DOCUMENT | {"overlay": {"shape": "chain", "brokers": [2, 3, 4]}})
    assert {task.key for task in first.tasks} < {task.key for task in longer.tasks}
    assert not {task.key for task in first.tasks} & {
        task.key for task in sweep_of(DOCUMENT | {"sweep": {"kind": "replay"}}).tasks
    }


def test_whole_numbers_among_others_are_numbers():
    sweep = sweep_of(DOCUMENT | {"duration_s": [1, 2.5]})
    assert (sweep.parameters["duration_s"], sweep.parameters["overlay_brokers"], sweep.parameters["seed"]) == (float, int, int)
    assert "duration_s" not in sweep.measures
    assert "duration_s" in sweep_of({name: value for name, value in DOCUMENT.items() if name != "duration_s"}).measures


ANALYSIS = {"overlay": DOCUMENT["overlay"], "workload": {"subscriptions": 100}, "sweep": {"kind": "analysis"}}


@pytest.mark.parametrize("kind", EVALUATORS)
def test_what_is_drawn_without_a_wish_is_measured(kind):
    assert EVALUATORS[kind].drawn
    assert set(EVALUATORS[kind].drawn) <= set(columns_of(EVALUATORS[kind].measures))


@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT | {"sweep": {"kind": "replay", "repetitions": 5}}, ANALYSIS])
def test_without_a_wish_measures_are_drawn_over_the_number_with_the_most_values(document):
    sweep = sweep_of(document)
    assert [figure.y for figure in sweep.figures] == list(sweep.evaluator.drawn)
    assert {figure.x for figure in sweep.figures} == {"overlay_brokers"}


def test_the_example_is_good():
    sweep = read_sweep(ROOT / "examples" / "sweep.toml")
    assert (len(sweep.tasks), [figure.y for figure in sweep.figures]) == (24, ["publication_hops", "delay_s_mean"])


def figure(**change):
    usual = {"x": "overlay_brokers", "y": "yield", "series": ["routing_protocol", "workload_subscriptions_per_publisher"]}
    return {"sweep": {"figures": [usual | change]}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"swep": {}}, "swep: unknown key, the nearest known one is 'sweep'"),
        ({"sweep": 3}, "sweep: expected a table [sweep], got 3"),
        ({"sweep": {"knd": "replay"}}, "sweep.knd: unknown key, the nearest known one is 'kind'"),
        ({"sweep": {"kind": "simulaton"}}, "sweep.kind: unknown 'simulaton', the nearest known one is 'simulation'"),
        ({"sweep": {"repetitions": 0}}, "sweep.repetitions: expected an integer of at least 1, got 0"),
        ({"sweep": {"repetitions": [1, 2]}}, "sweep.repetitions: expected an integer, got [1, 2]"),
        ({"sweep": {"repetitions": 2}, "seed": [1, 2]}, "seed: expected one seed with sweep.repetitions, or a list"),
        ({"sweep": {"repetitions": 2}, "seed": "one"}, "seed: expected an integer, got 'one'"),
        ({"sweep": {"figures": 3}}, "sweep.figures: expected tables [[sweep.figures]], got 3"),
        (figure(z="yield"), "sweep.figures[0].z: unknown key"),
        (figure(y="yeld"), "sweep.figures[0].y: unknown 'yeld', the nearest known one is 'yield'"),
        (figure(y=["yield", "overlay_brokers"]), "sweep.figures[0].y: unknown 'overlay_brokers'"),
        (
            figure(x="overlay.brokers"),
            "sweep.figures[0].x: unknown 'overlay.brokers', the nearest known one is 'overlay_brokers'",
        ),
        (figure(series="protocol"), "sweep.figures[0].series: unknown 'protocol', the nearest known one is 'routing_protocol'"),
        (figure(series="routing_protocol"), "sweep.figures[0].series: expected 'workload_subscriptions_per_publisher' too"),
        (figure(x_scale="ln"), "sweep.figures[0].x_scale: unknown 'ln', the nearest known one is 'linear'"),
        (
            figure(x="routing_protocol", series=["overlay_brokers", "workload_subscriptions_per_publisher"], x_scale="log"),
            "sweep.figures[0].x_scale: expected 'linear', as routing_protocol is 'filter'",
        ),
        ({"overlay": {"shape": "chain", "brokers": []}}, "overlay.brokers: expected at least one value, got []"),
        ({"overlay": {"shape": "chain", "brokers": [2, 2]}}, "expected every scenario once, found one twice: "),
        ({"overlay": {"shape": "chain", "brokers": [2, 0]}}, "overlay.brokers: expected an integer of at least 1, got 0"),
        ({"overlay": {"shape": "chain", "brokrs": [2, 3]}}, "overlay.brokrs: unknown key, the nearest known one is 'brokers'"),
        ({"overlay": {"shape": ["chain", "chian"], "brokers": 2}}, "overlay.shape: unknown 'chian'"),
        ({"overlay": [{"shape": "chain", "brokers": 3}, GRAPH]}, "routing.protocol: expected one for overlays with cycles"),
        ({"duration_s": list(range(1, 200_000))}, "expected a grid of at most 1,000,000 scenarios, found 1,599,992"),
        ({"seed": 1 << 70}, "expected integers of 64 bits"),
        ({"seed": 1.5}, "seed: expected an integer, got 1.5"),
        ({"faults": {"loss": [0.0, "0.1"]}}, "faults.loss: expected a number, got '0.1'"),
        (
            {"sweep": {"kind": "replay"}, "faults": {}},
            "faults: expected none, as this kind, replay, knows seed, duration_s, overlay, routing, workload only",
        ),
        (
            {"sweep": {"kind": "replay"}, "routing": {"protocol": ["filter", "identity"]}},
            "routing.protocol: expected one of flooding, filter, simple for a replay, got 'identity'",
        ),
        ({"sweep": {"kind": "replay"}, "overlay": GRAPH}, "overlay.shape: expected a tree for a replay"),
    ],
)
def test_what_is_wrong_is_named(change, text):
    with pytest.raises(InvalidInput) as refused:
        sweep_of(DOCUMENT | change)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"routing": {}}, "routing: expected none, as this kind, analysis, knows seed, overlay, workload only"),
        ({"overlay": {"brokers": 3}}, "overlay.shape: expected one of chain"),
        ({"overlay": GRAPH}, "overlay.shape: expected a tree for an analysis"),
        ({"overlay": {"shape": "chain", "brokers": [0]}}, "overlay.brokers: expected an integer of at least 1, got 0"),
        ({"seed": "x"}, "seed: expected an integer, got 'x'"),
        ({"workload": {}}, "workload.subscriptions: expected a value, which is missing"),
        ({"workload": {"subscriptions": -1}}, "workload.subscriptions: expected a number from 0 on, got -1"),
        ({"workload": {"subscriptions": 1, "classes": 0}}, "workload.classes: expected an integer of at least 1, got 0"),
        ({"workload": {"subscriptions": 1, "lifetime_s": 0}}, "workload.lifetime_s: expected a time above 0, got 0"),
        (
            {"workload": {"subscriptions": 1, "lifetime": 0}},
            "workload.lifetime: unknown key, the nearest known one is 'lifetime_s'",
        ),
    ],
)
def test_what_is_wrong_with_an_analysis_is_named(change, text):
    with pytest.raises(InvalidInput) as refused:
        sweep_of(ANALYSIS | change)
    assert str(refused.value).startswith(text)


def test_errors_name_the_file(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text("[sweep]\nkind = 3\n")
    with pytest.raises(InvalidInput) as refused:
        read_sweep(file)
    assert str(refused.value) == f"{file}: sweep.kind: expected a text, got 3"
