"""The session: Java that is there, tasks that are watched, and a package that goes along."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkImportError
from pyspark.sql import SparkSession

import overweave
from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline import session
from overweave.pipeline.package_archive import pack
from overweave.pipeline.spark_errors import raise_column
from overweave.pipeline.task_progress import report_progress


def test_java_is_asked_for_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OverweaveError, match="Java 17"):
        session.check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(OverweaveError, match="cannot run on this Java"):
        session.check_java()


def test_a_master_is_one_that_spark_knows():
    with pytest.raises(InvalidInput, match=r"^master: expected local, .* found 'localhost:7077'"):
        session.make_session("localhost:7077")


def test_settings_are_of_spark():
    for wrong in ("memory=2g", "spark.memory"):
        with pytest.raises(InvalidInput, match=r"^--conf: expected spark.KEY=VALUE, found"):
            session.make_session(conf=[wrong])


def test_a_remote_session_that_cannot_be_had_is_said_plainly(monkeypatch):
    """As where Spark Connect is not installed."""

    def start(builder):
        raise PySparkImportError(
            errorClass="PACKAGE_NOT_INSTALLED", messageParameters={"package_name": "x", "minimum_version": "1"}
        )

    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    with pytest.raises(OverweaveError, match=r"^Spark cannot start on sc://host: .* x >= 1 must be installed"):
        session.make_session()


def test_what_is_wrong_with_the_input_is_said_plainly(spark):
    with pytest.raises(InvalidInput, match=r"^a.csv: expected better$"), session.session() as ours:
        ours.range(1).select(raise_column("a.csv", "expected better")).collect()
    assert spark.range(3).count() == 3


def test_tasks_are_told_while_they_are_done(spark):
    told = []
    with report_progress(spark, lambda done, total: told.append((done, total)), every_s=0.02):
        spark.range(0, 8, 1, 8).selectExpr("java_method('java.lang.Thread', 'sleep', 60L)").collect()
        middle = len(told)
        spark.range(0, 100, 1, 3).repartition(5).count()
    counts = [total for _, total in told]
    assert max(total for _, total in told[:middle]) == 8
    assert any(0 < done < total for done, total in told), "tasks that are under way"
    assert counts == sorted(counts)
    assert all(done <= total for done, total in told)
    seen = len(told)
    spark.range(3).count()
    assert len(told) == seen
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_session_without_a_context_is_not_watched():
    """As a remote one is, which says so by an AttributeError."""
    with report_progress(object(), lambda *_: pytest.fail("told")):
        pass


def test_the_package_is_packed_without_what_is_made_from_it(tmp_path):
    folder = Path(overweave.__file__).parent
    with zipfile.ZipFile(pack(folder, tmp_path / "p.zip")) as packed:
        names = packed.namelist()
    assert {"__init__.py", "pipeline/steps/match.py", "matching/kernels/match.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


#: Says where a worker of a cluster has the package from, and where it would keep kernels.
CLUSTER = """
import json
import pyarrow as pa
from overweave.pipeline.session import session

def tell(batches):
    import sys
    import overweave
    from overweave.matching.kernels import compile
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"said": [json.dumps([sys.executable, overweave.__file__, str(compile._directory())])]})

with session("local-cluster[1,1,1024]") as spark:
    print(spark.range(0, 1, 1, 1).mapInArrow(tell, "said string").collect()[0].said)
"""


@pytest.mark.skipif("OVERWEAVE_CLUSTER" not in os.environ, reason="half a minute; OVERWEAVE_CLUSTER=1")
def test_workers_elsewhere_get_the_package_from_the_driver(tmp_path):
    """Their Python has all that it depends on, and not the package itself."""
    elsewhere = tmp_path / "elsewhere"
    venv.create(elsewhere, with_pip=False, symlinks=True)
    (site,) = elsewhere.glob("lib/*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    python = str(elsewhere / "bin" / "python")
    missing = subprocess.run(
        [python, "-c", "import pyarrow, overweave"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "No module named 'overweave'" in missing.stderr
    home = tmp_path / "home"  # of Spark: executors work below it
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    environment = os.environ | {"PYSPARK_PYTHON": python, "SPARK_HOME": str(home)}
    found = subprocess.run(
        [sys.executable, "-c", CLUSTER], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert found.returncode == 0, found.stderr
    executable, file, kernels = json.loads(found.stdout)
    assert executable == python
    assert (home / "work") in Path(file).parents
    assert Path(file).parent in Path(kernels).parents
    assert found.stderr == ""


def test_a_session_of_somebody_else_is_used_and_left(spark):
    with session.session() as ours:
        assert ours.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_what_is_configured_goes_before_our_settings(monkeypatch, tmp_path):
    chosen = {}

    def start(builder):
        chosen.update(builder._options)
        raise PySparkImportError(
            errorClass="PACKAGE_NOT_INSTALLED", messageParameters={"package_name": "x", "minimum_version": "1"}
        )

    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.sql.ansi.enabled false\nspark.sql.parquet.compression.codec   snappy\n spark.driver.extraJavaOptions=-Xss4m\n"
    )
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.local.dir=/scratch --driver-memory 3g pyspark-shell")
    with pytest.raises(OverweaveError):
        session.make_session("local[2]", conf=["spark.sql.session.timeZone=CET", "spark.local.dir=/mine"])
    ours = ("spark.sql.ansi.enabled", "spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [chosen[key] for key in ours] == ["true", "100000"]
    theirs = ("spark.sql.parquet.compression.codec", "spark.driver.extraJavaOptions", "spark.driver.memory")
    assert not chosen.keys() & set(theirs)
    assert (chosen["spark.sql.session.timeZone"], chosen["spark.local.dir"]) == ("CET", "/mine")
