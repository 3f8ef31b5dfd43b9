"""From a workload to a planning problem: profiles are what plain matching says."""

import numpy as np
import pytest

from overweave.errors import InvalidInput
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.pipeline.plan_brokers import Network
from overweave.pipeline.plan_tables import kind_of
from overweave.pipeline.planning import read_problem
from overweave.pipeline.schemas import PUBLICATIONS, PUBLISHERS, SUBSCRIPTIONS
from overweave.pipeline.spark_errors import translate_errors
from overweave.pipeline.tables import write_table
from overweave.pipeline.workload_profile import profile_workload
from overweave.planning.problem import Goals, Pool

BITS = 64
FILTERS = {"s1": "[x,>,3]", "s2": "[x,<,9],[y,=,1]", "s3": "[x,>,1000]", "s4": "[y,=,0]"}
CLIENTS = {"s1": "c1", "s2": "c1", "s3": "c2", "s4": "p2"}
#: p1 sends more than the window holds, p2 less, p3 nothing.
SENT = {"p1": range(100), "p2": range(5, 25)}


def content(sequence):
    # Nobody wants the last ones, and windows end there all the same.
    return "[x,0],[y,2]" if sequence >= 90 else f"[x,{sequence % 11}],[y,{sequence % 2}]"


@pytest.fixture(scope="module")
def workload(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("workload")
    publications = [(id, i, content(i)) for id, numbers in SENT.items() for i in numbers]
    publishers = [(f"p{i}", "B1", "[x,>,0]", 2.0, 50) for i in (1, 2, 3)]
    subscriptions = [(id, CLIENTS[id], "B2", text) for id, text in FILTERS.items()]
    write_table(spark.createDataFrame(publications, PUBLICATIONS), directory / "publications")
    write_table(spark.createDataFrame(publishers, PUBLISHERS), directory / "publishers")
    write_table(spark.createDataFrame(subscriptions, SUBSCRIPTIONS), directory / "subscriptions")
    return directory


def test_a_workload_is_profiled_as_a_trace_would_be(spark, workload, tmp_path):
    assert kind_of(workload) == "workload"
    profile_workload(spark, workload, tmp_path, BITS)
    problem = read_problem(tmp_path, Network(Pool.equal(3, 1e6), (("B1", "B2"),)), Goals())
    publishers, units = problem.publishers, problem.units
    assert dict(zip(publishers.ids, publishers.window.tolist(), strict=True)) == {"p1": 64, "p2": 20, "p3": 0}
    # A publisher that is a client's publishing side.
    sides = {
        id: units.ids[unit] if unit >= 0 else None for id, unit in zip(publishers.ids, publishers.unit.tolist(), strict=True)
    }
    assert sides == {"p1": None, "p2": "p2", "p3": None}
    for number, client in enumerate(units.ids):
        filters = [parse_filter(FILTERS[id]) for id, owner in CLIENTS.items() if owner == client]
        rows = range(units.row_start[number], units.row_start[number + 1])
        found = {publishers.ids[problem.vectors.publisher[units.rows[row]]]: int(units.row_deliveries[row]) for row in rows}
        ones = {
            publishers.ids[problem.vectors.publisher[units.rows[row]]]: int(problem.vectors.ones[units.rows[row]]) for row in rows
        }
        expected, united = {}, {}
        for id, numbers in SENT.items():
            hits = [sum(matches(each, parse_publication(content(i))) for each in filters) for i in list(numbers)[-BITS:]]
            if sum(hits):
                # A broker sends a client a publication once, however many of its subscriptions match.
                expected[id] = united[id] = sum(hit > 0 for hit in hits)
        assert (found, ones) == (expected, united), client
    assert problem.pool.ids[problem.today.units[0]] == "B2"
    assert np.array_equal(units.filters, [2, 1, 1])


def test_a_publication_of_nobody_is_named(spark, workload, tmp_path):
    (tmp_path / "w").mkdir()
    for name in ("publications", "subscriptions"):
        (tmp_path / "w" / name).symlink_to(workload / name)
    write_table(spark.createDataFrame([("p1", None, "[x,>,0]", 2.0, 50)], PUBLISHERS), tmp_path / "w" / "publishers")
    with (
        pytest.raises(InvalidInput, match="publications: publisher 'p2': expected one of the table publishers"),
        translate_errors(),
    ):
        profile_workload(spark, tmp_path / "w", tmp_path / "out", BITS)
