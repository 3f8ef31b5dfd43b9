"""Figures of experiments as files."""

from collections.abc import Iterable
from pathlib import Path

from overweave.reports.style import Figure


def write_figures(folder: Path, several: Iterable[Figure]) -> list[Path]:
    """Each as SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for figure in several:
        (folder / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
        (folder / f"{figure.name}.png").write_bytes(figure.png)
        paths.append(folder / f"{figure.name}.png")
    return paths
