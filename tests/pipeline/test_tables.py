"""Tables are read as they should be, or refused in one line."""

import pytest

from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline import session
from overweave.pipeline.schemas import DELIVERIES, TABLES
from overweave.pipeline.tables import read_table, write_table


def test_deliveries_have_the_columns_of_the_interfaces():
    assert DELIVERIES.fieldNames() == [
        "run", "publisher", "sequence", "broker", "subscription", "client", "hops", "published_at_s", "arrived_at_s", "bytes",
    ]  # fmt: skip


def test_a_trace_of_the_simulator_is_a_table(spark, tmp_path):
    from overweave.drivers.sim.runner import simulate
    from overweave.drivers.sim.scenario import scenario_of
    from overweave.drivers.trace import TraceWriter

    overlay = {"shape": "chain", "brokers": 3}
    workload = {"publishers": 2, "subscriptions_per_publisher": 3}
    with TraceWriter(tmp_path, "7") as on_record:
        metrics = simulate(scenario_of({"duration_s": 5, "overlay": overlay, "workload": workload}), on_record=on_record, run="7")
    table = read_table(spark, tmp_path, "deliveries")
    assert table.columns == DELIVERIES.fieldNames()
    assert table.where("subscription is not null").count() == metrics.client_deliveries
    assert [row.run for row in table.select("run").distinct().collect()] == ["7"]


def test_small_tables_may_be_text(spark, tmp_path):
    file = tmp_path / "subscriptions.csv"
    file.write_text('subscription,client,broker,filter\ns1,c1,,"[x,>,1],[y,<,2]"\n')
    (row,) = read_table(spark, file, "subscriptions").collect()
    assert (row.subscription, row.broker, row.filter) == ("s1", None, "[x,>,1],[y,<,2]")
    lines = tmp_path / "publications.jsonl"
    lines.write_text('{"publisher": "p", "sequence": 3, "publication": "[x,1]"}\n')
    assert read_table(spark, lines, "publications").collect()[0].sequence == 3


def test_what_was_written_comes_back(spark, tmp_path):
    rows = [("p", 1, "[x,1]"), ("p", 2, "[x,2]")]
    write_table(spark.createDataFrame(rows, TABLES["publications"]), tmp_path / "t")
    assert sorted(map(tuple, read_table(spark, tmp_path / "t", "publications").collect())) == rows


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "expected a file or directory, found nothing"),
        (lambda path: path.mkdir(), "expected a directory with Parquet files, found none"),
        (lambda path: (path.mkdir(), (path / "a.parquet").write_bytes(b"PAR1nonsense")), "expected the table 'publications'"),
    ],
)
def test_what_is_no_table_is_refused(spark, tmp_path, make, text):
    path = tmp_path / "t"
    make(path)
    with pytest.raises(InvalidInput) as refused:
        read_table(spark, path, "publications")
    assert text in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_columns_are_named(spark, tmp_path):
    spark.createDataFrame([("p", 1)], "publisher string, sequence long").write.parquet(str(tmp_path / "t"))
    with pytest.raises(InvalidInput, match=r"expected a column 'publication', found publisher, sequence"):
        read_table(spark, tmp_path / "t", "publications")
    spark.createDataFrame([("p", "x", "y")], "publisher string, sequence string, publication string").write.parquet(
        str(tmp_path / "u")
    )
    with pytest.raises(InvalidInput, match=r"column 'sequence': expected bigint, found string"):
        read_table(spark, tmp_path / "u", "publications")


def test_java_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OverweaveError, match="Java 17"):
        session.check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(OverweaveError, match="cannot run on this Java"):
        session.check_java()
