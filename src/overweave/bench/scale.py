"""``overweave bench scale``: from profiles in Parquet to a plan by CRAM, up to a million subscriptions and beyond.

A case is made by Spark first (see `scale_tables`), which is not measured. Then a process of its own does what ``overweave plan``
does: it starts Spark where the case is large, reads, plans and writes the plan. Times are of the whole, as the clock has it and
as processors spent it in all processes, which a busy machine does not change much. Memory is the peak of the driver: its Python
and its Java, in which the tasks of a local session run too, but not their Python workers. With several publishers per filter,
brokers are of three sizes.
"""

import contextlib
import itertools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from overweave.bench.base import Progress, Row
from overweave.bench.scale_tables import Shape, write_case
from overweave.bench.traces import java_of, peak_mb
from overweave.pipeline.plan_brokers import Network, read_brokers
from overweave.pipeline.plan_files import write_plan
from overweave.pipeline.plan_parts import run_on
from overweave.pipeline.plan_scale import SESSION_MEMORY_MB, is_large, read_large_problem
from overweave.pipeline.planning import read_problem
from overweave.pipeline.session import session
from overweave.planning.allocate.cram.parts import run_here
from overweave.planning.make import make_plan
from overweave.planning.problem import Goals, Problem

#: Promised for one publisher per filter: minutes, memory, and the growth of the cost from the second largest case on.
MINUTES_MAX, DRIVER_GB_MAX, EXPONENT_MAX = 6, 6, 1.3
_PROC = Path("/proc")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one case took."""

    subscriptions: int
    per_filter: int
    algorithm: str
    seconds: float
    #: Of all processes, and of these the driver's own.
    cpu_s: float
    driver_cpu_s: float
    read_s: float
    python_mb: float
    java_mb: float
    vectors: int
    components: int
    brokers: int
    brokers_offered: int
    clusters: int
    input_hz_mean: float


def run(
    progress: Progress,
    subscriptions: Sequence[int] = (8_000, 100_000, 1_000_000),
    per_filter: Sequence[int] = (1, 3),
    algorithm: str = "cram-iou",
    out: Path | None = None,
) -> list[Row]:
    """Measure all cases; the figures and a plot of them go to ``out``."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for each in per_filter:
            for count in sorted(subscriptions):
                progress(f"{count:,} subscriptions, {each} per filter")
                shape = Shape(count, each, sizes=each > 1)
                found.append(measure(shape, algorithm, Path(scratch) / f"{count}-{each}"))
    if out is not None:
        write_figures(found, out)
    return [*(row for each in found for row in _rows(each)), *_exponents(found)]


def measure(shape: Shape, algorithm: str, directory: Path) -> Measured:
    """Make a case, and plan it in a process of its own."""
    if not directory.exists():
        with session(memory_mb=SESSION_MEMORY_MB) as spark:
            write_case(spark, shape, directory)
    told = directory.with_name(f"{directory.name}.json")
    call = f"from overweave.bench.scale import tell; tell({str(directory)!r}, {str(told)!r}, {shape.per_filter}, {algorithm!r})"
    subprocess.run([sys.executable, "-c", call], check=True)
    return msgspec.json.decode(told.read_bytes(), type=Measured)


def tell(directory: str, told: str, per_filter: int, algorithm: str) -> None:
    """Plan a case and write what it took; for a process of its own."""
    source, began_s = Path(directory), perf_counter()
    network = Network(read_brokers(source / "brokers"))
    java: int | None = None
    with contextlib.ExitStack() as stack:
        if is_large(source):
            spark = stack.enter_context(session(memory_mb=SESSION_MEMORY_MB))
            java = int(java_of(spark).ProcessHandle.current().pid())
            problem = read_large_problem(spark, source, network, Goals())
            run_parts = run_on(spark, lambda text: print(f"overweave: {text}", file=sys.stderr))
        else:
            problem, run_parts = read_problem(source, network, Goals()), run_here
        read_s = perf_counter() - began_s
        plan = make_plan(problem, algorithm, run_parts=run_parts)
        write_plan(plan, source / "plan.json")
        found = Measured(
            subscriptions=len(problem.units),
            per_filter=per_filter,
            algorithm=algorithm,
            seconds=perf_counter() - began_s,
            cpu_s=_cpu_s(os.getpid()),
            driver_cpu_s=sum(os.times()[:2]),
            read_s=read_s,
            python_mb=peak_mb("self"),
            java_mb=peak_mb(java) if java is not None else 0.0,
            vectors=len(problem.vectors),
            components=components(problem),
            brokers=plan.totals.brokers,
            brokers_offered=len(problem.pool),
            clusters=plan.totals.clusters,
            input_hz_mean=plan.totals.input_hz_mean,
        )
        Path(told).write_bytes(msgspec.json.encode(found))


