"""Traces: the columns of the table, rotation, and nothing half-written."""

import pyarrow.dataset
import pyarrow.parquet
import pytest

from overweave.contract.records import Record
from overweave.drivers.tracing.files import SCHEMA, TraceWriter
from overweave.errors import InvalidInput


def row(sequence, subscription="s1"):
    return Record("r1", "p1", sequence, "B2", subscription, subscription, 1, 0.5, 0.75, 120)


def write(directory, rows, **options):
    with TraceWriter(directory, "r1", **options) as add:
        for each in rows:
            add(each)


def names(directory):
    """The files of deliveries."""
    files = [path for path in directory.rglob("*") if path.is_file() and "_statements" not in path.parts]
    return sorted(str(path.relative_to(directory)) for path in files)


def test_columns_are_those_of_the_record():
    assert ["run", *SCHEMA.names] == list(Record.__struct_fields__)


def test_rows_come_back_with_their_run(tmp_path):
    write(tmp_path, [row(1), row(2, None)])
    table = pyarrow.parquet.read_table(tmp_path)
    assert table.select(SCHEMA.names).schema.equals(SCHEMA)
    rows = [each | {"run": str(each["run"])} for each in table.to_pylist()]
    assert [Record(**each) for each in rows] == [row(1), row(2, None)]


def test_files_are_rotated(tmp_path):
    write(tmp_path, [row(number) for number in range(5)], rows_per_file=2)
    assert names(tmp_path) == [f"run=r1/part-0000{number}.parquet" for number in range(3)]
    parts = [pyarrow.parquet.ParquetFile(tmp_path / name).read() for name in names(tmp_path)]
    assert [part["sequence"].to_pylist() for part in parts] == [[0, 1], [2, 3], [4]]


def test_full_files_leave_no_empty_one_behind(tmp_path):
    write(tmp_path, [row(number) for number in range(4)], rows_per_file=2)
    assert len(names(tmp_path)) == 2


def test_a_run_without_rows_is_an_empty_table(tmp_path):
    write(tmp_path, [])
    assert pyarrow.parquet.read_table(tmp_path).num_rows == 0


def test_a_run_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), TraceWriter(tmp_path, "r1", rows_per_file=2) as add:
        for number in range(5):
            add(row(number))
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_the_earlier_one(tmp_path):
    write(tmp_path, [row(1)])
    with pytest.raises(RuntimeError), TraceWriter(tmp_path, "r1") as add:
        add(row(2))
        raise RuntimeError
    assert pyarrow.parquet.read_table(tmp_path)["sequence"].to_pylist() == [1]


def test_a_run_is_replaced_by_the_next_of_its_name(tmp_path):
    write(tmp_path, [row(number) for number in range(5)], rows_per_file=2)
    write(tmp_path, [row(7)])
    assert names(tmp_path) == ["run=r1/part-00000.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["run=r1"]


def test_readers_do_not_see_a_run_under_way(tmp_path):
    with TraceWriter(tmp_path, "r1", rows_per_file=1) as add:
        add(row(1))
        assert pyarrow.dataset.dataset(tmp_path, format="parquet").files == []


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="file: expected a directory"):
            write(directory, [])
