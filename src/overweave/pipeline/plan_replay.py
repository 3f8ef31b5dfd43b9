"""Prediction against truth: what a plan says of every broker, and what publications do when they are replayed on it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.pipeline.index_file import build_index
from overweave.pipeline.locations import LocationLike
from overweave.pipeline.steps.replay import replayed
from overweave.pipeline.tables import read_table
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of a plan, as predicted and as replayed."""

    input_hz: float
    input_hz_replayed: float
    output_utilisation: float
    output_utilisation_replayed: float


def evaluate(
    spark: SparkSession, plan: Plan, problem: Problem, subscriptions: LocationLike, publications: LocationLike, scratch: Path
) -> Mapping[str, Evaluated]:
    """Replay a table of publications on a plan.

    Counts become rates by the time that these publications take at all publishers' rates together, and bytes by the mean
    size of what is published; both are exact where publishers are alike, as in the scenarios of the thesis.
    """
    sent, wanted = read_table(spark, publications, "publications"), read_table(spark, subscriptions, "subscriptions")
    count = sent.count()
    rate_hz = float(problem.publishers.rate_hz.sum())
    if not count or rate_hz <= 0:
        raise InvalidInput(f"{publications}: expected publications to replay, found none")
    build_index(wanted, scratch / "replay-index")
    places = spark.createDataFrame(sorted(plan.publishers.items()), "publisher string, broker string")
    homes = spark.createDataFrame(sorted(plan.clients.items()), "client string, broker string")
    placed = wanted.drop("broker").join(homes, "client", "left").select("subscription", F.col("broker"))
    found = replayed(sent, scratch / "replay-index", Overlay(plan.brokers, plan.links), places, placed).collect()
    duration_s, message_bytes = count / rate_hz, float(problem.publishers.bytes_per_s.sum()) / rate_hz
    bandwidth = dict(zip(problem.pool.ids, problem.pool.bandwidth_bytes_per_s.tolist(), strict=True))
    return {
        row.broker: Evaluated(
            input_hz=plan.load[row.broker].input_hz,
            input_hz_replayed=row.arrivals / duration_s,
            output_utilisation=plan.load[row.broker].output_utilisation,
            output_utilisation_replayed=(row.forwards + row.deliveries) * message_bytes / duration_s / bandwidth[row.broker],
        )
        for row in sorted(found, key=lambda row: plan.brokers.index(row.broker))
    }
