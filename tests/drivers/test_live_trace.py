"""Traces of live brokers: the same table, written by many at once, complete file by file, and never in the way."""

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pyarrow.parquet
import pytest

from overweave.contract.records import Columns, Record
from overweave.drivers import live_trace
from overweave.drivers.live_trace import LiveTrace
from overweave.drivers.trace import SCHEMA
from overweave.errors import InvalidInput


def record(sequence, subscription="s1", broker="B1", arrived_at_s=0.75):
    return Record("r1", f"p{sequence % 3}", sequence, broker, subscription, subscription, 1, 0.5, arrived_at_s, 120)


def columns(records, publishers=None, subscriptions=None):
    """The same rows by columns, with lists of their own unless they are given."""
    publishers = sorted({each.publisher for each in records}) if publishers is None else publishers
    subscriptions = sorted({each.subscription or "" for each in records} - {""}) if subscriptions is None else subscriptions
    codes = [-1 if each.subscription is None else subscriptions.index(each.subscription) for each in records]
    return Columns(
        publishers,
        np.array([publishers.index(each.publisher) for each in records], np.int32),
        np.array([each.sequence for each in records], np.int64),
        subscriptions,
        np.array(codes, np.int32),
        list(subscriptions),
        np.array(codes, np.int32),
        np.array([each.hops for each in records], np.int32),
        np.array([each.published_at_s for each in records]),
        records[0].arrived_at_s,
        np.array([each.bytes for each in records], np.int64),
    )


def read(directory):
    rows = pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((Record(**row) for row in rows), key=lambda each: (each.broker, each.sequence))


