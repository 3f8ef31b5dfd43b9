"""A plan under publications: replay and simulator find what walking along the links by hand finds, and what was predicted."""

import itertools
import random

import pytest

from overweave.drivers.sim.plan_run import PlannedNetwork, PlannedPublisher, run_plan
from overweave.errors import InvalidInput
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import path_between
from overweave.pipeline.plan_brokers import Network
from overweave.pipeline.plan_replay import Truth, evaluate
from overweave.pipeline.plan_simulation import advertisements_of
from overweave.pipeline.planning import read_advertisements, read_problem, read_windows
from overweave.pipeline.schemas import PUBLICATIONS, PUBLISHERS, SUBSCRIPTIONS
from overweave.pipeline.tables import write_table
from overweave.pipeline.workload_profile import profile_workload
from overweave.planning.make import make_plan
from overweave.planning.problem import Goals, Pool

BITS, BROKERS = 64, 6
#: Publications, rate and bytes: some more than a window holds, some less, none alike. "c1" is a client, too, "p4" is silent.
SENT = {"p1": (100, 2.0, 50), "p2": (40, 0.5, 80), "p3": (64, 1.0, 10), "c1": (70, 3.0, 20), "p4": (0, 0.0, 5)}


def content(publisher, sequence):
    # What left the window long ago was wanted by all: whoever evaluates it finds more than was predicted.
    x = 9 if sequence < SENT[publisher][0] - BITS else (sequence * 7 + len(publisher) * 3) % 10
    return f"[of,'{publisher}'],[x,{x}]"


def subscriptions(draw):
    found = []
    for client in range(1, 13):
        for number in range(draw.randint(1, 3)):
            of = draw.choice([id for id, (count, _, _) in SENT.items() if count])
            text = f"[of,eq,'{of}'],[x,>,{draw.randint(-1, 8)}]" if draw.random() < 0.8 else f"[x,<,{draw.randint(1, 5)}]"
            found.append((f"c{client}.{number}", f"c{client}", None, text))
    return found