def components(problem: Problem) -> int:
    """How many parts of the graph of clients and publishers hang together, those without any client left out."""
    units, publisher = problem.units, problem.vectors.publisher[problem.units.rows]
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    inside = np.flatnonzero(np.diff(owner) == 0)
    parent = {each: each for each in np.unique(publisher).tolist()}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for one, other in np.unique(np.stack([publisher[inside], publisher[inside + 1]], axis=1), axis=0).tolist():
        parent[root(one)] = root(other)
    return len({root(each) for each in parent})


def _cpu_s(process: int) -> float:
    """The CPU time of a process and its descendants so far, including those that ended."""
    return sum(_own_cpu_s(each) for each in (process, *_below(process)))


def _own_cpu_s(process: int) -> float:
    try:
        fields = (_PROC / str(process) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _below(process: int) -> Iterator[int]:
    for path in (_PROC / str(process) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text(encoding="utf-8").split()):
                yield child
                yield from _below(child)


def _rows(measured: Measured) -> Iterator[Row]:
    promised = measured.per_filter == 1 and measured.subscriptions == 1_000_000
    name = f"{measured.subscriptions:,} subscriptions, {measured.per_filter} per filter"
    yield Row(f"{name}: Parquet to plan{f', at most {60 * MINUTES_MAX} s' if promised else ''}", "s", measured.seconds)
    yield Row(f"{name}: processors", "s", measured.cpu_s)
    peak = (measured.python_mb + measured.java_mb) / 1024
    yield Row(f"{name}: driver's peak{f', at most {DRIVER_GB_MAX}' if promised else ''}", "GB", peak)
    for what in ("vectors", "components", "clusters", "brokers"):
        yield Row(f"{name}: {what}", "", getattr(measured, what))


def exponent(small: Measured, large: Measured, field: str) -> float:
    """How the cost grows: it is the number of subscriptions to this power."""
    return math.log(getattr(large, field) / getattr(small, field)) / math.log(large.subscriptions / small.subscriptions)


def _exponents(found: Sequence[Measured]) -> Iterator[Row]:
    for each in sorted({one.per_filter for one in found}):
        own = sorted((one for one in found if one.per_filter == each), key=lambda one: one.subscriptions)
        for small, large in itertools.pairwise(own):
            name = f"growth from {small.subscriptions:,} to {large.subscriptions:,}, {each} per filter"
            limit = f", at most {EXPONENT_MAX}" if each == 1 and large.subscriptions == 1_000_000 else ""
            yield Row(f"{name}: exponent of processors' time{limit}", "", exponent(small, large, "cpu_s"))
            yield Row(f"{name}: exponent of time", "", exponent(small, large, "seconds"))


def write_figures(found: Sequence[Measured], out: Path) -> None:
    """The figures as JSON, and a plot of processors' time over subscriptions."""
    from matplotlib.ticker import FixedLocator, NullLocator

    from overweave.reports.style import COLOURS, MARKERS, add_legend, new_figure, plain_numbers

    out.mkdir(parents=True, exist_ok=True)
    (out / "scale.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    caption = "From profiles in Parquet to a plan: processors' time of all processes, and the peak memory of the driver."
    with new_figure("scale", caption) as (figure, axes):
        for place, each in enumerate(sorted({one.per_filter for one in found})):
            own = sorted((one for one in found if one.per_filter == each), key=lambda one: one.subscriptions)
            x = [one.subscriptions for one in own]
            style: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place]}
            axes.plot(x, [one.cpu_s for one in own], label=f"{each}, processors' time (s)", **style)
            memory = [(one.python_mb + one.java_mb) / 1024 for one in own]
            axes.plot(x, memory, label=f"{each}, driver's peak (GB)", linestyle="--", **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted({one.subscriptions for one in found})))
        axes.xaxis.set_minor_locator(NullLocator())
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        axes.tick_params(axis="x", labelrotation=30)
        axes.set_xlabel("subscriptions")
        axes.set_ylabel("s, GB")
        add_legend(axes, "publishers per filter")
    (out / "scale.svg").write_text(figure.svg, encoding="utf-8")
    (out / "scale.png").write_bytes(figure.png)
