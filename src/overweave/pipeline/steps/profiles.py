"""Profiles: what every subscription got of every publisher, as bounded bit vectors, and what publishers send (THESIS ch 6).

One pass over the trace: a row sets one bit, and bits are united, so that rows which come late, twice or in any order change
nothing. The windows of all profiles of a publisher end at its last sequence number that the trace has. The thesis shifts
its vectors as the window moves; ours are rings, which say the same and can be united without looking where they begin. That
also keeps profiles up to date while a trace grows: those of the new rows are united with those there were.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import PROFILES, PUBLISHER_PROFILES

#: THESIS ch 6 keeps so many of each publisher's last publications.
BITS = 1_280
_WORD = 64


def profiled(deliveries: DataFrame, bits: int = BITS) -> DataFrame:
    """The table `PROFILES` of one run's deliveries.

    Rows are put into one ring for each turn of it, and the few turns there are then united: so a row need not know where the
    window of its publisher ends. What is before the windows of all publishers is left out at once.
    """
    check_bits(bits)
    ends = ends_of(deliveries)
    first = ends.agg(F.min("last_sequence") - bits).scalar()
    rows = deliveries.where(F.col("subscription").isNotNull() & (F.col("sequence") > first)).select(
        "subscription",
        "publisher",
        F.expr(f"(sequence div {bits}L + 1) * {bits}L - 1").alias("last_sequence"),
        F.expr(f"cast(pmod(sequence, {bits}L) div {_WORD} as int)").alias("word"),
        # A multiple of a word's bits is a whole number of words: the place within a word is that of the sequence number itself.
        F.expr(f"shiftleft(1L, cast(sequence & {_WORD - 1} as int))").alias("mask"),
    )
    turns = _rings(rows, [f"bit_or(if(word = {i}, mask, 0L))" for i in range(bits // _WORD)], "last_sequence")
    return united(turns, ends, bits)


def united(profiles: DataFrame, ends: DataFrame, bits: int = BITS) -> DataFrame:
    """Profiles of several parts of a trace as those of the whole, whose publishers end at ``ends``.

    The window of each part is moved to the end first, that is, the places of what falls out of it are cleared. A profile with
    nothing left in its window is dropped, since nothing of it would be in the window of the whole either.
    """
    check_bits(bits)
    moved = (
        profiles.drop("first_sequence", "count").withColumnRenamed("last_sequence", "end").join(F.broadcast(ends), "publisher")
    )
    # Most windows end where their publisher's does already, and functions of arrays are slow.
    cleared = F.transform("words", lambda word, i: word.bitwiseAND(F.bitwise_not(_left_behind(i, bits))))
    kept = moved.withColumn("words", F.when(F.col("end") < F.col("last_sequence"), cleared).otherwise(F.col("words")))
    return _told(_rings(kept, [f"bit_or(words[{i}])" for i in range(bits // _WORD)]), bits).where(F.col("count") > 0)


def ends_of(deliveries: DataFrame) -> DataFrame:
    """The last sequence number of every publisher."""
    return deliveries.groupBy("publisher").agg(F.max("sequence").alias("last_sequence"))


def publisher_parts(deliveries: DataFrame, *by: str) -> DataFrame:
    """What can be counted of publishers in parts: a publication where it entered the network, however many wanted it there."""
    entered = (
        deliveries.where("hops = 0")
        .groupBy(*by, "publisher", "sequence")
        .agg(F.min("published_at_s").alias("at_s"), F.max("bytes").alias("bytes"), F.max("broker").alias("broker"))
    )
    return entered.groupBy(*by, "publisher").agg(
        F.max_by("broker", "sequence").alias("broker"),
        F.max("sequence").alias("last_sequence"),
        F.count("*").alias("publications"),
        F.sum("bytes").alias("bytes"),
        F.min("at_s").alias("first_at_s"),
        F.max("at_s").alias("last_at_s"),
    )


def publishers_of(parts: DataFrame) -> DataFrame:
    """The table `PUBLISHER_PROFILES` of `publisher_parts`; those of one publisher may not overlap."""
    lasted_s = F.max("last_at_s") - F.min("first_at_s")
    count, total = F.sum("publications"), F.sum("bytes")
    # Between n publications there are n - 1 intervals.
    rate_hz = F.when(lasted_s > 0, (count - 1) / lasted_s).otherwise(0.0)
    found = parts.groupBy("publisher").agg(
        F.max_by("broker", "last_sequence").alias("broker"),
        F.max("last_sequence").alias("last_sequence"),
        count.alias("publications"),
        rate_hz.alias("rate_hz"),
        (rate_hz * total / count).alias("bytes_per_s"),
        (total / count).alias("message_bytes"),
    )
    return found.select(PUBLISHER_PROFILES.fieldNames())


def publishers_profiled(deliveries: DataFrame) -> DataFrame:
    """The table `PUBLISHER_PROFILES`."""
    return publishers_of(publisher_parts(deliveries))


def check_bits(bits: int) -> None:
    """Refuse what is no number of whole words."""
    if bits < _WORD or bits % _WORD:
        raise InvalidInput(f"bits: expected a multiple of {_WORD} from {_WORD} on, got {bits}")


def _rings(rows: DataFrame, words: list[str], *by: str) -> DataFrame:
    """The rows of each subscription and publisher as one. ``words`` are text, for Python is slow to build so many expressions."""
    ring = F.expr(f"array({', '.join(words)})").alias("words")
    if by:
        return rows.groupBy("subscription", "publisher", *by).agg(ring)
    return rows.groupBy("subscription", "publisher").agg(F.max("last_sequence").alias("last_sequence"), ring)


def _told(rings: DataFrame, bits: int) -> DataFrame:
    """Rings with what else `PROFILES` says of them."""
    first = F.greatest(F.col("last_sequence") - (bits - 1), F.lit(0))
    ones = F.expr(" + ".join(f"bit_count(words[{i}])" for i in range(bits // _WORD))).cast("bigint")
    return rings.withColumns({"first_sequence": first, "count": ones}).select(PROFILES.fieldNames())


def _left_behind(word: Column, bits: int) -> Column:
    """The places, in one word of a ring, of what leaves the window when its end moves from ``end`` to ``last_sequence``.

    These are as many places as the end moves on, from the one after ``end``, and round the ring: so they are one range, or,
    where it goes beyond the last place, this and the same range a turn of the ring before.
    """
    begin = F.pmod(F.col("end") + 1, F.lit(bits)) - word * _WORD
    after = begin + F.least(F.col("last_sequence") - F.col("end"), F.lit(bits))
    once, again = (_below(after - turn).bitwiseAND(F.bitwise_not(_below(begin - turn))) for turn in (0, bits))
    return once.bitwiseOR(again)


def _below(place: Column) -> Column:
    """All places of a word below one that may lie outside."""
    inside = F.least(F.greatest(place, F.lit(0)), F.lit(_WORD)).cast("int")
    all = F.lit(-1).cast("bigint")
    return F.when(inside >= _WORD, all).otherwise(F.bitwise_not(F.call_function("shiftleft", all, inside)))
