"""Following a run: tables that say of all rows read so far what the batch job would say, until we are asked to stop.

However it was stopped, the next start goes on where it was. How a batch of new files changes the tables is in
`overweave.pipeline.streaming.advance`, how readers see them in `overweave.pipeline.streaming.versions`.
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
from overweave.pipeline.problems import first_line, local_names, plain, refuse
from overweave.pipeline.steps.profiles import BITS, check_bits
from overweave.pipeline.streaming.advance import FILE, ROWS, TABLES, Advance
from overweave.pipeline.streaming.versions import Versions, current

#: How often we look whether we are to stop, or whether a run has appeared.
_LOOK_S = 0.2
#: The same for a run elsewhere: to list a bucket costs money.
_LOOK_FAR_S = 5.0
#: Of `Begun.tables`: counted up whenever what a batch builds on changes.
_TABLES = 4
_SOURCE = {
    # A file is new when it was not there before, whatever its date says: a copy may keep the date of the original.
    "maxFileAge": "36500d",
    # Who removes a file that cannot be read can go on without it.
    "ignoreMissingFiles": "true",
}


class Begun(msgspec.Struct, frozen=True):
    """What was asked for; who goes on has to ask for the same."""

    traces: str
    run: str
    bits: int
    bucket_s: float
    #: Which tables a version has; versions of another kind cannot be gone on with.
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
    """Keep the tables of `overweave.pipeline.jobs.profile_run` up to date, looking for new files every so often.

    It ends when ``stopped`` is set; without ``every_s``, when what is there now is read.
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
        with versions.alone():
            _check_begun(versions, Begun(_resolved(traces), run, bits, bucket_s, _TABLES))
            rows = _new_rows(spark, traces / f"run={run}")
            _carry_out(rows, Advance(versions, bits, bucket_s, traces / f"run={run}"), every_s, stopped, progress)
    if run is None or not (current(out) / "summary").is_dir():
        raise InvalidInput(f"{traces}: expected rows{'' if run is None else f' of run {run!r}'}, found none")
    return totals_of(spark, current(out), run)


def _resolved(traces: Location) -> str:
    """The same for whoever calls it by another name."""
    return traces.text if traces.local is None else str(traces.local.resolve())


def _run_of(traces: Location, run: str | None, stopped: threading.Event | None, progress: Callable[[str], None]) -> str | None:
    """The run to follow, which is waited for; none if it does not come before we are stopped."""
    if traces.exists() and not traces.is_dir():
        raise InvalidInput(f"{traces}: expected a directory of traces, found a file")
    while True:
        found = sorted(each.name.removeprefix("run=") for each in traces.list() if each.is_dir and each.name.startswith("run="))
        if run in found:
            return run
        if run is None and len(found) > 1:
            raise InvalidInput(f"{traces}: expected to be told which run to profile, found {', '.join(found[:10])}")
        if run is None and found:
            return found[0]
        progress(f"waiting for {'a run' if run is None else f'run {run}'} in {traces}")
        if stopped is None or stopped.wait(_LOOK_FAR_S if traces.is_remote else _LOOK_S):
            return None


def _check_begun(versions: Versions, asked: Begun) -> None:
    """Remember what was asked for, or refuse to go on with something else."""
    if not versions.begun.exists():
        versions.begin()
        versions.begun.write_bytes(msgspec.json.encode(asked))
        return
    begun = msgspec.json.decode(versions.begun.read_bytes(), type=Begun)
    for name, before in msgspec.structs.asdict(begun).items():
        if (now := getattr(asked, name)) != before:
            raise InvalidInput(f"{versions.out}: {name}: expected {before!r}, as when it was begun, found {now!r}")


def _new_rows(spark: SparkSession, folder: Location) -> DataFrame:
    """The rows of files as they appear, with the names of their files; a missing value where there must be one is refused."""
    read = spark.readStream.schema(ROWS).options(**_SOURCE).parquet(folder.pattern)
    file = F.col("_metadata.file_path")

    def sure(name: str) -> Column:
        return refuse(local_names(file), F.lit(f"column {name!r}: expected a value, found none"))

    columns = [
        (F.col(field.name) if field.nullable else F.coalesce(F.col(field.name), sure(field.name))).alias(field.name)
        for field in ROWS.fields
    ]
    return read.select(*columns, file.alias(FILE))


def _carry_out(
    rows: DataFrame, advance: Advance, every_s: float | None, stopped: threading.Event, progress: Callable[[str], None]
) -> None:
    writer = rows.writeStream.foreachBatch(advance).option("checkpointLocation", advance.versions.checkpoint.address)
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    query = writer.trigger(**trigger).start()
    try:
        while query.isActive and not stopped.wait(_LOOK_S):
            progress(_story(query))
        # A batch that is broken off does no harm, but it would be done again, and it says so at length.
        while query.isActive and query.status["isTriggerActive"] and every_s is not None:
            progress("stopping after this batch")
            time.sleep(_LOOK_S)
    finally:
        query.stop()
    if (error := query.exception()) is not None and not stopped.is_set():
        said = plain(error)
        if said is not None:
            raise InvalidInput(said)
        raise OverweaveError(f"{advance.versions.out}: following failed: {first_line(error)}")


def _story(query: StreamingQuery) -> str:
    last = query.lastProgress
    if last is None:
        return "following: reading what is there"
    return f"following: {last['batchId'] + 1:,} batches, {last['numInputRows']:,} new rows in the last one; Ctrl-C stops"
