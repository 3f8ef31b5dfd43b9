"""Schemas of all tables (see INTERFACES), explicit, so that nothing is guessed from data. ``deliveries`` follows `Record`."""

import types
import typing

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from overweave.contract.records import Record, Statement

_TYPES: dict[object, DataType] = {str: StringType(), int: LongType(), float: DoubleType(), bool: BooleanType()}


def _of_record(record: type) -> StructType:
    """The schema of a record's fields, by their annotations.

    >>> [field.name for field in _of_record(Record).fields if field.nullable]
    ['subscription', 'client', 'previous_hop']
    """
    fields = []
    for name, kind in typing.get_type_hints(record).items():
        parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        plain = next(part for part in parts if part is not types.NoneType)
        # Hops are few; everything else of the kind int is counted for ever.
        fields.append(StructField(name, IntegerType() if name == "hops" else _TYPES[plain], types.NoneType in parts))
    return StructType(fields)


def _table(**columns: tuple[DataType, bool]) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, (kind, nullable) in columns.items()])


_TEXT, _WHOLE, _REAL = (StringType(), False), (LongType(), False), (DoubleType(), False)
_MAYBE_TEXT, _MAYBE_WHOLE, _MAYBE_REAL = (StringType(), True), (LongType(), True), (DoubleType(), True)

DELIVERIES = _of_record(Record)
STATEMENTS = _of_record(Statement)
BROKERS = _table(
    broker=_TEXT,
    output_bandwidth_bytes_per_s=_REAL,
    matching_delay_base_s=_REAL,
    matching_delay_per_subscription_s=_REAL,
    capacity_hz=_MAYBE_REAL,
    url=_MAYBE_TEXT,
)
#: Columns that traces of an earlier release lack; they are read as null.
ADDED = frozenset({"previous_hop"})
PUBLISHERS = _table(publisher=_TEXT, broker=_MAYBE_TEXT, advertisement=_TEXT, rate_hz=_REAL, message_bytes=_WHOLE)
SUBSCRIPTIONS = _table(subscription=_TEXT, client=_TEXT, broker=_MAYBE_TEXT, filter=_TEXT)
PUBLICATIONS = _table(publisher=_TEXT, sequence=_WHOLE, publication=_TEXT)
#: What matching in bulk finds: which publication goes to which subscription.
MATCHES = _table(publisher=_TEXT, sequence=_WHOLE, subscription=_TEXT)
#: A bounded bit vector per subscription and publisher (THESIS ch 6): which of the publisher's last publications, from
#: ``first_sequence`` to ``last_sequence``, the subscription got. The bit of a sequence number stands at its remainder by the
#: number of bits, 64 to a word from the lowest on, so that a window that slides moves nothing. Numbers may have gaps:
#: ``count / window_publications`` is the share that the subscription got.
PROFILES = _table(
    subscription=_TEXT,
    publisher=_TEXT,
    first_sequence=_WHOLE,
    last_sequence=_WHOLE,
    words=(ArrayType(LongType(), False), False),
    count=_WHOLE,
    window_publications=_WHOLE,
)
#: What a publisher sends: its window, from ``first_sequence`` to ``last_sequence``, is that of all profiles of it, and
#: ``window_publications`` are those that it sent in the window.
PUBLISHER_PROFILES = _table(
    publisher=_TEXT,
    broker=_MAYBE_TEXT,
    first_sequence=_WHOLE,
    last_sequence=_WHOLE,
    window_publications=_WHOLE,
    publications=_WHOLE,
    rate_hz=_REAL,
    bytes_per_s=_REAL,
    message_bytes=_REAL,
)
#: Every subscription of a run, also those that got nothing: whose it is, where it was last, and what it wants (null: the trace
#: has no statements). ``withdrawn_at_s`` is null as long as it holds.
SUBSCRIPTION_LIFETIMES = _table(
    subscription=_TEXT,
    client=_MAYBE_TEXT,
    broker=_TEXT,
    filter=_MAYBE_TEXT,
    subscribed_at_s=_MAYBE_REAL,
    withdrawn_at_s=_MAYBE_REAL,
)
#: Brokers over time, in buckets that begin at ``at_s``: what came in (arrivals, useful where a local subscription matches, else
#: pure forwards), what went out, and what subscriptions got, one delivery for each. Bytes are those of content and payload.
#: ``delivered_bytes_per_s`` went to clients: a publication once for each client, however many of its subscriptions match.
#: ``forwarded_bytes_per_s`` went to neighbours, at the time when it arrived there. Forwarded and output bytes are null where
#: the trace lacks the senders of arrivals.
LOAD = _table(
    broker=_TEXT,
    at_s=_REAL,
    input_hz=_REAL,
    input_bytes_per_s=_REAL,
    delivered_bytes_per_s=_REAL,
    forwarded_bytes_per_s=_MAYBE_REAL,
    output_bytes_per_s=_MAYBE_REAL,
    arrivals=_WHOLE,
    useful_arrivals=_WHOLE,
    pure_forwards=_WHOLE,
    deliveries=_WHOLE,
)
#: Per broker: arrivals as in `LOAD`, yield, bytes, and deliveries with their hops and delays (null when there are none).
SUMMARY = _table(
    broker=_TEXT,
    arrivals=_WHOLE,
    useful_arrivals=_WHOLE,
    pure_forwards=_WHOLE,
    yield_share=_MAYBE_REAL,
    input_bytes=_WHOLE,
    delivered_bytes=_WHOLE,
    forwarded_bytes=_MAYBE_WHOLE,
    output_bytes=_MAYBE_WHOLE,
    deliveries=_WHOLE,
    hops_mean=_MAYBE_REAL,
    delay_s_mean=_MAYBE_REAL,
    delay_s_p50=_MAYBE_REAL,
    delay_s_p99=_MAYBE_REAL,
    delay_s_max=_MAYBE_REAL,
)
#: Rejected rows of a table: their file, the reason, their number (null for an unreadable file) and an
#: example.
REJECTED = _table(file=_TEXT, reason=_TEXT, rows=_MAYBE_WHOLE, example=_MAYBE_TEXT)

#: Every table by its name: first those that are read as input, then those that ``overweave profile`` writes.
TABLES: dict[str, StructType] = {
    "deliveries": DELIVERIES,
    "statements": STATEMENTS,
    "brokers": BROKERS,
    "publishers": PUBLISHERS,
    "subscriptions": SUBSCRIPTIONS,
    "publications": PUBLICATIONS,
    "profiles": PROFILES,
    "publisher_profiles": PUBLISHER_PROFILES,
    "subscription_lifetimes": SUBSCRIPTION_LIFETIMES,
    "load": LOAD,
    "summary": SUMMARY,
    "bad": REJECTED,
}
#: What tables of a profile were called in the release before.
EARLIER_NAMES = {"publisher_profiles": "publishers", "subscription_lifetimes": "subscriptions"}
