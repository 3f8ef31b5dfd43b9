"""Traces of live brokers: the same table, written by many at once, complete file by file, and never in the way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.dataset
import pyarrow.parquet
import pytest

from overweave.batches.trace_fields import Columns
from overweave.contract.records import Record, Statement
from overweave.drivers.tracing import live
from overweave.drivers.tracing.files import SCHEMA
from overweave.drivers.tracing.live import LiveTrace
from overweave.drivers.tracing.live_files import Files, table_of
from overweave.drivers.tracing.writer_wire import CODES, NUMBERS, Buffer, WriteRequest
from overweave.errors import InvalidInput

#: A broker's process that fills two buffers of two rows and a third by half, says who writes them, and waits to be killed.
BROKER = """
import sys, time
from pathlib import Path
from overweave.contract.records import Record
from overweave.drivers.tracing import live

live.ROWS_PER_BUFFER = 2
trace = live.LiveTrace(Path(sys.argv[1]), "r1", "B1")
for number in range(5):
    trace.add(Record("r1", f"p{number % 3}", number, "B1", "s1", "s1", 1, 0.5, 0.75, 120))
while trace._full:
    time.sleep(0.01)
print(trace._process.pid, flush=True)
time.sleep(60)
"""


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
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s, "expected it to happen soon"
        time.sleep(0.005)


def stop(trace):
    """Let the process stand still, once it is there."""
    wait_for(lambda: trace._process.pid is not None)
    os.kill(trace._process.pid, signal.SIGSTOP)


def go_on(trace):
    os.kill(trace._process.pid, signal.SIGCONT)


def alive(pid):
    """Whether a process of somebody else is there, and is more than a trace of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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


def test_brokers_share_a_run(tmp_path):
    with LiveTrace(tmp_path, "my run", "B1") as one, LiveTrace(tmp_path, "my run", "B 1") as other:
        one.add(record(1))
        other.add(record(2, broker="B 1"))
    assert [path.name for path in tmp_path.iterdir()] == ["run=my-run"]
    assert {each.broker for each in read(tmp_path)} == {"B1", "B 1"}
    assert "run=my-run/part-B1-00000.parquet" in names(tmp_path)


def test_brokers_with_like_names_have_files_of_their_own(tmp_path):
    odd = ("B1", "B-2", "B/2", "B 2", "..", "b" * 1000, "é")
    several = [Files(tmp_path, broker) for broker in odd]
    buffer = Buffer(np.zeros((NUMBERS, 1), np.int64), np.zeros((CODES, 1), np.int32))
    for files, broker in zip(several, odd, strict=True):
        files.write(table_of(buffer, WriteRequest(0, 1, ["p"], ["s"], ["c"], ["B"]), broker))
    assert len(names(tmp_path)) == len(odd)
    for files in several:
        files.end()
    assert len(names(tmp_path)) == len(odd)
    assert all(name.startswith("part-") for name in names(tmp_path))
    assert {row["broker"] for row in pyarrow.dataset.dataset(tmp_path).to_table().to_pylist()} == set(odd)


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
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 2)
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


def test_what_another_process_still_writes_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 1)
    with LiveTrace(tmp_path, "r1", "B1") as one:
        one.add(record(1))
        wait_for(lambda: names(tmp_path) == ["run=r1/.part-B1-00000.parquet"])
        with LiveTrace(tmp_path, "r1", "B1") as other:
            other.add(record(2))
        assert names(tmp_path) == ["run=r1/.part-B1-00000.parquet", "run=r1/part-B1-00001.parquet"]
    assert read(tmp_path) == [record(1), record(2)]
    assert one.dropped == other.dropped == 0


def test_who_is_too_fast_loses_rows_and_no_time(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=1, rows_waiting_max=3) as trace:
        stop(trace)
        for number in range(10):
            trace.add(record(number))
        trace.add_columns(columns([record(10), record(11)]))
        assert trace.dropped == 9
        go_on(trace)
    assert read(tmp_path) == [record(0), record(1), record(2)]
    assert trace.failure is None


def test_many_rows_fill_several_buffers(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 3)
    rows = [record(number, None if number % 5 == 0 else f"s{number % 4}") for number in range(40)]
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        for start, end in ((0, 1), (1, 9), (9, 11), (11, 40)):
            trace.add_columns(columns(rows[start:end]))
    assert read(tmp_path) == rows


