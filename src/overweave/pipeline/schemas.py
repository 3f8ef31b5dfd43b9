"""Schemas of all tables (see INTERFACES), explicit, so that nothing is guessed from data. ``deliveries`` follows `Record`."""

import types
import typing

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from overweave.contract.records import Record

_TYPES: dict[object, DataType] = {str: StringType(), int: LongType(), float: DoubleType()}


def _of_record(record: type) -> StructType:
    """The schema of a record's fields, by their annotations.

    >>> [field.name for field in _of_record(Record).fields if field.nullable]
    ['subscription', 'client']
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
_MAYBE_TEXT, _MAYBE_REAL = (StringType(), True), (DoubleType(), True)

DELIVERIES = _of_record(Record)
BROKERS = _table(
    broker=_TEXT,
    output_bandwidth_bytes_per_s=_REAL,
    matching_delay_base_s=_REAL,
    matching_delay_per_subscription_s=_REAL,
    capacity_hz=_MAYBE_REAL,
    url=_MAYBE_TEXT,
)
PUBLISHERS = _table(publisher=_TEXT, broker=_MAYBE_TEXT, advertisement=_TEXT, rate_hz=_REAL, message_bytes=_WHOLE)
SUBSCRIPTIONS = _table(subscription=_TEXT, client=_TEXT, broker=_MAYBE_TEXT, filter=_TEXT)
PUBLICATIONS = _table(publisher=_TEXT, sequence=_WHOLE, publication=_TEXT)
#: What matching in bulk finds: which publication goes to which subscription.
MATCHES = _table(publisher=_TEXT, sequence=_WHOLE, subscription=_TEXT)
#: A bounded bit vector per subscription and publisher: bit i of ``bits`` (little-endian) stands for the sequence number
#: ``first_sequence + i``, all up to the publisher's last one.
PROFILES = _table(
    subscription=_TEXT, publisher=_TEXT, first_sequence=_WHOLE, last_sequence=_WHOLE, bits=(BinaryType(), False), count=_WHOLE
)

#: Every table by its name.
TABLES: dict[str, StructType] = {
    "deliveries": DELIVERIES,
    "brokers": BROKERS,
    "publishers": PUBLISHERS,
    "subscriptions": SUBSCRIPTIONS,
    "publications": PUBLICATIONS,
}
