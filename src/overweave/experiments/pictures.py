"""Pictures of experiments as files."""

from collections.abc import Iterable
from pathlib import Path

from overweave.reports.look import Picture


def write(folder: Path, several: Iterable[Picture]) -> list[Path]:
    """Each as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for picture in several:
        (folder / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        (folder / f"{picture.name}.png").write_bytes(picture.png)
        paths.append(folder / f"{picture.name}.png")
    return paths
