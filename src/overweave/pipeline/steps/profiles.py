"""Profiles: what every subscription got of every publisher, as bounded bit vectors, and what publishers send (THESIS ch 6).

One pass over the trace: a row sets one bit, and bits are united, so that rows which come late, twice or in any order change
nothing. The windows of all profiles of a publisher end at its last sequence number that the trace has. The thesis shifts
its vectors as the window moves; ours are rings, which say the same and can be united without looking where they begin.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import PROFILES, PUBLISHER_PROFILES

#: THESIS ch 6 keeps so many of each publisher's last publications.
BITS = 1_280
_WORD = 64


def profiled(deliveries: DataFrame, bits: int = BITS) -> DataFrame:
    """The table `PROFILES` of one run's deliveries."""
    if bits < _WORD or bits % _WORD:
        raise InvalidInput(f"bits: expected a multiple of {_WORD} from {_WORD} on, got {bits}")
    ends = deliveries.groupBy("publisher").agg(F.max("sequence").alias("last_sequence"))
    place = F.pmod(F.col("sequence"), F.lit(bits))
    # A publisher has many rows, and there are few publishers: their ends go to where the rows are.
    rows = deliveries.where("subscription is not null").join(F.broadcast(ends), "publisher")
    rows = rows.where(F.col("sequence") > F.col("last_sequence") - bits).select(
        "subscription",
        "publisher",
        "last_sequence",
        (place / _WORD).cast("int").alias("word"),
        F.call_function("shiftleft", F.lit(1).cast("bigint"), (place % _WORD).cast("int")).alias("mask"),
    )
    words = [F.bit_or(F.when(F.col("word") == i, F.col("mask")).otherwise(F.lit(0).cast("bigint"))) for i in range(bits // _WORD)]
    united = rows.groupBy("subscription", "publisher").agg(
        F.max("last_sequence").alias("last_sequence"), F.array(*words).alias("words")
    )
    first = F.greatest(F.col("last_sequence") - (bits - 1), F.lit(0))
    return united.withColumns({"first_sequence": first, "count": _ones("words")}).select(PROFILES.fieldNames())


def publishers_profiled(deliveries: DataFrame) -> DataFrame:
    """The table `PUBLISHER_PROFILES`: a publication is counted where it entered the network, however many wanted it there."""
    entered = (
        deliveries.where("hops = 0")
        .groupBy("publisher", "sequence")
        .agg(F.min("published_at_s").alias("at_s"), F.max("bytes").alias("bytes"), F.max("broker").alias("broker"))
    )
    lasted_s = F.max("at_s") - F.min("at_s")
    count, total = F.count("*"), F.sum("bytes")
    # Between n publications there are n - 1 intervals.
    rate_hz = F.when(lasted_s > 0, (count - 1) / lasted_s).otherwise(0.0)
    found = entered.groupBy("publisher").agg(
        F.max_by("broker", "sequence").alias("broker"),
        F.max("sequence").alias("last_sequence"),
        count.alias("publications"),
        rate_hz.alias("rate_hz"),
        (rate_hz * total / count).alias("bytes_per_s"),
        (total / count).alias("message_bytes"),
    )
    return found.select(PUBLISHER_PROFILES.fieldNames())


def _ones(words: str) -> Column:
    return F.aggregate(words, F.lit(0).cast("bigint"), lambda so_far, word: so_far + F.bit_count(word))
