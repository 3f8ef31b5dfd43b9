"""The former place and name of `overweave.pipeline.quarantine.read_with_quarantine`, for one release."""

import warnings

from pyspark.sql import SparkSession

from overweave.pipeline.locations import LocationLike
from overweave.pipeline.quarantine import Quarantine, read_with_quarantine


def read_good_rows(spark: SparkSession, path: LocationLike, name: str) -> Quarantine:
    """The former name of `read_with_quarantine`."""
    warnings.warn("read_good_rows is deprecated, use quarantine.read_with_quarantine", DeprecationWarning, stacklevel=2)
    return read_with_quarantine(spark, path, name)
