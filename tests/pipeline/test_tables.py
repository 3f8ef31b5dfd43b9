"""Tables are read as they should be, or refused in one line."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.errors import InvalidInput
from overweave.pipeline import good_rows
from overweave.pipeline.quarantine import read_with_quarantine
from overweave.pipeline.schemas import DELIVERIES, EARLIER_NAMES, REJECTED, TABLES
from overweave.pipeline.spark_errors import translate_errors
from overweave.pipeline.tables import read_table, write_table


def test_deliveries_have_the_columns_of_the_interfaces():
    assert DELIVERIES.fieldNames() == [
        "run", "publisher", "sequence", "broker", "subscription", "client", "hops", "published_at_s", "arrived_at_s", "bytes",
        "previous_hop",
    ]  # fmt: skip


def test_a_table_name_has_one_schema():
    shapes = [tuple((field.name, field.dataType, field.nullable) for field in schema.fields) for schema in TABLES.values()]
    assert len(set(shapes)) == len(shapes)
    assert set(EARLIER_NAMES) < set(TABLES)


def test_a_trace_of_the_simulator_is_a_table(spark, tmp_path):
    from overweave.drivers.sim.runner import simulate
    from overweave.drivers.sim.scenario import scenario_of
    from overweave.drivers.tracing.files import TraceWriter

    overlay = {"shape": "chain", "brokers": 3}
    workload = {"publishers": 2, "subscriptions_per_publisher": 3}
    with TraceWriter(tmp_path, "7") as on_record:
        metrics = simulate(scenario_of({"duration_s": 5, "overlay": overlay, "workload": workload}), on_record=on_record, run="7")
    table = read_table(spark, tmp_path, "deliveries")
    assert table.columns == DELIVERIES.fieldNames()
    assert table.where("subscription is not null").count() == metrics.deliveries
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
        (lambda path: (path.mkdir(), (path / ".hidden.parquet").touch()), "expected a directory with Parquet files, found none"),
        (lambda path: (path.mkdir(), (path / "a.parquet").touch()), "a.parquet: expected a Parquet file, found an empty one"),
        (
            lambda path: (path.mkdir(), (path / "a.parquet").write_bytes(b"PAR1nonsense")),
            "a.parquet: expected a file that can be read, found could not read footer",
        ),
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


def file_of(path, **columns):
    """A Parquet file of publications with some columns different."""
    shape = {"publisher": ["p", "q"], "sequence": pa.array([1, 2]), "publication": ["[x,1]", "[x,2]"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {name: values for name, values in (shape | columns).items() if values is not None}
    pq.write_table(pa.table(table), path, compression="zstd")
    return path


def test_null_where_there_must_be_a_value_is_found_by_those_who_use_it(spark, tmp_path):
    file = file_of(tmp_path / "t" / "a.parquet", sequence=pa.array([1, None], pa.int64()))
    found = read_table(spark, tmp_path / "t", "publications")
    with pytest.raises(InvalidInput) as refused, translate_errors():
        # Nor may a filter or a join drop what is null before anybody saw it.
        found.where("sequence > 0").join(found, "sequence").collect()
    assert str(refused.value) == f"{file}: row 2: column 'sequence': expected a value, found null"
    assert found.select("publisher").count() == 2


def test_rows_of_text_that_cannot_be_read_are_shown(spark, tmp_path):
    lines, file = tmp_path / "a.jsonl", tmp_path / "b.csv"
    lines.write_text('{"publisher": "p", "sequence": "x", "publication": "[x,1]"}\n')
    with (
        pytest.raises(InvalidInput, match=r"a.jsonl: expected a row of the table 'publications', found .*\"x\""),
        translate_errors(),
    ):
        read_table(spark, lines, "publications").select("publisher").collect()
    file.write_text("sequence,publication,publisher,more\n1,[x],p\n")
    with (
        pytest.raises(InvalidInput, match=r"b.csv: expected a row of the table 'publications', found 1,\[x\],p$"),
        translate_errors(),
    ):
        read_table(spark, file, "publications").collect()
    file.write_text("sequence,publisher\n1,p\n")
    with pytest.raises(InvalidInput, match=r"b.csv: expected a column 'publication', found sequence, publisher$"):
        read_table(spark, file, "publications")


def test_columns_of_csv_come_in_any_order_and_number(spark, tmp_path):
    file = tmp_path / "b.csv"
    file.write_text('sequence,more,publication,publisher\n7,?,"[x,1]",p\n')
    assert [tuple(row) for row in read_table(spark, file, "publications").collect()] == [("p", 7, "[x,1]")]


def damaged(path):
    """A file whose footer is whole and whose pages are not."""
    count = 5_000
    file_of(path, publisher=["p"] * count, sequence=list(range(count)), publication=[f"[x,{i}]" for i in range(count)])
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 500] = b"\x07" * 500
    path.write_bytes(raw)
    return path


def test_damage_is_named(spark, tmp_path):
    file = damaged(tmp_path / "t" / "a.parquet")
    with pytest.raises(InvalidInput) as refused, translate_errors():
        read_table(spark, tmp_path / "t", "publications").groupBy("publisher").agg(
            {"publication": "max", "sequence": "max"}
        ).collect()
    assert str(refused.value) == f"{file}: expected a file that can be read, found damage"


def bad_of(read):
    assert read.bad.schema.fieldNames() == REJECTED.fieldNames()
    return {(row.file.rpartition("/")[2], row.reason): (row.rows, row.example) for row in read.bad.collect()}


def test_good_rows_are_kept_and_the_others_counted_by_file_and_reason(spark, tmp_path):
    directory = tmp_path / "t"
    (directory / "x=1").mkdir(parents=True)
    (directory / "x=1" / "a.parquet").write_bytes(b"PAR1nonsense")
    damaged(directory / "x=1" / "b.parquet")
    file_of(directory / "x=1" / "c.parquet", publication=None)
    file_of(directory / "x=1" / "d.parquet", sequence=["1", "2"])
    file_of(directory / "x=1" / "e.parquet", publisher=["p", None], publication=["[x,1]", None])
    file_of(directory / "x=2" / "f.parquet", publisher=["p", "r"], publication=["[x,", "[x,3]"])
    read = read_with_quarantine(spark, directory, "publications")
    assert sorted(map(tuple, read.rows.collect())) == [("p", 1, "[x,1]"), ("r", 2, "[x,3]")]
    bad = bad_of(read)
    unreadable = "expected a Parquet file that can be read"
    assert set(bad) == {
        ("a.parquet", unreadable),
        ("b.parquet", unreadable),
        ("c.parquet", "expected a column 'publication', found publisher, sequence"),
        ("d.parquet", "column 'sequence': expected bigint, found string"),
        ("e.parquet", "column 'publisher': expected a value, found null"),
        ("f.parquet", "column 'publication': expected a publication"),
    }
    assert {file: rows for (file, _), (rows, _) in bad.items()} == {
        "a.parquet": None, "b.parquet": None, "c.parquet": 2, "d.parquet": 2, "e.parquet": 1, "f.parquet": 1,
    }  # fmt: skip
    assert bad["f.parquet", "column 'publication': expected a publication"][1].startswith("[x,: column 4: expected a number")


def test_read_good_rows_is_a_deprecated_name(monkeypatch, tmp_path):
    monkeypatch.setattr(good_rows, "read_with_quarantine", lambda *arguments: arguments)
    with pytest.deprecated_call(match="read_with_quarantine"):
        assert good_rows.read_good_rows("spark", tmp_path, "publications") == ("spark", tmp_path, "publications")


def test_filters_and_rows_of_text_are_judged_too(spark, tmp_path):
    file = tmp_path / "s.csv"
    rows = ['s1,c,,"[x,>,1]"', 's2,c,,"[x,is,1]"', 's3,c,,"[x,is,1]"', "s4", ',c,,"[x,>,1]"']
    file.write_text("\n".join(["subscription,client,broker,filter", *rows, ""]))
    read = read_with_quarantine(spark, file, "subscriptions")
    assert [row.subscription for row in read.rows.collect()] == ["s1"]
    assert bad_of(read) == {
        ("s.csv", "column 'filter': expected a filter"): (
            2,
            "[x,is,1]: column 4: expected an operator for numbers (=, <>, <, …), found 'is'",
        ),
        ("s.csv", "expected a row of the table 'subscriptions'"): (1, "s4"),
        ("s.csv", "column 'subscription': expected a value, found null"): (1, None),
    }


def test_a_table_that_is_good_has_nothing_bad_and_is_what_duckdb_reads(spark, tmp_path):
    file_of(tmp_path / "t" / "a.parquet")
    read = read_with_quarantine(spark, tmp_path / "t", "publications")
    assert bad_of(read) == {}
    assert sorted(map(tuple, read.rows.collect())) == duckdb.sql(f"from '{tmp_path}/t/*.parquet' order by publisher").fetchall()


def test_nothing_good_at_all_is_an_error(spark, tmp_path):
    file_of(tmp_path / "t" / "a.parquet", publication=None)
    with pytest.raises(InvalidInput, match=r"a.parquet: expected a column 'publication', .*no file is left$"):
        read_with_quarantine(spark, tmp_path / "t", "publications")


def test_names_of_folders_are_texts(spark, tmp_path):
    """A run called 007 is not the run 7."""
    from overweave.contract.records import Record
    from overweave.drivers.tracing.files import TraceWriter

    for run in ("007", "1e3"):
        with TraceWriter(tmp_path, run) as on_record:
            on_record(Record(run, "p", 1, "B1", None, None, 0, 0.0, 0.5, 10))
    assert sorted(row.run for row in read_table(spark, tmp_path, "deliveries").collect()) == ["007", "1e3"]
    assert "PartitionFilters: [isnotnull(run" in plan_of(read_table(spark, tmp_path, "deliveries").where("run = '007'"))


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()