def names(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def wait_for(condition):
    end_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end_s, "expected it to happen soon"
        time.sleep(0.005)


@pytest.fixture
def blocked(monkeypatch):
    """Let the thread stand still before it writes, until the event is set."""
    going, free = threading.Event(), threading.Event()
    write = live_trace._Part.write

    def waiting(self, table):
        going.set()
        assert free.wait(10)
        write(self, table)

    monkeypatch.setattr(live_trace._Part, "write", waiting)
    yield going, free
    free.set()


def test_columns_come_back_as_records(tmp_path):
    rows = [record(1), record(2, None), record(3, "s2"), record(4, "s1", arrived_at_s=0.9), record(5, "s3", arrived_at_s=0.9)]
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add_columns(columns(rows[:3]))
        trace.add_columns(columns(rows[3:]))
    assert read(tmp_path) == rows
    assert names(tmp_path) == ["run=r1/part-B1-00000.parquet"]


def test_records_are_taken_too(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add(record(1))
        trace.add_columns(columns([record(2)]))
        trace.add(record(3, None))
    assert read(tmp_path) == [record(1), record(2), record(3, None)]
    assert trace.dropped == 0


@pytest.mark.parametrize("rows", [[], [record(1)], [record(1, None)]])
def test_files_have_the_schema_of_every_trace(tmp_path, rows):
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        for each in rows:
            trace.add_columns(columns([each]))
    assert pyarrow.parquet.read_schema(tmp_path / "run=r1" / "part-B1-00000.parquet").equals(SCHEMA, check_metadata=True)
    table = pyarrow.dataset.dataset(tmp_path, format="parquet", partitioning="hive").to_table()
    assert sorted(table.column_names) == sorted(Record.__struct_fields__)
    assert table.num_rows == len(rows)


def test_lists_may_be_shared_and_grow(tmp_path):
    publishers, subscriptions = ["p0", "p1", "p2"], ["s1"]
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add_columns(columns([record(1)], publishers, subscriptions))
        subscriptions.append("s2")
        trace.add_columns(columns([record(2, "s2"), record(3, None)], publishers, subscriptions))
        trace.add_columns(columns([record(4, "s9")]))
    assert read(tmp_path) == [record(1), record(2, "s2"), record(3, None), record(4, "s9")]


def test_brokers_share_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(live_trace, "ROWS_PER_GROUP", 1)  # so that all files are open at once
    odd = ("B1", "B-2", "B/2", "B 2", "..", "b" * 1000, "é")
    traces = [LiveTrace(tmp_path, "my run", broker) for broker in odd]
    for number, (trace, broker) in enumerate(zip(traces, odd, strict=True)):
        trace.add(record(number, broker=broker))
    wait_for(lambda: all(trace._part.rows for trace in traces))
    for trace in traces:
        trace.close()
    assert [path.name for path in tmp_path.iterdir()] == ["run=my-run"]
    assert len(names(tmp_path)) == len(odd)
    assert {each.broker for each in read(tmp_path)} == set(odd)
    assert "run=my-run/part-B1-00000.parquet" in names(tmp_path)


def test_files_are_rotated_by_rows(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=2) as trace:
        trace.add_columns(columns([record(number) for number in range(5)]))
    assert names(tmp_path) == [f"run=r1/part-B1-0000{number}.parquet" for number in range(3)]
    sizes = [pyarrow.parquet.read_metadata(tmp_path / name).num_rows for name in names(tmp_path)]
    assert sizes == [2, 2, 1]
    assert read(tmp_path) == [record(number) for number in range(5)]


def test_files_are_rotated_by_time(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1", seconds_per_file=0.02) as trace:
        for number in range(2):
            trace.add(record(number))
            wait_for(lambda number=number: len(read(tmp_path)) == number + 1 if trace.path.exists() else False)
    assert len(names(tmp_path)) == 2


def test_an_open_file_is_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(live_trace, "ROWS_PER_GROUP", 2)
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add_columns(columns([record(1), record(2)]))
        wait_for(lambda: names(tmp_path) == ["run=r1/.part-B1-00000.parquet"])
        assert pyarrow.dataset.dataset(tmp_path, format="parquet").files == []
    assert read(tmp_path) == [record(1), record(2)]


def test_a_broker_that_comes_back_overwrites_nothing_and_clears_up(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add(record(1))
    leftover, others = trace.path / ".part-B1-00001.parquet", trace.path / ".part-B1-2-00001.parquet"
    leftover.touch()
    others.touch()
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add(record(2))
    assert read(tmp_path) == [record(1), record(2)]
    assert names(tmp_path) == [f"run=r1/{name}" for name in (others.name, "part-B1-00000.parquet", "part-B1-00001.parquet")]


def test_who_is_too_fast_loses_rows_and_no_time(tmp_path, blocked):
    going, free = blocked
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=1, rows_waiting_max=3) as trace:
        trace.add(record(0))
        assert going.wait(10)
        for number in range(1, 10):
            trace.add(record(number))
        trace.add_columns(columns([record(10), record(11)]))
        assert trace.dropped == 9
        free.set()
    assert read(tmp_path) == [record(0), record(1), record(2)]


def test_a_disk_that_fails_costs_rows_but_not_the_trace(tmp_path, monkeypatch):
    opened, full = live_trace._Part._opened, [True]

    def failing(self):
        if full:
            raise OSError("No space left on device")
        return opened(self)

    monkeypatch.setattr(live_trace._Part, "_opened", failing)
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=2) as trace:
        trace.add_columns(columns([record(1), record(2)]))
        wait_for(lambda: trace.dropped == 2)
        assert "No space" in str(trace.failure)
        full.clear()
        trace.add(record(3))
    assert read(tmp_path) == [record(3)]


def test_rows_of_a_file_that_cannot_be_finished_are_counted(tmp_path, monkeypatch):
    def failing(self, target):
        raise OSError("odd")

    monkeypatch.setattr(live_trace, "ROWS_PER_GROUP", 2)
    monkeypatch.setattr(Path, "rename", failing)
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add_columns(columns([record(1), record(2)]))
        wait_for(lambda: trace._rows == trace._rows_in_work == 0)
        trace.add(record(3))
    assert trace.dropped == 3
    assert names(tmp_path) == []


def test_columns_of_different_lengths_are_refused(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1") as trace, pytest.raises(ValueError, match="expected 1 rows in each"):
        trace.add_columns(columns([record(1)])._replace(hops=np.zeros(2, np.int32)))


def test_after_the_end_rows_are_dropped(tmp_path):
    trace = LiveTrace(tmp_path, "r1", "B1")
    trace.close()
    trace.close()
    trace.add(record(1))
    assert trace.dropped == 1


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="file: expected a directory"):
        LiveTrace(tmp_path / "file", "r1", "B1")
