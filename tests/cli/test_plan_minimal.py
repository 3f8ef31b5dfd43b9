"""``overweave plan`` by MINIMAL: its options, filters as boxes, brokers with a cost, and what is wrong with them."""

import json

import planned
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.pipeline import session

MINIMAL = ("minimal-gli", "minimal-gi", "minimal-gig", "minimal-random", "minimal-baldoni")


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    monkeypatch.setattr(session, "session", None)


def with_column(path, name, values):
    file = path / "part.parquet"
    table = pq.read_table(file)
    kept = table.drop_columns([name]) if name in table.column_names else table
    pq.write_table(kept.append_column(name, pa.array(values)), file)


@pytest.fixture
def source(tmp_path):
    found = planned.profile(tmp_path / "profile")
    with_column(
        found / "publisher_profiles", "advertisement", ["[class,eq,'A'],[x,>=,0],[x,<=,9]", "[class,eq,'B'],[x,>=,0],[x,<=,9]"]
    )
    with_column(found / "subscription_lifetimes", "filter", [f"[class,eq,'{'AB'[i % 2]}'],[x,<=,{9 - i}]" for i in range(8)])
    return found


@pytest.mark.parametrize("name", MINIMAL)
@pytest.mark.parametrize("similarity", ["profiles", "boxes"])
def test_plans_by_minimal(run, source, name, similarity):
    status, out, _ = run("plan", source, "--algorithm", name, "--similarity", similarity, "--headroom", 0, "--json")
    answer = json.loads(out)
    # Seven clients and two publishers at 100 bytes/s each: all of them fit a broker of 1,000.
    assert (status, answer["after"]["brokers"], answer["after"]["overloaded"]) == (0, 1, 0)
    assert answer["after"]["cost"] is None
    # In 0.45 of a broker there is room for four of the nine.
    status, out, _ = run(
        "plan", source, "--algorithm", name, "--similarity", similarity, "--headroom", 0, "--lcf", 0.45, "--json"
    )
    assert (status, json.loads(out)["after"]["brokers"]) == (0, 3)


def test_a_table_of_brokers_may_say_what_they_cost(run, source):
    with_column(source / "brokers", "output_bandwidth_bytes_per_s", [4000.0, 1000.0, 1000.0, 1000.0])
    arguments = ("plan", source, "--algorithm", "minimal-gig", "--headroom", 0, "--json", "--out", source / "plan.json")
    assert run(*arguments)[0] == 0
    assert json.loads((source / "plan.json").read_bytes())["brokers"] == ["B1"]
    with_column(source / "brokers", "cost", [9.0, 1.5, 1.0, 1.0])
    status, out, _ = run(*arguments)
    assert (status, json.loads(out)["after"]["cost"]) == (0, 1.0)
    assert json.loads((source / "plan.json").read_bytes())["brokers"] in (["B3"], ["B4"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--lcf", "1.5"], "--lcf: expected a share above 0 and up to 1, found 1.5"),
        (["--oversize", "split"], "--oversize: expected deploy or error, found 'split'"),
        (["--similarity", "names"], "--similarity: expected profiles or boxes, found 'names'"),
        (["--lcf", "0.1"], "brokers left has room for what it sends and receives"),
    ],
)
def test_what_is_impossible_is_named(run, source, arguments, text):
    status, out, err = run("plan", source, "--algorithm", "minimal-gig", *arguments)
    assert (status, out) == (2, "")
    assert text in err


def test_oversize_clients_get_a_broker_of_their_own(run, source):
    """The clients of p2 receive half a broker each, which is more than MINIMAL gives them."""
    with_column(source / "publisher_profiles", "bytes_per_s", [10.0, 500.0])
    arguments = ("plan", source, "--algorithm", "minimal-gli", "--headroom", 0, "--lcf", 0.4, "--out", source / "plan.json")
    status, _, err = run(*arguments)
    assert (status, "brokers left has room" in err) == (2, True)
    planned.brokers(source / "brokers", count=8)
    assert run(*arguments, "--oversize", "deploy")[0] == 0
    plan = json.loads((source / "plan.json").read_bytes())
    alone = [plan["clients"][f"c{i}"] for i in (1, 3, 5)] + [plan["publishers"]["p2"]]
    assert len(set(alone)) == 4
    assert not set(alone) & {plan["clients"][f"c{i}"] for i in (0, 2, 4, 6, 7)}


def test_filters_that_boxes_cannot_be_made_of_are_named(run, source):
    def said(*arguments):
        status, _, err = run("plan", source, "--algorithm", "minimal-gig", "--similarity", "boxes", *arguments)
        assert status == 2
        return err

    with_column(source / "subscription_lifetimes", "filter", ["[x,<"] * 8)
    assert "subscription_lifetimes: column 'filter': column 5: expected" in said()
    with_column(source / "subscription_lifetimes", "filter", pa.array([None] * 8, pa.string()))
    assert "column 'filter': expected a value, found null" in said()
    planned.put(source / "publisher_profiles", publisher=["p1"], publications=[64], rate_hz=[1.0], bytes_per_s=[1.0])
    with_column(source / "profiles", "publisher", ["p1"] * 7)
    assert "publisher_profiles: expected a column 'advertisement'" in said()
