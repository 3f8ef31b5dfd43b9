"""Profiles of made-up traces on Spark, against pandas and numpy in one process; and the memory that it takes.

A trace has steps: in each, every publisher publishes once, and a fifth of its subscriptions get it. So every subscription has one
profile, and what is in it is known. Memory is measured in a process of its own for each size, with the same small heap: in local
mode the executors live in the driver's Java, so that this is the peak of all of them. That heap may be full of what is
garbage; what is still in use at the end is told beside it.
"""

import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.bench.base import Progress, Row
from overweave.pipeline.session import session
from overweave.pipeline.steps.profiles import BITS, subscription_profiles
from overweave.pipeline.tables import read_table, write_table

PUBLISHERS, SUBSCRIPTIONS, BROKERS = 40, 80_000, 80
#: The steps between two deliveries of a subscription.
EVERY = 5
PER_STEP = SUBSCRIPTIONS // EVERY
PER_FILE = 1_000_000
#: The limit of rows of the baseline, whose time is reported per row.
SAMPLE = 1_000_000
#: Repetitions, of which the best counts: Java compiles hot code.
TURNS = 6
#: The heap of Java when memory is measured.
HEAP_MB = 1024
_WORD = 64


class Memory(msgspec.Struct, frozen=True):
    """What a process took to profile a trace, in MB."""

    java_peak: float
    java_in_use: float
    python_peak: float


def trace(spark: SparkSession, deliveries: int) -> DataFrame:
    """Rows of a trace, in the order of time, without ``run``."""
    row = F.col("id")
    step, place = F.floor(row / PER_STEP).cast("long"), row % PER_STEP
    subscription, publisher = EVERY * place + step % EVERY, F.floor(place / (PER_STEP // PUBLISHERS)).cast("long")
    broker = subscription % BROKERS
    return spark.range(0, deliveries, 1, -(-deliveries // PER_FILE)).select(
        _named("p", publisher).alias("publisher"),
        step.alias("sequence"),
        _named("B", broker).alias("broker"),
        _named("s", subscription).alias("subscription"),
        _named("c", subscription).alias("client"),
        F.when(broker == publisher, 0).otherwise(3).cast("int").alias("hops"),
        step.cast("double").alias("published_at_s"),
        (step + broker / 1000).cast("double").alias("arrived_at_s"),
        F.lit(200).cast("long").alias("bytes"),
    )


def measure_time(spark: SparkSession, progress: Progress, directory: Path, deliveries: int) -> list[Row]:
    """From files to files, against one process that has a sample."""
    title, unit = f"{deliveries:,} deliveries", "µs per delivery"
    progress(f"{title}: writing")
    write_table(trace(spark, deliveries), directory / "run=bench")
    sample = directory.with_name(f"{directory.name}-sample")
    write_table(trace(spark, min(deliveries, SAMPLE)), sample / "run=bench", 1)
    progress(f"{title}: a sample with pandas")
    baseline_us, expected = _by_pandas(sample)
    # The same sample warms Spark, and must have the same result.
    found = subscription_profiles(read_table(spark, sample, "deliveries")).select("subscription", "publisher", "words").toPandas()
    assert _same(found, expected)
    taken = []
    for turn in range(TURNS):
        progress(f"{title}: profiles, {turn + 1} of {TURNS}")
        start = perf_counter()
        write_table(
            subscription_profiles(read_table(spark, directory, "deliveries")), directory.with_name(f"{directory.name}-profiles")
        )
        taken.append(perf_counter() - start)
    taken_s = min(taken)
    profiles = spark.read.parquet(f"{directory}-profiles")
    (row,) = profiles.agg(F.count("*").alias("profiles"), F.sum("count").alias("bits")).collect()
    kept = min(deliveries, BITS * PER_STEP)
    assert (row.profiles, row.bits) == (min(SUBSCRIPTIONS, kept), kept)
    return [
        Row(f"{title}: {row.profiles:,} profiles, against pandas", unit, taken_s * 1e6 / deliveries, baseline_us),
        Row(f"{title}: {row.profiles:,} profiles", "deliveries per second", deliveries / taken_s),
        Row(f"{title}: the first time, while Java compiles", "deliveries per second", deliveries / taken[0]),
    ]


def measure_memory(progress: Progress, directories: dict[int, Path]) -> list[Row]:
    """Each size next to the smallest."""
    found: dict[int, Memory] = {}
    for deliveries, directory in sorted(directories.items()):
        progress(f"{deliveries:,} deliveries: memory")
        call = f"from overweave.bench.traces import tell_memory; tell_memory({str(directory)!r})"
        said = subprocess.run([sys.executable, "-c", call], capture_output=True, check=True)
        found[deliveries] = msgspec.json.decode(said.stdout, type=Memory)
    least = found[min(found)]
    words = {
        "java_peak": f"peak of Java with a heap of {HEAP_MB:,} MB",
        "java_in_use": "of its heap in use at the end",
        "python_peak": "peak of the driver's Python",
    }
    return [
        Row(f"{deliveries:,} deliveries: {text}", "MB", getattr(memory, name), getattr(least, name))
        for deliveries, memory in found.items()
        for name, text in words.items()
    ]


def tell_memory(directory: str) -> None:
    """Profile a trace, and write to stdout what it took; for a process of its own."""
    with session(memory_mb=HEAP_MB) as spark:
        write_table(subscription_profiles(read_table(spark, directory, "deliveries")), f"{directory}-profiles")
        java = java_of(spark)
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        in_use = (runtime.totalMemory() - runtime.freeMemory()) / (1 << 20)
        memory = Memory(peak_mb(java.ProcessHandle.current().pid()), in_use, peak_mb("self"))
    sys.stdout.buffer.write(msgspec.json.encode(memory))


def java_of(spark: SparkSession) -> Any:
    """What belongs to Java's language itself, in the process of the driver."""
    machine: Any = spark._jvm
    return machine.java.lang


def peak_mb(process: int | str) -> float:
    """The most that a process of this machine ever had in memory."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _by_pandas(directory: Path) -> tuple[float, pd.DataFrame]:
    """The profiles of a trace as one would write it with pandas and numpy; what a row took, reading included."""
    start = perf_counter()
    rows = pd.read_parquet(directory, columns=["subscription", "publisher", "sequence"])
    last = rows.groupby("publisher")["sequence"].transform("max")
    rows = rows[rows["sequence"] > last - BITS]
    grouped = rows.groupby(["subscription", "publisher"], sort=False)
    places = rows["sequence"].to_numpy() % BITS
    words = np.zeros((grouped.ngroups, BITS // _WORD), np.uint64)
    np.bitwise_or.at(words, (grouped.ngroup().to_numpy(), places // _WORD), np.uint64(1) << (places % _WORD).astype(np.uint64))
    profiles = grouped.first().index.to_frame(index=False).assign(words=list(words.view(np.int64)))
    return (perf_counter() - start) * 1e6 / max(1, len(last)), profiles


def _same(found: pd.DataFrame, expected: pd.DataFrame) -> bool:
    both = found.merge(expected, on=["subscription", "publisher"])
    equal = np.array_equal(np.array(both["words_x"].tolist()), np.array(both["words_y"].tolist()))
    return len(both) == len(found) == len(expected) and equal


def _named(prefix: str, number: Column) -> Column:
    return F.concat(F.lit(prefix), (number + 1).cast("string"))
