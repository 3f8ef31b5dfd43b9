"""The page of a plan: overlays with everybody in the same place, loads with units, and who moves."""

import msgspec
import pytest
from report_pages import SCRIPT, Page, check_stands_alone

from overweave.cli.plan_before import before_of
from overweave.errors import InvalidInput
from overweave.pipeline import plan_files
from overweave.pipeline.plan_files import read_plan, write_plan
from overweave.planning.evaluation import BrokerEvaluation, Evaluation, deviation
from overweave.planning.make import make_plan
from overweave.planning.moves.frontier import frontier_of
from overweave.reports import plan as plan_report
from overweave.reports import write_report
from overweave.reports.plan import positions
from overweave.testing.planning import random_problem


@pytest.fixture(scope="module")
def plan():
    problem = random_problem(3, clients=30, fill=0.2, with_today=True, equal_brokers=True)
    before, unknown = before_of(problem)
    assert unknown is None
    made = make_plan(problem)
    return msgspec.structs.replace(made, before=before, frontier=frontier_of(problem, made))


def test_a_page_of_a_plan(plan, tmp_path):
    write_plan(plan, tmp_path / "plan.json")
    assert write_report(tmp_path / "plan.json", tmp_path / "plan.html", None) == "plan"
    page = Page(tmp_path / "plan.html")
    check_stands_alone(page)
    assert page.images.keys() == {
        "overlay-before", "overlay-after", "load-utilisation", "load-rate", "frontier-brokers", "frontier-rate"
    }  # fmt: skip
    for text in ("input, mean (1/s)", "output utilisation before", "input (1/s) after", "evidence (s)", "from broker"):
        assert any(text in each for each in page.texts), text
    moved = next(change for change in plan.changes if change.kind == "client")
    assert {moved.id, moved.before, moved.after} <= set(page.texts)


def test_an_evaluation_is_on_the_page(plan, tmp_path):
    brokers = {
        id: BrokerEvaluation(
            input_hz=load.input_hz,
            input_hz_replayed=load.input_hz * 1.25,
            output_utilisation=load.output_utilisation,
            output_utilisation_replayed=0.4321,
        )
        for id, load in plan.load.items()
    }
    found = Evaluation(
        on="profiled", publications=40, publications_given=100, publishers_without=0, brokers=brokers,
        input_deviation_replayed=deviation(brokers, "replayed"), input_deviation_simulated=None, output_utilisation_max=0.4321,
        overloaded=0, not_simulated="too large",
    )  # fmt: skip
    write_plan(msgspec.structs.replace(plan, evaluation=found), tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").evaluation == found
    write_report(tmp_path / "plan.json", tmp_path / "plan.html", None)
    page = Page(tmp_path / "plan.html")
    check_stands_alone(page)
    for text in ("Prediction and truth", "input replayed (1/s)", "0.4321", "Not simulated: too large.", "100 given"):
        assert any(text in each for each in page.texts), text
    assert not any("input simulated" in each for each in page.texts)


def test_names_do_not_become_markup_and_a_plan_without_before_has_a_page(plan, tmp_path):
    odd = msgspec.structs.replace(plan, before=None, algorithm=SCRIPT)
    write_plan(odd, tmp_path / "plan.json")
    write_report(tmp_path / "plan.json", tmp_path / "plan.html", None)
    page = Page(tmp_path / "plan.html")
    check_stands_alone(page)
    assert "overlay-before" not in page.images


def test_a_broker_is_at_the_same_place_before_and_after(plan, monkeypatch):
    seen = []
    monkeypatch.setattr(plan_report, "_overlay", lambda name, caption, places, links, load: seen.append((name, places, links)))
    plan_report.overlays(plan)
    (_, before, old), (_, after, new) = seen
    assert before == after
    assert before.keys() == plan.before.load.keys() | set(plan.brokers)
    assert len(set(before.values())) == len(before)
    assert (list(old), list(new)) == (list(plan.before.links), list(plan.links))


def test_positions_of_trees_do_not_meet():
    for count in (1, 2, 7, 40):
        links = [(f"B{i}", f"B{(i - 1) // 3}") for i in range(1, count)]
        places = positions([f"B{i}" for i in range(count)], links)
        assert len(set(places.values())) == count
        assert all(places[child][1] == places[parent][1] - 1 for child, parent in links)


def test_many_clients_are_beside_the_plan(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_files, "CLIENTS_MAX", 10)
    files = write_plan(plan, tmp_path / "plan.json")
    assert [file.name for file in files] == ["plan.placements.parquet", "plan.changes.parquet", "plan.json"]
    assert read_plan(tmp_path / "plan.json").encode() == plan.encode()
    assert msgspec.json.decode((tmp_path / "plan.json").read_bytes())["clients"] == {}
    assert msgspec.json.decode((tmp_path / "plan.json").read_bytes())["changes"] == []
    (tmp_path / "plan.changes.parquet").rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match=r"plan\.changes\.parquet: expected the changes of plan\.json"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "elsewhere").rename(tmp_path / "plan.changes.parquet")
    (tmp_path / "plan.placements.parquet").unlink()
    with pytest.raises(InvalidInput, match=r"plan\.placements\.parquet: expected the placements of plan\.json"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize(("text", "said"), [("{}", "plan: "), ("nonsense", "plan: "), (None, "expected a directory")])
def test_what_is_no_plan_is_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        write_report(tmp_path / "plan.json", tmp_path / "plan.html", None)
