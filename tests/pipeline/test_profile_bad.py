"""``overweave profile`` on traces that are partly bad."""

from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.cli import main
from overweave.contract.records import Record
from overweave.drivers.tracing.files import SCHEMA, TraceWriter
from overweave.pipeline.spark_errors import translate_errors


@pytest.fixture
def traces(tmp_path, spark, monkeypatch):
    """A good file, one with a row that has no broker, and one that is none; and the tests' own session for the verb."""
    directory = tmp_path / "traces"
    with TraceWriter(directory, "r") as on_record:
        for i in range(4):
            on_record(Record("r", "p", i, "B1", "s", "c", i % 2, float(i), i + 0.5, 10))
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    rows = pq.read_table(directory / "run=r" / "part-00000.parquet").slice(0, 2).to_pylist()
    worse = [{**row, "sequence": 10 + i, "broker": None if i else "B2"} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(worse, nullable), directory / "run=r" / "part-00001.parquet")
    (directory / "run=r" / "part-00002.parquet").write_bytes(b"PAR1nonsense")

    @contextmanager
    def given(master, conf=()):
        with translate_errors():
            yield spark

    monkeypatch.setattr("overweave.pipeline.session.session", given)
    return directory


def test_what_is_bad_ends_it_or_is_left_out_and_counted(traces, tmp_path, capfdbinary):
    out = tmp_path / "out"
    with pytest.raises(SystemExit, match="2"):
        main(["profile", str(traces), "--out", str(out)])
    said = capfdbinary.readouterr().err.decode()
    assert said.startswith(f"overweave: {traces}/run=r/part-0000")
    assert said.count("\n") == 1
    assert not out.exists()
    with pytest.raises(SystemExit, match="0"):
        main(["profile", str(traces), "--out", str(out), "--skip-bad"])
    told = capfdbinary.readouterr()
    assert told.err.decode() == f"overweave: skipped 1 bad rows and 1 unreadable files; see {out}/bad\n"
    assert b"deliveries      5\n" in told.out
    bad = sorted((row["file"][-10:], row["reason"], row["rows"]) for row in pq.read_table(out / "bad").to_pylist())
    assert bad == [
        ("01.parquet", "column 'broker': expected a value, found null", 1),
        ("02.parquet", "expected a Parquet file that can be read", None),
    ]
