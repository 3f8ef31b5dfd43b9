"""The independence contracts of import-linter name every sibling: a new one cannot escape its contract."""

import tomllib
from pathlib import Path

import pytest

from overweave.cli import VERBS
from overweave.experiments import PAPERS

ROOT = Path(__file__).parents[1]
CONTRACTS = {
    each["name"]: set(each.get("modules", ()))
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
#: Files of `planning.allocate` that every allocator may import.
SHARED = {"__init__", "base"}


def siblings(package):
    folder = ROOT / "src" / Path(*package.split("."))
    return {f"{package}.{path.stem}" for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        ("verbs do not know each other", {f"overweave.cli.{verb}" for verb in VERBS}),
        ("papers do not know each other", {f"overweave.experiments.{paper.replace('-', '_')}" for paper in PAPERS}),
        (
            "allocators do not know each other",
            siblings("overweave.planning.allocate") - {f"overweave.planning.allocate.{name}" for name in SHARED},
        ),
    ],
)
def test_a_contract_names_all_siblings(contract, expected):
    assert CONTRACTS[contract] == expected
