"""User messages for errors of Spark: one line that names the file and the expectation.

Workers and expressions raise ``InvalidInput: …``, which Spark wraps with its own text and traces.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput

_MARK = "InvalidInput: "
_OURS = re.compile(_MARK + r"(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
#: A file that Spark cannot read; the reason after its name may be missing.
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (\S+)\.\s+(.*?)\s*(?:SQLSTATE: \w+)?$", re.M
)


@contextmanager
def translate_errors() -> Iterator[None]:
    """What is wrong with the input as an `InvalidInput`, without Spark's words around it; for where a step is carried out."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = user_message(error)
        if said is None:
            raise
        raise InvalidInput(said) from None


def user_message(error: Exception) -> str | None:
    """The user message of ``error``, or None if it is not about the input.

    >>> user_message(Exception("[USER_RAISED_EXCEPTION] InvalidInput: a.csv: expected a value SQLSTATE: P0001"))
    'a.csv: expected a value'
    >>> text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///t/a.parquet.  SQLSTATE: KD001"
    >>> user_message(Exception(text))
    '/t/a.parquet: expected a file that can be read, found damage'
    """
    text = str(error)
    if ours := _OURS.search(text):
        return ours[1]
    if unreadable := _UNREADABLE.search(text):
        found = unreadable[2].split(". ")[0].rstrip(".") or "damage"
        return f"{local_name(unreadable[1])}: expected a file that can be read, found {found[0].lower()}{found[1:]}"
    return None


def raise_column(*parts: str | Column) -> Column:
    """A column whose evaluation raises an `InvalidInput` of these parts; null parts are left out."""
    first, *others = (F.lit(part) if isinstance(part, str) else part for part in parts)
    return F.raise_error(F.concat(F.lit(_MARK), F.concat_ws(": ", first, *others)))


def first_line(error: Exception) -> str:
    """The first line of an error of Spark, without its location."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().splitlines()[0][:300]


def local_name(file: str) -> str:
    """A file as people write it.

    >>> local_name("file:///tmp/a.parquet"), local_name("hdfs://host/a.parquet")
    ('/tmp/a.parquet', 'hdfs://host/a.parquet')
    """
    return str(Path("/", file.removeprefix("file:").lstrip("/"))) if file.startswith("file:") else file


def local_names(file: Column) -> Column:
    """The same for a column."""
    return F.regexp_replace(file, "^file:/*", "/")
