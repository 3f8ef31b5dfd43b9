"""The package archive for executors on other machines.

Spark unpacks the archive on the module path of workers. A zip on the path would not do: the cache of compiled kernels
is beside their source files. Each executor compiles the kernels that it uses once per session.
"""

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

#: The folder that holds this package, and what it is called where it arrives.
_PACKAGE = Path(__file__).parents[1]


def ship_package(spark: SparkSession) -> None:
    """Have every worker of ``spark`` import this package as it is here."""
    # The driver serves the file as long as there are executors to come.
    directory = Path(tempfile.mkdtemp(prefix=f"{_PACKAGE.name}-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = pack(_PACKAGE, directory / f"{_PACKAGE.name}.zip")
    spark.sparkContext.addArchive(f"{archive}#{_PACKAGE.name}")


def pack(folder: Path, archive: Path) -> Path:
    """Write the source files of a package; their modification times identify compiled kernels, so they are preserved."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, path.relative_to(folder))
    return archive
