"""The profile of a workload, by the same steps as that of a trace: its matches are the deliveries."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.index_file import build_index
from overweave.pipeline.locations import LocationLike
from overweave.pipeline.plan_tables import WINDOW_ENDS, WINDOW_SIZE, WORKLOAD_TABLES, table_of
from overweave.pipeline.steps.match import subscription_matches
from overweave.pipeline.steps.profiles import BITS, subscription_profiles, windows_of
from overweave.pipeline.tables import read_table, write_tables


def profile_workload(spark: SparkSession, source: LocationLike, out: Path, bits: int = BITS) -> None:
    """Write the tables of a profile that plans need, as if the whole workload had been traced."""
    tables = {name: read_table(spark, table_of(source, name), name) for name in WORKLOAD_TABLES}
    publications, subscriptions = tables["publications"], tables["subscriptions"]
    build_index(subscriptions, out / "index")
    sent = publications.select("publisher", "sequence").distinct()
    _check_known(sent, tables["publishers"], source)
    # As in a trace, unmatched publications have no subscription: windows end at the last publication, matched or not.
    unwanted = sent.withColumn("subscription", F.lit(None).cast("string"))
    deliveries = subscription_matches(publications, out / "index").unionByName(unwanted)
    counted = windows_of(sent, bits).select("publisher", *WINDOW_ENDS, WINDOW_SIZE)
    publishers = (
        tables["publishers"]
        .join(counted, "publisher", "left")
        .select(
            "publisher",
            "broker",
            "rate_hz",
            (F.col("rate_hz") * F.col("message_bytes")).alias("bytes_per_s"),
            F.coalesce(WINDOW_SIZE, F.lit(0)).cast("bigint").alias(WINDOW_SIZE),
            *WINDOW_ENDS,
        )
    )
    found = subscription_profiles(deliveries, bits) if not sent.isEmpty() else subscription_profiles(deliveries.limit(0), bits)
    write_tables({out / "profiles": found, out / "publisher_profiles": publishers, out / "subscriptions": subscriptions})


def _check_known(sent: DataFrame, publishers: DataFrame, source: LocationLike) -> None:
    for row in sent.select("publisher").distinct().join(publishers, "publisher", "left_anti").orderBy("publisher").take(1):
        raise InvalidInput(f"{source}: publications: publisher {row.publisher!r}: expected one of the table publishers")