@pytest.fixture(scope="module")
def workload(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("workload")
    sent = [(id, i, content(id, i)) for id, (count, _, _) in SENT.items() for i in range(count)]
    publishers = [(id, None, f"[of,eq,'{id}'],[x,isPresent,0]", rate, size) for id, (_, rate, size) in SENT.items()]
    rows = {"publications": (sent, PUBLICATIONS), "publishers": (publishers, PUBLISHERS)}
    rows["subscriptions"] = (subscriptions(random.Random(4)), SUBSCRIPTIONS)
    for name, (values, schema) in rows.items():
        write_table(spark.createDataFrame(values, schema), directory / name)
    return directory


@pytest.fixture(scope="module")
def profiled(spark, workload, tmp_path_factory):
    directory = tmp_path_factory.mktemp("profile")
    profile_workload(spark, workload, directory, BITS)
    problem = read_problem(directory, Network(Pool.equal(BROKERS, 1e5)), Goals())
    # All brokers and everybody at random: links carry something.
    return directory, problem, make_plan(problem, "automatic", seed=2)


def by_hand(plan, publications):
    """The rates of arrivals and of bytes out, a publication counting as its share of what is evaluated of its publisher."""
    overlay = Overlay(plan.brokers, plan.links)
    wanted = [(client, parse_filter(text)) for _, client, _, text in subscriptions(random.Random(4))]
    arrived, left = dict.fromkeys(plan.brokers, 0.0), dict.fromkeys(plan.brokers, 0.0)
    for id, texts in publications.items():
        _, rate, size = SENT[id]
        for text in texts:
            publication, hz = parse_publication(text), rate / len(texts)
            clients = {client for client, filter in wanted if matches(filter, publication)}
            home = plan.publishers[id]
            links = set()
            for client in clients:
                path = path_between(overlay, home, plan.clients[client])
                links |= set(itertools.pairwise(path))
                left[plan.clients[client]] += hz * size
            for broker in {home, *(end for _, end in links)}:
                arrived[broker] += hz
            for start, _ in links:
                left[start] += hz * size
    return arrived, left


def truth_of(workload, profile, by=("replay", "simulator"), **changed):
    fields = {"subscriptions": workload / "subscriptions", "publications": workload / "publications", "by": by}
    return Truth(**fields | {"windows": read_windows(profile), "advertisements": read_advertisements(workload)} | changed)


def test_on_the_profiled_publications_prediction_is_truth(spark, workload, profiled, tmp_path):
    directory, problem, plan = profiled
    found = evaluate(spark, plan, problem, truth_of(workload, directory), tmp_path)
    window = {id: [content(id, i) for i in range(max(0, n - BITS), n)] for id, (n, _, _) in SENT.items() if n}
    arrived, left = by_hand(plan, window)
    assert (found.on, found.publications, found.publications_given) == ("profiled", sum(map(len, window.values())), 274)
    assert found.publishers_without == 0
    for id, each in found.brokers.items():
        for value in (each.input_hz, each.input_hz_replayed, each.input_hz_simulated):
            assert value == pytest.approx(arrived[id])
        for value in (each.output_utilisation, each.output_utilisation_replayed, each.output_utilisation_simulated):
            assert value == pytest.approx(left[id] / 1e5)
        assert each.uplink_busy_simulated > each.output_utilisation
    assert found.input_deviation_replayed == pytest.approx(0, abs=1e-9)
    assert found.input_deviation_simulated == pytest.approx(0, abs=1e-9)
    assert found.output_utilisation_max == pytest.approx(max(left.values()) / 1e5)
    assert (found.overloaded, found.not_simulated) == (0, None)


def test_all_publications_where_nobody_knows_the_windows(spark, workload, profiled, tmp_path):
    directory, problem, plan = profiled
    found = evaluate(spark, plan, problem, truth_of(workload, directory, ["replay"], windows=None), tmp_path)
    arrived, _ = by_hand(plan, {id: [content(id, i) for i in range(n)] for id, (n, _, _) in SENT.items() if n})
    assert (found.on, found.publications) == ("all", 274)
    for id, each in found.brokers.items():
        assert each.input_hz_replayed == pytest.approx(arrived[id])
        assert each.input_hz_simulated is None
    assert found.input_deviation_replayed > 0.01
    assert "was not asked for" in found.not_simulated


def test_what_is_too_large_is_not_simulated(spark, workload, profiled, tmp_path, monkeypatch):
    directory, problem, plan = profiled
    monkeypatch.setattr("overweave.pipeline.plan_replay.SIMULATED_MESSAGES_MAX", 100)
    found = evaluate(spark, plan, problem, truth_of(workload, directory, None), tmp_path)
    assert "messages are more than 100" in found.not_simulated
    monkeypatch.setattr("overweave.pipeline.plan_replay.SIMULATED_BROKERS_MAX", 2)
    found = evaluate(spark, plan, problem, truth_of(workload, directory, None), tmp_path)
    assert "6 brokers are more than 2" in found.not_simulated


def test_publications_of_strangers_are_refused(spark, workload, profiled, tmp_path):
    directory, problem, plan = profiled
    strange = spark.createDataFrame([("p9", 1, "[x,1]")], PUBLICATIONS)
    write_table(strange, tmp_path / "strange")
    with pytest.raises(InvalidInput, match=r"publisher 'p9': expected one that the plan places"):
        evaluate(spark, plan, problem, truth_of(workload, directory, publications=tmp_path / "strange"), tmp_path)


def test_advertisements_cover_what_they_are_made_of():
    publications = [Publication({"s": text, "n": number}) for text, number in (("a", 1), ("a", 2.5))]
    publications += [Publication({"s": "b"}), Publication({"s": 3}), Publication({"t": "x"}), Publication({"t": "y"})]
    made = advertisements_of(publications)
    assert sorted(map(str, made)) == [
        "[n,isPresent,0],[s,eq,'a']",
        "[s,eq,'b']",
        "[s,isPresent,0]",
        "[t,isPresent,'']",
    ]
    assert all(any(matches(each, publication) for each in made) for publication in publications)


def test_a_plan_that_is_wrong_is_noticed():
    """A publisher that advertises something else: the brokers refuse what it publishes."""
    publisher = PlannedPublisher(
        id="p",
        rate_hz=1.0,
        bytes=1.0,
        advertisements=(parse_filter("[y,isPresent,0]"),),
        publications=[Publication({"x": 1})],
    )
    network = PlannedNetwork(
        overlay=Overlay(["B1"]), costs={}, places={"p": "B1", "c": "B1"}, subscriptions=[("s", "c", parse_filter("[x,>,0]"))],
        publishers=[publisher],
    )  # fmt: skip
    with pytest.raises(Exception, match=r"rejected|deliveries are wrong"):
        run_plan(network)
