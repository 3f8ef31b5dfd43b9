"""Distributions of third parties, installed by writing what pip would write."""

from pathlib import Path


def install(directory: Path, name: str, entry_points: dict[str, str], modules: dict[str, str] | None = None) -> Path:
    """Write a distribution with entry points of our group, and its modules, into a directory for ``sys.path``."""
    info = directory / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[overweave.routing]\n{lines}")
    for file, text in (modules or {}).items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
    return directory
