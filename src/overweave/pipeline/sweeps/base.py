"""What a kind of sweep is made of: a reader of scenarios, and a function from a scenario to its measures.

Measures are the fields of a struct, so a kind says what it measures once, with types, and tables and figures follow.
"""

import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType, StringType

#: A scenario as TOML has it, without lists.
Document = dict[str, Any]

#: What values of columns can be, for Spark and for Arrow.
SPARK_TYPES: Mapping[type, DataType] = {bool: BooleanType(), int: LongType(), float: DoubleType(), str: StringType()}
ARROW_TYPES: Mapping[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


class Evaluator(NamedTuple):
    """A kind of sweep."""

    #: Reads a document, quickly, on the driver and again in the task; errors are `InvalidInput`.
    read: Callable[[Document], Any]
    #: Does the work in a task; what goes wrong becomes the scenario's error.
    evaluate: Callable[[Any], msgspec.Struct]
    #: What ``evaluate`` gives.
    measures: type[msgspec.Struct]
    #: What a document may have at its top.
    keys: tuple[str, ...]
    #: Default measures of figures.
    drawn: tuple[str, ...]
    #: Scenarios per task: some seconds of work, much more than Spark's overhead; an interrupted task is lost.
    per_task: int
    #: Arrays of tables that belong to every scenario together, with those of their fields that are lists. Not alternatives.
    arrays: Mapping[str, tuple[str, ...]] = {}


def columns_of(measures: type[msgspec.Struct], prefix: str = "") -> dict[str, type]:
    """The columns of a struct of measures and their types; fields of structs within have both names, a tuple is one text.

    >>> class Delays(msgspec.Struct):
    ...     mean: float
    >>> class Measures(msgspec.Struct, rename={"yield_": "yield"}):
    ...     yield_: float | None
    ...     delay_s: Delays | None
    >>> columns_of(Measures)
    {'yield': <class 'float'>, 'delay_s_mean': <class 'float'>}
    """
    found: dict[str, type] = {}
    for field in msgspec.structs.fields(measures):
        if typing.get_origin(field.type) is tuple:
            found[f"{prefix}{field.encode_name}"] = str
            continue
        parts = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        plain = next(part for part in parts if part is not types.NoneType)
        name = f"{prefix}{field.encode_name}"
        found |= columns_of(plain, f"{name}_") if issubclass(plain, msgspec.Struct) else {name: plain}
    return found


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of tables within tables, by their names joined; a table without values is true, a tuple is one text.

    Tables of an array have their numbers, and a list of other values is one text.

    >>> flattened({"seed": 1, "overlay": {"shape": "chain"}, "modules": {"report": {}}})
    {'seed': 1, 'overlay_shape': 'chain', 'modules_report': True}
    >>> flattened({"link": [{"between": ["B1", "B2"], "delay_s": 0.01}]})
    {'link_0_between': 'B1, B2', 'link_0_delay_s': 0.01}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{name}_")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            found |= flattened({str(number): each for number, each in enumerate(value)}, f"{prefix}{name}_")
        elif isinstance(value, tuple | list):
            found[f"{prefix}{name}"] = ", ".join(map(_text, value)) or None
        else:
            found[f"{prefix}{name}"] = True if isinstance(value, Mapping) else value
    return found


def _text(value: object) -> str:
    """The text of an element of a tuple: of a table the values.

    >>> _text({"broker": "B3", "utilisation": 2.2})
    'B3 2.20'
    """
    if isinstance(value, Mapping):
        return " ".join(map(_text, value.values()))
    return f"{value:.2f}" if isinstance(value, float) else str(value)
