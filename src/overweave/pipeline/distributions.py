"""Workers get the distributions that register routing protocols from the driver.

A distribution goes as Spark archives, one per top-level folder, unpacked where workers look for modules. A folder
``*.dist-info`` goes along, so that workers find the same registrations. Its dependencies have to be installed there.
"""

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from pyspark.sql import SparkSession

from overweave.pipeline.package_archive import pack
from overweave.routing.installed import GROUP, Registration, registrations


def ship_distributions(spark: SparkSession) -> None:
    """Have every worker of ``spark`` import the registered routing protocols as they are here."""
    found = [each for several in registrations().values() for each in several]
    if not found:
        return
    # The driver serves the files as long as there are executors to come.
    directory = Path(tempfile.mkdtemp(prefix="overweave-distributions-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    (directory / "archives").mkdir()
    for path in collect(found, directory / "files"):
        if path.is_dir():
            archive = pack(path, directory / "archives" / f"{path.name}.zip")
            spark.sparkContext.addArchive(f"{archive}#{path.name}")
        else:
            spark.sparkContext.addFile(str(path))


def collect(registered: list[Registration], directory: Path) -> list[Path]:
    """Copy the modules and registrations of distributions to ``directory``; the paths are its top-level entries."""
    for each in registered:
        for target, source in _module_files(each.module):
            _copy(source, directory / target)
        for target, source in _listed_files(each.distribution):
            _copy(source, directory / target)
        _register(each, directory)
    return sorted(directory.iterdir())


def _module_files(module: str) -> Iterator[tuple[Path, Path]]:
    """The files of the package that holds a module, with their places; the folder of a namespace is no such package."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:depth]))
        except Exception:  # a parent that cannot be imported here cannot be there, and is reported where its name is used
            return
        if spec is None:
            return
        if spec.origin is not None and Path(spec.origin).is_file():
            source = Path(spec.origin)
            place = Path(*parts[:depth])
            if spec.submodule_search_locations is None:
                yield place.with_name(source.name), source
            else:
                yield from ((place / path.relative_to(source.parent), path) for path in _files(source.parent))
            return


def _listed_files(distribution: Distribution) -> Iterator[tuple[Path, Path]]:
    """The modules and data that a distribution lists as its own; an editable one, or one without a list, has none."""
    for each in distribution.files or ():
        source = Path(str(distribution.locate_file(each)))
        if (
            not {"..", "__pycache__"} & set(each.parts)
            and not each.parts[0].endswith((".dist-info", ".egg-info", ".pth"))
            and source.is_file()
        ):
            yield Path(*each.parts), source


def _register(registration: Registration, directory: Path) -> None:
    """Write the registration, beside the distribution's name and version."""
    metadata = registration.distribution.metadata
    folder = directory / f"{metadata['Name']}-{metadata['Version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {metadata['Name']}\nVersion: {metadata['Version']}\n")
    with (folder / "entry_points.txt").open("a") as file:
        file.write(f"[{GROUP}]\n{registration.name} = {registration.entry_point.value}\n")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
