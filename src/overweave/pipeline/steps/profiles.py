"""Profiles: the publications that each subscription received of each publisher, as bounded bit vectors, and rates (THESIS ch 6).

One pass over the trace: a row sets one bit, and bits are merged, so late, duplicate and unordered rows change nothing. The
windows of all profiles of a publisher end at its last sequence number in the trace. The thesis shifts its vectors as the
window moves; ours are rings, which are equivalent and can be merged without alignment. So profiles of new rows can be
merged into earlier ones while a trace grows.

A publisher also has such a vector: the used sequence numbers of its window. Live publishers start at any number and leave
gaps after a restart, so the ones of this vector are the number of publications in the window.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import PROFILES, PUBLISHER_PROFILES

#: The window of THESIS ch 6, in publications.
BITS = 1_280
_WORD = 64
_PROFILE = ("subscription", "publisher")


def subscription_profiles(deliveries: DataFrame, bits: int = BITS) -> DataFrame:
    """The table `PROFILES` of one run's deliveries.

    Rows are put into one ring for each turn of it, and the few turns there are then united: so a row need not know where the
    window of its publisher ends. What is before the windows of all publishers is left out at once.
    """
    check_bits(bits)
    rows = _in_some_window(deliveries, bits).where(F.col("subscription").isNotNull())
    return merge_profiles(_turns(rows, bits, *_PROFILE), windows_of(deliveries, bits), bits)


def merge_profiles(profiles: DataFrame, windows: DataFrame, bits: int = BITS) -> DataFrame:
    """Profiles of several parts of a trace as those of the whole, whose publishers have these ``windows``.

    The window of each part is moved to the end first, that is, the places of what falls out of it are cleared. A profile with
    nothing left in its window is dropped, since nothing of it would be in the window of the whole either.
    """
    check_bits(bits)
    ends = windows.select("publisher", "first_sequence", "last_sequence", "window_publications")
    found = _moved(profiles, ends, bits, *_PROFILE)
    return found.withColumn("count", _ones(bits)).where(F.col("count") > 0).select(PROFILES.fieldNames())


def windows_of(deliveries: DataFrame, bits: int = BITS) -> DataFrame:
    """The window of every publisher: where it begins and ends, and as ``words`` which publications were sent in it."""
    check_bits(bits)
    turns = _turns(_in_some_window(deliveries, bits), bits, "publisher")
    return _windows(turns, _ends_of(deliveries), bits)


def merge_windows(windows: DataFrame, bits: int = BITS) -> DataFrame:
    """Windows of several parts of a trace as those of the whole."""
    check_bits(bits)
    ends = windows.groupBy("publisher").agg(
        F.min("first_seen").alias("first_seen"), F.max("last_sequence").alias("last_sequence")
    )
    return _windows(windows, ends, bits)


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


def publishers_of(parts: DataFrame, windows: DataFrame) -> DataFrame:
    """The table `PUBLISHER_PROFILES` of `publisher_parts`, which may not overlap, and `windows_of`."""
    lasted_s = F.max("last_at_s") - F.min("first_at_s")
    count, total = F.sum("publications"), F.sum("bytes")
    # Between n publications there are n - 1 intervals.
    rate_hz = F.when(lasted_s > 0, (count - 1) / lasted_s).otherwise(0.0)
    found = parts.groupBy("publisher").agg(
        F.max_by("broker", "last_sequence").alias("broker"),
        count.alias("publications"),
        rate_hz.alias("rate_hz"),
        (rate_hz * total / count).alias("bytes_per_s"),
        (total / count).alias("message_bytes"),
    )
    return found.join(windows, "publisher").select(PUBLISHER_PROFILES.fieldNames())


def publisher_profiles(deliveries: DataFrame, bits: int = BITS) -> DataFrame:
    """The table `PUBLISHER_PROFILES`."""
    return publishers_of(publisher_parts(deliveries), windows_of(deliveries, bits))


def check_bits(bits: int) -> None:
    """Raise an error unless ``bits`` is a multiple of a word."""
    if bits < _WORD or bits % _WORD:
        raise InvalidInput(f"bits: expected a multiple of {_WORD} from {_WORD} on, got {bits}")


def _ends_of(deliveries: DataFrame) -> DataFrame:
    """The first and the last sequence number of every publisher."""
    ends = F.min("sequence").alias("first_seen"), F.max("sequence").alias("last_sequence")
    return deliveries.groupBy("publisher").agg(*ends)


def _in_some_window(deliveries: DataFrame, bits: int) -> DataFrame:
    """Rows without those that are before the windows of all publishers."""
    first = _ends_of(deliveries).agg(F.min("last_sequence") - bits).scalar()
    return deliveries.where(F.col("sequence") > first)


def _turns(rows: DataFrame, bits: int, *keys: str) -> DataFrame:
    """One ring for each turn of it, ``last_sequence`` being the last number that has a place in it."""
    marked = rows.select(
        *keys,
        F.expr(f"(sequence div {bits}L + 1) * {bits}L - 1").alias("last_sequence"),
        F.expr(f"cast(pmod(sequence, {bits}L) div {_WORD} as int)").alias("word"),
        # A multiple of a word's bits is a whole number of words: the place within a word is that of the sequence number itself.
        F.expr(f"shiftleft(1L, cast(sequence & {_WORD - 1} as int))").alias("mask"),
    )
    return marked.groupBy(*keys, "last_sequence").agg(_ring("bit_or(if(word = {}, mask, 0L))", bits))


def _moved(rings: DataFrame, ends: DataFrame, bits: int, *keys: str) -> DataFrame:
    """The rings of each key as one, whose window ends where that of its publisher does, with the columns of ``ends``."""
    known = [name for name in ends.columns if name != "publisher"]
    moved = rings.select(*keys, F.col("last_sequence").alias("end"), "words").join(ends, "publisher")
    # Most windows end where their publisher's does already, and functions of arrays are slow.
    cleared = F.transform("words", lambda word, i: word.bitwiseAND(F.bitwise_not(_left_behind(i, bits))))
    kept = moved.withColumn("words", F.when(F.col("end") < F.col("last_sequence"), cleared).otherwise(F.col("words")))
    return kept.groupBy(*keys).agg(*(F.max(name).alias(name) for name in known), _ring("bit_or(words[{}])", bits))


def _windows(rings: DataFrame, ends: DataFrame, bits: int) -> DataFrame:
    """Windows of rings of publishers. A window does not begin before its publisher did."""
    first = F.greatest(F.col("last_sequence") - (bits - 1), F.col("first_seen"))
    found = _moved(rings, ends, bits, "publisher")
    return found.withColumns({"first_sequence": first, "window_publications": _ones(bits)})


def _ring(word: str, bits: int) -> Column:
    """The words of a ring by the expression ``word``; as SQL text, since building expressions in Python is slow."""
    return F.expr(f"array({', '.join(word.format(i) for i in range(bits // _WORD))})").alias("words")


def _ones(bits: int) -> Column:
    """How many bits of a ring are set."""
    return F.expr(" + ".join(f"bit_count(words[{i}])" for i in range(bits // _WORD))).cast("bigint")


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