def test_a_disk_that_fails_costs_rows_but_not_the_trace(tmp_path):
    (tmp_path / "run=r1").touch()
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=2) as trace:
        trace.add_columns(columns([record(1), record(2)]))
        wait_for(lambda: trace.dropped == 2)
        assert "File exists" in str(trace.failure)
        (tmp_path / "run=r1").unlink()
        trace.add(record(3))
    assert read(tmp_path) == [record(3)]
    assert trace.dropped == 2


def test_rows_of_a_file_that_cannot_be_finished_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 2)
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add_columns(columns([record(1), record(2)]))
        wait_for(lambda: names(tmp_path) == ["run=r1/.part-B1-00000.parquet"])
        (trace.path / "part-B1-00000.parquet").mkdir()
        trace.add(record(3))
    assert trace.dropped == 3
    assert names(tmp_path) == []


def test_a_writer_that_dies_costs_its_open_file(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 2)
    with LiveTrace(tmp_path, "r1", "B1", rows_per_file=4) as trace:
        trace.add_columns(columns([record(number) for number in range(6)]))
        wait_for(lambda: names(tmp_path) == ["run=r1/.part-B1-00001.parquet", "run=r1/part-B1-00000.parquet"])
        wait_for(lambda: not trace._full)
        first = trace._process.pid
        os.kill(first, signal.SIGKILL)
        trace.add(record(6))
    assert trace._process.pid is None
    assert trace.dropped == 2
    assert "died" in str(trace.failure) or "pipe" in str(trace.failure)
    assert read(tmp_path) == [record(0), record(1), record(2), record(3), record(6)]
    assert names(tmp_path) == ["run=r1/part-B1-00000.parquet", "run=r1/part-B1-00001.parquet"]


def test_what_is_in_hand_when_the_writer_dies_is_written_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 2)
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        stop(trace)
        trace.add_columns(columns([record(number) for number in range(4)]))
        os.kill(trace._process.pid, signal.SIGKILL)
    assert read(tmp_path) == [record(number) for number in range(4)]
    assert trace.dropped == 0


def test_a_writer_that_cannot_start_costs_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with LiveTrace(tmp_path, "r1", "B1") as trace:
        trace.add(record(1))
    assert trace.dropped == 1
    assert "No such file" in str(trace.failure)


def test_signals_that_ask_to_stop_are_for_the_broker(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "ROWS_PER_BUFFER", 1)
    with LiveTrace(tmp_path, "r1", "B1", rows_waiting_max=9) as trace:
        trace.add(record(1))
        wait_for(lambda: names(tmp_path) == ["run=r1/.part-B1-00000.parquet"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(trace._process.pid, number)
        trace.add(record(2))
    assert read(tmp_path) == [record(1), record(2)]
    assert trace.dropped == 0
    assert trace.failure is None


def test_a_killed_broker_leaves_what_it_had_handed_over(tmp_path):
    with subprocess.Popen([sys.executable, "-c", BROKER, str(tmp_path)], stdout=subprocess.PIPE) as broker:
        writer = int(broker.stdout.readline())
        broker.kill()
    wait_for(lambda: not alive(writer))
    assert read(tmp_path) == [record(number) for number in range(4)]
    assert names(tmp_path) == ["run=r1/part-B1-00000.parquet"]


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


def test_statements_are_in_files_of_their_own(tmp_path):
    said = [
        Statement("r1", 1.0, "B1", "c", "subscribe", "s", "[x,>,1]", False),
        Statement("r1", 2.0, "B1", "c", "unsubscribe", "s", None, True),
    ]
    for each in said:
        with LiveTrace(tmp_path, "r1", "B1") as trace:
            trace.add_statement(each)
    assert trace.dropped == 0
    files = sorted((tmp_path / "run=r1" / "_statements").iterdir())
    assert [file.name for file in files] == ["part-B1-00000.parquet", "part-B1-00001.parquet"]
    assert [row for file in files for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()] == [
        msgspec.to_builtins(each) for each in said
    ]
    # Who reads the deliveries does not find them.
    assert pyarrow.dataset.dataset(tmp_path, partitioning="hive").count_rows() == 0


def test_statements_appear_while_the_broker_goes_on(tmp_path):
    with LiveTrace(tmp_path, "r1", "B1", seconds_per_file=0.02) as trace:
        trace.add_statement(Statement("r1", 1.0, "B1", "c", "advertise", "a", "[x,>,1]", False))
        end_s = time.monotonic() + 20
        while not list(tmp_path.glob("run=r1/_statements/part-*")) and time.monotonic() < end_s:
            time.sleep(0.02)
        assert list(tmp_path.glob("run=r1/_statements/part-*"))
