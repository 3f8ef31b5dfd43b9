"""Executors on other machines get this package from the driver.

It goes as an archive that Spark unpacks where workers look for modules, and not as a zip on their path: kernels are kept beside
the files they were compiled from, which a zip has no room for. So each executor compiles those it uses once per session.
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
    """Write the files of a package, without what is made from them; they keep their times, by which kernels are known."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, path.relative_to(folder))
    return archive
