"""The Spark settings of the user: ``spark-defaults.conf``, ``spark-submit`` and its arguments."""

import itertools
import os
import re
import shlex
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext

#: Options of ``spark-submit`` that are settings under another name.
_OPTIONS = {"--driver-memory": "spark.driver.memory", "--driver-java-options": "spark.driver.extraJavaOptions"}


def configured_keys() -> set[str]:
    """The settings that have a value already; these are not ours to choose."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started Java, which knows.
        SparkContext._ensure_initialized()
        return {key for key, _ in SparkConf().getAll()}
    return _in_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", "")) | _in_file(_directory() / "spark-defaults.conf")


def _directory() -> Path:
    """Where Spark looks for its configuration."""
    if given := os.environ.get("SPARK_CONF_DIR"):
        return Path(given)
    return Path(os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)) / "conf"


def _in_file(file: Path) -> set[str]:
    """The keys of Java's properties: each ends at a blank, an equals sign or a colon."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines if line.strip().startswith("spark.")}


def _in_arguments(text: str) -> set[str]:
    """The keys of settings among the arguments of ``spark-submit``.

    >>> sorted(_in_arguments("--conf spark.sql.ansi.enabled=false --driver-memory 2g pyspark-shell"))
    ['spark.driver.memory', 'spark.sql.ansi.enabled']
    """
    words = shlex.split(text)
    given = {after.partition("=")[0] for word, after in itertools.pairwise(words) if word in ("--conf", "-c")}
    return given | {_OPTIONS[word] for word in words if word in _OPTIONS}
