"""Subscription lifetimes: client, broker, filter and withdrawal, also of subscriptions without deliveries.

Statements have all of it. A trace without them only has the subscriptions with deliveries, their clients and brokers.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.pipeline.schemas import SUBSCRIPTION_LIFETIMES

_LAST = ("client", "broker")


def delivered_subscriptions(deliveries: DataFrame) -> DataFrame:
    """Subscriptions that got something, with their client and broker when they did last; parts of a trace can be put together."""
    got = deliveries.where("subscription is not null").withColumn("last", F.struct("arrived_at_s", *_LAST))
    return got.groupBy("subscription").agg(F.max("last").alias("last"))


def merge_delivered(parts: DataFrame) -> DataFrame:
    """`delivered_subscriptions` of parts of a trace as those of the whole."""
    return parts.groupBy("subscription").agg(F.max("last").alias("last"))


def subscriptions_of(statements: DataFrame, delivered: DataFrame) -> DataFrame:
    """The table `SUBSCRIPTION_LIFETIMES` of a run's statements and of `delivered_subscriptions`."""
    held = F.col("kind") == "subscribe"
    last = F.struct("at_s", *_LAST, "filter")
    stated = (
        statements.where(F.col("kind").isin("subscribe", "unsubscribe"))
        .groupBy(F.col("id").alias("subscription"), "broker")
        .agg(F.max(F.when(held, last)).alias("stated"), F.max(F.when(~held, F.col("at_s"))).alias("withdrawn_at_s"))
        .where("stated is not null")
        # A subscription that migrates is withdrawn at its earlier brokers, and stays in force at the last one.
        .groupBy("subscription")
        .agg(F.max(F.struct("stated", "withdrawn_at_s")).alias("at_broker"))
        .select("subscription", "at_broker.*")
    )
    # A changed filter is a withdrawal and a subscription at the same time, and stays in force.
    withdrawn = F.when(F.col("withdrawn_at_s") > F.col("stated.at_s"), F.col("withdrawn_at_s"))
    return (
        stated.join(delivered, "subscription", "full")
        .select(
            "subscription",
            *(F.coalesce(f"stated.{name}", f"last.{name}").alias(name) for name in _LAST),
            F.col("stated.filter").alias("filter"),
            F.col("stated.at_s").alias("subscribed_at_s"),
            withdrawn.alias("withdrawn_at_s"),
        )
        .select(SUBSCRIPTION_LIFETIMES.fieldNames())
    )
