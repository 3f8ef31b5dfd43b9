"""The one owner of the Spark session.

Jobs run on this machine unless a master is given (``--master``, ``SPARK_REMOTE``), unchanged. Remote executors get this very
package from the driver, so that both sides run the same code; what it depends on has to be installed there.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline.configured import configured_keys
from overweave.pipeline.distributions import ship_distributions
from overweave.pipeline.package_archive import ship_package
from overweave.pipeline.spark_errors import first_line, translate_errors

JAVA_MIN = 17
#: Settings of every session, where its configuration has none.
_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.ansi.enabled": "true",
    # The most groups, as a power of two, of a quick map; with more, each row is looked for in two maps.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    # What people see of it is ours, and nothing in a pipe.
    "spark.ui.showConsoleProgress": "false",
    # The run 007 is not the run 7.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}
#: On this machine: quick to start, quiet, and without a web server.
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "16",
}
#: Valid masters; Spark reports others only in its own process, whose errors are not visible.
_MASTERS = re.compile(r"local(-cluster)?(\[.*\])?|(spark|k8s)://.+|yarn")
#: Settings for small data, where the compilation and replanning of a query take longer than its execution.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m"
    ),
}
_STEADY = "-XX:+UseParallelGC"


def make_session(
    master: str | None = None, *, memory_mb: int | None = None, quick: bool = False, conf: Sequence[str] = ()
) -> SparkSession:
    """A session on ``master``, or on all cores of this machine; ``quick`` suits small data, as in tests.

    ``conf`` are settings KEY=VALUE, which go before all others. Settings from outside go before ours, which are no more
    than what suits us where nobody has said anything.
    """
    given = _settings(conf)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("overweave")
    if master is None and (remote := os.environ.get("SPARK_REMOTE")):
        return _started(builder.config(map={**_COMMON, **given}), remote)
    if master is not None and not _MASTERS.fullmatch(master):
        raise InvalidInput(f"master: expected local, local[N], spark://…, k8s://… or yarn, found {master!r}")
    check_java()
    settings: dict[str, bool | float | int | str | None] = dict(_COMMON)
    local = master is None or re.fullmatch(r"local(\[.*\])?", master) is not None
    if local:
        cores = len(os.sched_getaffinity(0))
        settings |= _LOCAL | {
            "spark.sql.shuffle.partitions": str(4 * cores),
            "spark.driver.memory": f"{memory_mb or _default_memory_mb()}m",
            "spark.local.dir": tempfile.gettempdir(),
            "spark.driver.extraJavaOptions": _STEADY,
        }
        settings |= QUICK if quick else {}
    configured = configured_keys()
    settings = {key: value for key, value in settings.items() if key not in configured} | given
    with _unheard():
        spark = _started(builder.master(master or "local[*]").config(map=settings), master or "this machine")
    context = spark.sparkContext
    # Where Java's words go is settled when it starts (`_unheard`); on executors they are in the cluster's logs.
    context.setLogLevel("WARN" if _is_debug() else "ERROR")
    if _is_debug():
        print(f"overweave: Spark {context.applicationId} on {context.master}, {context.uiWebUrl or 'no UI'}", file=sys.stderr)
    if not local:
        ship_package(spark)
    ship_distributions(spark)
    return spark


@contextmanager
def session(
    master: str | None = None, *, memory_mb: int | None = None, quick: bool = False, conf: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """A session that is always stopped at the end; errors of the input are `InvalidInput`. ``quick`` suits small data.

    An active session of this process is reused and not stopped.
    """
    before = SparkSession.getActiveSession()
    spark = make_session(master, memory_mb=memory_mb, quick=quick, conf=conf) if before is None else before
    try:
        with translate_errors():
            yield spark
    finally:
        if before is None:
            spark.stop()


def _settings(conf: Sequence[str]) -> dict[str, bool | float | int | str | None]:
    """Settings as they are given on the command line.

    >>> _settings(["spark.executor.memory=2g"])
    {'spark.executor.memory': '2g'}
    """
    found: dict[str, bool | float | int | str | None] = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise InvalidInput(f"--conf: expected spark.KEY=VALUE, found {each!r}")
        found[key.strip()] = value.strip()
    return found


def _is_debug() -> bool:
    return os.environ.get("OVERWEAVE_DEBUG", "0") not in ("", "0")


def _started(builder: SparkSession.Builder, where: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JJavaError) as error:
        raise OverweaveError(f"Spark cannot start on {where}: {first_line(error)}") from None


@contextmanager
def _unheard() -> Iterator[None]:
    """Have Java, which is started inside, write to nowhere: what goes wrong comes as an exception, all else is noise."""
    if _is_debug():
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def check_java() -> None:
    """Raise an error with a remedy unless there is a suitable Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    remedy = f"expected Java {JAVA_MIN} or newer; on Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless"
    if java is None:
        raise OverweaveError(f"Spark needs Java, and there is none: {remedy}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_MIN:
        raise OverweaveError(f"Spark cannot run on this Java ({told.splitlines()[0] if told else java}): {remedy}")


def _default_memory_mb() -> int:
    """A quarter of what there is: tables are larger than memory anyway, and workers in Python want their share."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1024, min(total // 4 // (1 << 20), 16_384))
