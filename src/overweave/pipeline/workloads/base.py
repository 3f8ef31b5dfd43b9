"""What every kind of workload is made of: options, a source of tables, and rows that are functions of their numbers."""

import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.syntax import parse_publication
from overweave.pipeline.schemas import TABLES
from overweave.pipeline.workloads.counter_rng import Whole

#: The columns of some rows, given the rows' numbers.
MakeRows = Callable[[Whole], Mapping[str, object]]


#: Numbers of rows, with and without none; more would not fit into 64 bits when they are shuffled.
Count = Annotated[int, msgspec.Meta(ge=0, le=2_000_000_000)]
Some = Annotated[int, msgspec.Meta(ge=1, le=2_000_000_000)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a kind, with all defaults; each kind has its own."""


class Source(NamedTuple):
    """Where the tables of a workload come from."""

    spark: SparkSession
    seed: int
    #: Rows per task; the rows do not depend on it.
    rows_per_task: int = 250_000

    def table(self, name: str, count: int, make: MakeRows) -> DataFrame:
        """The table ``name`` (of `TABLES`) with ``count`` rows, made by tasks; the driver sees none of them."""
        return made(self.spark, TABLES[name], count, make, self.rows_per_task)


def made(spark: SparkSession, schema: StructType, count: int, make: MakeRows, rows_per_task: int) -> DataFrame:
    """A table of ``count`` rows, each a function of its number."""
    tasks = max(1, -(-count // rows_per_task))
    return spark.range(0, count, 1, tasks).mapInArrow(partial(_make_batches, make, to_arrow_schema(schema)), schema)


class Kind(NamedTuple):
    """A kind of workload: its options, and how its tables are made of them.

    >>> from overweave.pipeline.workloads import WORKLOADS
    >>> try:
    ...     WORKLOADS["stock"].read_options({"distribution": "even"})
    ... except InvalidInput as error:
    ...     print(error)
    --distribution: expected one of uniform, random, enterprise, allocation, found 'even'
    """

    options: type[Options]
    #: Gives the tables by their names.
    make: Callable[[Source, Any], dict[str, DataFrame]]

    def read_options(self, given: Mapping[str, object]) -> Options:
        """The options of this kind; errors name the option and the expectation."""
        known = self.options.__struct_fields__
        for name in given:
            if name not in known:
                raise InvalidInput(f"{flag(name)}: expected an option of this kind ({', '.join(map(flag, known))})")
        try:
            return msgspec.convert(dict(given), self.options)
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `$.")
            name = place.rstrip("`").partition("[")[0]
            if not name:
                raise InvalidInput(f"expected the option {flag(text.rpartition('field `')[2].rstrip('`'))}") from None
            raise InvalidInput(f"{flag(name)}: expected {self._expected(name, text)}, found {given[name]!r}") from None

    def _expected(self, name: str, text: str) -> str:
        """The expectation of msgspec, or the valid choices, which it does not list."""
        words = typing.get_args(typing.get_type_hints(self.options)[name])
        return (
            f"one of {', '.join(words)}" if text.startswith("Invalid enum") else text.removeprefix("Expected ").replace("`", "")
        )


def flag(name: str) -> str:
    """An option as the command line spells it.

    >>> flag("zero_traffic")
    '--zero-traffic'
    """
    return "--" + name.replace("_", "-")


def numbered(prefix: str, numbers: Whole) -> list[str]:
    """Ids: the numbers count from 0, ids from 1.

    >>> numbered("B", np.arange(2))
    ['B1', 'B2']
    """
    return [f"{prefix}{number}" for number in (numbers + 1).tolist()]


def wire_bytes(publication: str) -> int:
    """How long a publication is on the wire."""
    return len(encode_publication(parse_publication(publication)))


def _make_batches(make: MakeRows, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.column(0).to_numpy().astype(np.int64, copy=False)
        columns = make(rows)
        yield pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in schema], schema=schema)
