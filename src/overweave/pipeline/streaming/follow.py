"""The follow job: the tables of the batch job, kept up to date with Structured Streaming while a run is written.

It resumes from its checkpoint. `overweave.pipeline.streaming.apply_batch` has the update of a micro-batch,
`overweave.pipeline.streaming.versions` its publication to readers.
"""

import threading
import time
from collections.abc import Callable

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline.jobs import Totals, check_out, totals_of
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.spark_errors import first_line, local_names, raise_column, user_message
from overweave.pipeline.steps.profiles import BITS, check_bits
from overweave.pipeline.streaming.apply_batch import FILE, ROWS, TABLES, ApplyBatch
from overweave.pipeline.streaming.versions import Versions, current

#: Polling interval for the stop signal and for a new run.
_POLL_S = 0.2
#: The same for remote storage: listing a bucket costs money.
_POLL_REMOTE_S = 5.0
#: The version of the stored state; raised when its tables change.
_STATE_VERSION = 4
_SOURCE = {
    # A file is new by its name, not its date: a copy may keep the date of the original.
    "maxFileAge": "36500d",
    # A user may remove an unreadable file and resume.
    "ignoreMissingFiles": "true",
}


class FollowManifest(msgspec.Struct, frozen=True):
    """The parameters of a follow job; a resumed job must have the same."""

    traces: str
    run: str
    bits: int
    bucket_s: float
    #: The version of the stored state; another one cannot be resumed.
    tables: int = 1


def follow(
    spark: SparkSession,
    traces: LocationLike,
    out: LocationLike,
    run: str | None = None,
    bits: int = BITS,
    bucket_s: float = 1.0,
    every_s: float | None = None,
    stopped: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Totals:
    """Keep the tables of `overweave.pipeline.jobs.profile_run` up to date; poll for new files every ``every_s``.

    It ends when ``stopped`` is set or, without ``every_s``, when all present files are read.
    """
    check_bits(bits)
    for name, value in {"bucket_s": bucket_s, "every_s": 1.0 if every_s is None else every_s}.items():
        if not value > 0:
            raise InvalidInput(f"{name}: expected a time above 0, got {value:g}")
    traces, out = Location.of(traces), Location.of(out)
    check_out(out)
    stopped = threading.Event() if stopped is None else stopped
    versions = Versions(out, TABLES)
    run = _run_of(traces, run, stopped if every_s is not None else None, progress)
    if run is not None:
        with versions.lock():
            _check_manifest(versions, FollowManifest(_resolved(traces), run, bits, bucket_s, _STATE_VERSION))
            rows = _new_rows(spark, traces / f"run={run}")
            _run_query(rows, ApplyBatch(versions, bits, bucket_s, traces / f"run={run}"), every_s, stopped, progress)
    if run is None or not (current(out) / "summary").is_dir():
        raise InvalidInput(f"{traces}: expected rows{'' if run is None else f' of run {run!r}'}, found none")
    return totals_of(spark, current(out), run)


def _resolved(traces: Location) -> str:
    """The canonical name of the trace directory."""
    return traces.text if traces.local is None else str(traces.local.resolve())


def _run_of(traces: Location, run: str | None, stopped: threading.Event | None, progress: Callable[[str], None]) -> str | None:
    """The run to follow; waits until it exists, and returns None when stopped before."""
    if traces.exists() and not traces.is_dir():
        raise InvalidInput(f"{traces}: expected a directory of traces, found a file")
    while True:
        found = sorted(each.name.removeprefix("run=") for each in traces.list() if each.is_dir and each.name.startswith("run="))
        if run in found:
            return run
        if run is None and len(found) > 1:
            raise InvalidInput(f"{traces}: expected one run or --run, found runs {', '.join(found[:10])}")
        if run is None and found:
            return found[0]
        progress(f"waiting for {'a run' if run is None else f'run {run}'} in {traces}")
        if stopped is None or stopped.wait(_POLL_REMOTE_S if traces.is_remote else _POLL_S):
            return None


def _check_manifest(versions: Versions, asked: FollowManifest) -> None:
    """Write the manifest of a new job, or compare that of a resumed one."""
    if not versions.manifest.exists():
        versions.reset()
        versions.manifest.write_bytes(msgspec.json.encode(asked))
        return
    former = msgspec.json.decode(versions.manifest.read_bytes(), type=FollowManifest)
    for name, before in msgspec.structs.asdict(former).items():
        if (now := getattr(asked, name)) != before:
            raise InvalidInput(f"{versions.out}: {name}: expected {before!r}, as in the resumed job, found {now!r}")


def _new_rows(spark: SparkSession, folder: Location) -> DataFrame:
    """The rows of new files, with the names of their files; a null in a required column is an error."""
    read = spark.readStream.schema(ROWS).options(**_SOURCE).parquet(folder.pattern)
    file = F.col("_metadata.file_path")

    def missing(name: str) -> Column:
        return raise_column(local_names(file), F.lit(f"column {name!r}: expected a value, found none"))

    columns = [
        (F.col(field.name) if field.nullable else F.coalesce(F.col(field.name), missing(field.name))).alias(field.name)
        for field in ROWS.fields
    ]
    return read.select(*columns, file.alias(FILE))


def _run_query(
    rows: DataFrame, apply_batch: ApplyBatch, every_s: float | None, stopped: threading.Event, progress: Callable[[str], None]
) -> None:
    writer = rows.writeStream.foreachBatch(apply_batch).option("checkpointLocation", apply_batch.versions.checkpoint.address)
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    query = writer.trigger(**trigger).start()
    try:
        while query.isActive and not stopped.wait(_POLL_S):
            progress(_progress_text(query))
        # An aborted batch is harmless, but would be repeated, and Spark logs a long trace.
        while query.isActive and query.status["isTriggerActive"] and every_s is not None:
            progress("stopping after this batch")
            time.sleep(_POLL_S)
    finally:
        query.stop()
    if (error := query.exception()) is not None and not stopped.is_set():
        message = user_message(error)
        if message is not None:
            raise InvalidInput(message)
        raise OverweaveError(f"{apply_batch.versions.out}: following failed: {first_line(error)}")


def _progress_text(query: StreamingQuery) -> str:
    last = query.lastProgress
    if last is None:
        return "following: reading what is there"
    return f"following: {last['batchId'] + 1:,} batches, {last['numInputRows']:,} new rows in the last one; Ctrl-C stops"
