"""Prediction against truth: publications on a plan, replayed on Spark and, where it is small enough, in the simulator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row, SparkSession

from overweave.drivers.sim.plan_run import BrokerWork, run_plan
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.pipeline.index_file import build_index
from overweave.pipeline.locations import LocationLike
from overweave.pipeline.plan_simulation import planned_network
from overweave.pipeline.steps.plan_load import Placed, plan_load
from overweave.pipeline.tables import read_table
from overweave.planning.evaluation import BrokerEvaluation, Evaluation, deviation
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem

#: Plans with more brokers, or publications that mean more messages than this, are simulated only if asked for.
SIMULATED_BROKERS_MAX, SIMULATED_MESSAGES_MAX = 40, 500_000
BY = ("replay", "simulator")
#: The sequence numbers of each publisher's first and last publication that the profiles hold.
Windows = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Truth:
    """What a plan is evaluated by."""

    subscriptions: LocationLike
    publications: LocationLike
    #: None: all publications count, profiled or not.
    windows: Windows | None = None
    #: Advertisements of publishers; those of others are made of what they publish.
    advertisements: Mapping[str, str] | None = None
    #: None: by the simulator where the plan is small enough.
    by: Sequence[str] | None = None


def evaluate(
    spark: SparkSession,
    plan: Plan,
    problem: Problem,
    truth: Truth,
    scratch: Path,
    show: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Put a table of publications on a plan.

    *The profiled publications* are those of the table whose sequence numbers are in the window of their publisher's profiles: of
    a table that is longer than the windows, its end. They are evaluated alone if the table has any of them, as that is what
    the plan predicts; else all of the table is. A publication counts as its share of its publisher's rate, and its bytes
    are the publisher's mean.
    """
    given = read_table(spark, truth.publications, "publications")
    wanted = read_table(spark, truth.subscriptions, "subscriptions")
    _check_publishers(given, problem, truth.publications)
    sent, on = _profiled(given, truth.windows)
    counts = {row.publisher: row["count"] for row in sent.groupBy("publisher").count().collect()}
    publications = sum(counts.values())
    if not publications or not problem.publishers.rate_hz.sum() > 0:
        raise InvalidInput(f"{truth.publications}: expected publications to evaluate, found none")
    show("replaying")
    build_index(wanted, scratch / "replay-index")
    overlay = Overlay(plan.brokers, plan.links)
    rows = plan_load(sent, scratch / "replay-index", overlay, _placed(plan, problem, counts)).collect()
    replayed = {row.broker: row for row in rows}
    messages = sum(row.arrivals + row.messages for row in rows)
    work, why = None, _why_not(truth.by, len(plan.brokers), messages)
    if why is None:
        show("simulating")
        work = run_plan(planned_network(plan, problem, overlay, wanted, sent, truth.advertisements or {}))
    brokers = _compared(plan, problem, replayed, work)
    outputs = [each.output_utilisation_replayed for each in brokers.values()]
    return Evaluation(
        on=on,
        publications=publications,
        publications_given=publications if on == "all" else given.count(),
        publishers_without=sum(
            rate > 0 and id not in counts
            for id, rate in zip(problem.publishers.ids, problem.publishers.rate_hz.tolist(), strict=True)
        ),
        brokers=brokers,
        input_deviation_replayed=deviation(brokers, "replayed") or 0.0,
        input_deviation_simulated=deviation(brokers, "simulated"),
        output_utilisation_max=max(outputs),
        overloaded=sum(each > 1 for each in outputs),
        not_simulated=why,
    )


def _check_publishers(given: DataFrame, problem: Problem, path: LocationLike) -> None:
    known = set(problem.publishers.ids)
    for row in given.select("publisher").distinct().orderBy("publisher").collect():
        if row.publisher not in known:
            raise InvalidInput(f"{path}: publisher {row.publisher!r}: expected one that the plan places")


def _profiled(given: DataFrame, windows: Windows | None) -> tuple[DataFrame, Literal["profiled", "all"]]:
    """The publications that the profiles hold; all, where there are none of these."""
    if not windows:
        return given, "all"
    rows = [(id, first, last) for id, (first, last) in windows.items()]
    ends = given.sparkSession.createDataFrame(rows, "publisher string, first long, last long")
    inside = given.join(ends, "publisher").where("sequence between first and last").select(given.columns)
    return (given, "all") if inside.isEmpty() else (inside, "profiled")


def _placed(plan: Plan, problem: Problem, counts: Mapping[str, int]) -> Placed:
    position = {id: i for i, id in enumerate(plan.brokers)}
    publishers, units = problem.publishers, problem.units
    each = np.array([max(counts.get(id, 0), 1) for id in publishers.ids], np.float64)
    return Placed(
        publishers.ids,
        _positions(position, plan.publishers, publishers.ids),
        publishers.rate_hz / each,
        publishers.bytes_per_s / each,
        units.subscriptions,
        units.subscription_unit,
        _positions(position, plan.clients, units.ids),
    )


def _positions(position: Mapping[str, int], places: Mapping[str, str], ids: Sequence[str]) -> NDArray[np.int64]:
    return np.array([position[places[id]] for id in ids], np.int64)


def _why_not(by: Sequence[str] | None, brokers: int, messages: int) -> str | None:
    if by is not None:
        return None if "simulator" in by else "the simulator was not asked for"
    if brokers > SIMULATED_BROKERS_MAX:
        return f"{brokers:,} brokers are more than {SIMULATED_BROKERS_MAX}; --evaluate-by replay,simulator takes its time"
    if messages > SIMULATED_MESSAGES_MAX:
        return f"{messages:,} messages are more than {SIMULATED_MESSAGES_MAX:,}; --evaluate-by replay,simulator takes its time"
    return None


def _compared(
    plan: Plan, problem: Problem, replayed: Mapping[str, Row], work: Mapping[str, BrokerWork] | None
) -> dict[str, BrokerEvaluation]:
    bandwidth = dict(zip(problem.pool.ids, problem.pool.bandwidth_bytes_per_s.tolist(), strict=True))
    found = {}
    for id in plan.brokers:
        real, simulated = replayed[id], None if work is None else work[id]
        found[id] = BrokerEvaluation(
            input_hz=plan.load[id].input_hz,
            input_hz_replayed=real.input_hz,
            input_hz_simulated=None if simulated is None else simulated.input_hz,
            output_utilisation=plan.load[id].output_utilisation,
            output_utilisation_replayed=real.output_bytes_per_s / bandwidth[id],
            output_utilisation_simulated=None if simulated is None else simulated.output_bytes_per_s / bandwidth[id],
            uplink_busy_simulated=None if simulated is None else simulated.uplink_busy,
        )
    return found
