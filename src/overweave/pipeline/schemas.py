"""Explicit schemas of all tables. ``deliveries`` and ``statements`` follow `Record` and `Statement`."""

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
        # Hops are few; other integers are unbounded counters.
        fields.append(StructField(name, IntegerType() if name == "hops" else _TYPES[plain], types.NoneType in parts))
    return StructType(fields)


_KINDS: dict[str, DataType] = {
    "text": StringType(),
    "whole": LongType(),
    "real": DoubleType(),
    "words": ArrayType(LongType(), False),
}


def _table(columns: str) -> StructType:
    """The schema of a list of columns with their kinds; ``?`` marks a nullable one.

    >>> [(field.name, field.nullable) for field in _table("broker text, capacity_hz real?").fields]
    [('broker', False), ('capacity_hz', True)]
    """
    pairs = (column.split() for column in columns.split(","))
    return StructType([StructField(name, _KINDS[kind.rstrip("?")], kind.endswith("?")) for name, kind in pairs])


DELIVERIES = _of_record(Record)
STATEMENTS = _of_record(Statement)
BROKERS = _table(
    "broker text, output_bandwidth_bytes_per_s real, matching_delay_base_s real, "
    "matching_delay_per_subscription_s real, capacity_hz real?, url text?"
)
#: Columns that traces of an earlier release lack; they are read as null.
ADDED = frozenset({"previous_hop"})
PUBLISHERS = _table("publisher text, broker text?, advertisement text, rate_hz real, message_bytes whole")
SUBSCRIPTIONS = _table("subscription text, client text, broker text?, filter text")
PUBLICATIONS = _table("publisher text, sequence whole, publication text")
#: Pairs of publications and matching subscriptions.
MATCHES = _table("publisher text, sequence whole, subscription text")
#: A bounded bit vector per subscription and publisher (THESIS ch 6): which of the publisher's last publications, from
#: ``first_sequence`` to ``last_sequence``, the subscription got. The bit of a sequence number stands at its remainder by the
#: number of bits, 64 to a word from the lowest on, so that a window that slides moves nothing. Numbers may have gaps:
#: ``count / window_publications`` is the share that the subscription got.
PROFILES = _table(
    "subscription text, publisher text, first_sequence whole, last_sequence whole, words words, count whole, "
    "window_publications whole"
)
#: The traffic of a publisher: its window, from ``first_sequence`` to ``last_sequence``, is that of all its profiles, and
#: ``window_publications`` is the number of publications in the window.
PUBLISHER_PROFILES = _table(
    "publisher text, broker text?, first_sequence whole, last_sequence whole, window_publications whole, "
    "publications whole, rate_hz real, bytes_per_s real, message_bytes real"
)
#: Every subscription of a run, also without deliveries: its client, its last broker, and its filter (null: the trace has no
#: statements). ``withdrawn_at_s`` is null while it is in force.
SUBSCRIPTION_LIFETIMES = _table(
    "subscription text, client text?, broker text, filter text?, subscribed_at_s real?, withdrawn_at_s real?"
)
#: Brokers over time, in buckets that begin at ``at_s``: what came in (arrivals, useful where a local subscription matches, else
#: pure forwards), what went out, and what subscriptions got, one delivery for each. Bytes are those of content and payload.
#: ``delivered_bytes_per_s`` went to clients: a publication once for each client, however many of its subscriptions match.
#: ``forwarded_bytes_per_s`` went to neighbours, at the time when it arrived there. Forwarded and output bytes are null where
#: the trace lacks the senders of arrivals.
LOAD = _table(
    "broker text, at_s real, input_hz real, input_bytes_per_s real, delivered_bytes_per_s real, "
    "forwarded_bytes_per_s real?, output_bytes_per_s real?, arrivals whole, useful_arrivals whole, pure_forwards whole, "
    "deliveries whole"
)
#: Per broker: arrivals as in `LOAD`, yield, bytes, and deliveries with their hops and delays (null when there are none).
SUMMARY = _table(
    "broker text, arrivals whole, useful_arrivals whole, pure_forwards whole, yield_share real?, input_bytes whole, "
    "delivered_bytes whole, forwarded_bytes whole?, output_bytes whole?, deliveries whole, hops_mean real?, "
    "delay_s_mean real?, delay_s_p50 real?, delay_s_p99 real?, delay_s_max real?"
)
#: Rejected rows of a table: their file, the reason, their number (null for an unreadable file) and an example.
REJECTED = _table("file text, reason text, rows whole?, example text?")

#: Every table by its name: inputs first, then the tables of ``overweave profile``.
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
#: Names of tables of a profile in the release before.
EARLIER_NAMES = {"publisher_profiles": "publishers", "subscription_lifetimes": "subscriptions"}
