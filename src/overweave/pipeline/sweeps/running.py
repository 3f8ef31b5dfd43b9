"""Running a sweep: tasks of a few scenarios each, as many at a time as Spark has cores, or may have, until all are finished.

Every task is a Spark job of its own, submitted by a thread. In one large job, or in waves, nothing would be there before the
slowest task of all, and cores would wait for it; here each result is kept when it comes, and only the driver writes. What a
scenario raises is caught in the task. One that takes its worker down with it is found by trying those of its task one by one.

How many cores a cluster has is its matter, and may change: with more tasks waiting than it has cores for, Spark uses those that
come, and asks for them where it can. On this machine cores stay, and tasks that wait would only keep them from their work.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from overweave.drivers.sim.utilisation import NotSettled
from overweave.errors import OverweaveError
from overweave.pipeline.sweeps.base import SPARK_TYPES, Document, Evaluator, flattened
from overweave.pipeline.sweeps.file import Sweep
from overweave.pipeline.sweeps.grid import Task
from overweave.pipeline.sweeps.results import ERROR, KEY, Results, measured_schema
from overweave.pipeline.sweeps.summary import OVERLOADED

#: Errors of a lost worker or machine; other errors of a job are not the fault of a scenario.
_CRASHES = ("Python worker exited unexpectedly", "ExecutorLostFailure", "Python worker failed to connect back")
#: The groups submitted at a time to a cluster, however few cores it has: it may begin with two and grow.
PARALLEL_MIN = 32
#: An error in a table is a line, not a page.
_ERROR_LENGTH = 500
_TAG = "overweave-sweep"
_DOCUMENT = "document"


class Outcome(NamedTuple):
    """How many scenarios there are, were computed now, were there before, and failed, now or before."""

    scenarios: int
    computed: int
    kept: int
    failed: int


def run_sweep(
    start: Callable[[], SparkSession],
    sweep: Sweep,
    results: Results,
    *,
    again: bool = False,
    parallel: int | None = None,
    on_done: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Evaluate unfinished scenarios, and with ``again`` failed ones; ``on_done`` gets the number of finished ones.

    ``parallel`` groups of scenarios are submitted at a time; without it, one for each core of this machine, or on a cluster four
    for each that it has now, and no fewer than `PARALLEL_MIN`. A session is started only when there is something to do.
    """
    if again:
        results.drop(results.keys(failed=True))
    finished = results.keys(failed=True) | results.keys(failed=False)
    open_tasks = [task for task in sweep.tasks if task.key not in finished]
    computed = 0
    for measured in _evaluated(start(), sweep, open_tasks, parallel) if open_tasks else ():
        results.add(measured)
        computed += measured.num_rows
        on_done(len(finished) + computed)
    results.close()
    return Outcome(len(sweep.tasks), computed, len(finished), len(results.keys(failed=True)))


def evaluate_batches(evaluator: Evaluator, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of a task: documents in, measures or errors out."""
    for batch in batches:
        rows = [
            {KEY: key, **_attempt(evaluator, msgspec.msgpack.decode(document))}
            for key, document in zip(*(batch.column(name).to_pylist() for name in (KEY, _DOCUMENT)), strict=True)
        ]
        yield pa.RecordBatch.from_pylist(rows, schema)


def _attempt(evaluator: Evaluator, document: Document) -> dict[str, Any]:
    try:
        return flattened(msgspec.to_builtins(evaluator.evaluate(evaluator.read(document))))
    except NotSettled as error:
        return {**flattened(msgspec.to_builtins({OVERLOADED: error.overloaded})), ERROR: _line(str(error))}
    except OverweaveError as error:
        return {ERROR: _line(str(error))}
    except Exception as error:
        return {ERROR: _line(f"{type(error).__name__}: {error}")}


def _evaluated(spark: SparkSession, sweep: Sweep, tasks: list[Task], parallel: int | None) -> Iterator[pa.Table]:
    """What each group of tasks gives, as it comes. However it ends, nothing goes on running."""
    parallel = _parallel(spark) if parallel is None else parallel
    size = max(1, min(sweep.evaluator.per_task, len(tasks) // parallel))
    groups = [tasks[at : at + size] for at in range(0, len(tasks), size)]
    over = threading.Event()
    job = _Job(spark, sweep, over)
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="sweep")
    try:
        futures: list[Future[list[pa.Table]]] = [pool.submit(job.run, group) for group in groups]
        for future in as_completed(futures):
            yield from future.result()
    finally:
        over.set()
        pool.shutdown(wait=False, cancel_futures=True)
        spark.interruptTag(_TAG)
        pool.shutdown(wait=True)


class _Job(NamedTuple):
    spark: SparkSession
    sweep: Sweep
    #: Set when nothing more is to be done.
    over: threading.Event

    def run(self, group: list[Task]) -> list[pa.Table]:
        """What a group of scenarios gives; one by one if together they take the worker down."""
        if self.over.is_set():
            return []
        try:
            return [self._measured(group)]
        except (PySparkException, Py4JJavaError) as error:
            text = str(error)
            if self.over.is_set() or not any(crash in text for crash in _CRASHES):
                raise
        if len(group) > 1:
            return [table for task in group for table in self.run([task])]
        return [_failed(self.sweep, group[0], "the worker that computed it ended without a word; is there too little memory?")]

    def _measured(self, group: list[Task]) -> pa.Table:
        evaluator, schema = self.sweep.evaluator, measured_schema(self.sweep.measures)
        rows = [(task.key, msgspec.msgpack.encode(task.document)) for task in group]
        self.spark.addTag(_TAG)
        frame = self.spark.createDataFrame(rows, f"{KEY} string, {_DOCUMENT} binary").coalesce(1)
        measured = frame.mapInArrow(partial(evaluate_batches, evaluator, schema), _spark_schema(self.sweep))
        return measured.toArrow().cast(schema)


def _spark_schema(sweep: Sweep) -> StructType:
    fields = [StructField(name, SPARK_TYPES[kind]) for name, kind in sweep.measures.items()]
    return StructType([StructField(KEY, StringType()), *fields, StructField(ERROR, StringType())])


def _failed(sweep: Sweep, task: Task, text: str) -> pa.Table:
    return pa.Table.from_pylist([{KEY: task.key, ERROR: text}], measured_schema(sweep.measures))


def _parallel(spark: SparkSession) -> int:
    cores = _cores(spark)
    is_here = str(spark.conf.get("spark.master", "")).startswith("local")
    return cores if is_here else max(PARALLEL_MIN, 4 * cores)


def _cores(spark: SparkSession) -> int:
    """The number of concurrent tasks; a remote session reveals it only as the default number of partitions of a range."""
    return spark.range(100_000).select(F.spark_partition_id()).distinct().count()


def _line(text: str) -> str:
    return " ".join(text.split())[:_ERROR_LENGTH]
