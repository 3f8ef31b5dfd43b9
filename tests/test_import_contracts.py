"""The independence contracts of import-linter name every sibling: a new one cannot escape its contract."""

import ast
import tomllib
from pathlib import Path

import pytest

from overweave.broker.modules import MODULES
from overweave.cli import VERBS
from overweave.contract.modules import Environment
from overweave.experiments import PAPERS
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link
from overweave.routing.registry import BUILT_IN

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


def protocols():
    """The files of the built-in protocols: where the tables of each are made."""
    overlay = Overlay([Broker("B1", cluster="C1"), Broker("B2", cluster="C1")], [Link("B1", "B2")])
    return {type(each.factory("B1", overlay, 1, each.options()).routing).__module__ for each in BUILT_IN.values()}


def imported_by_a_sibling(package):
    """The files of a package that another one of it imports: what several modules share, or parts of one."""
    names = siblings(package) - {f"{package}.__init__"}
    imports = {
        each.module
        for name in names
        for each in ast.walk(ast.parse((ROOT / "src" / Path(*name.split(".")).with_suffix(".py")).read_text()))
        if isinstance(each, ast.ImportFrom)
    }
    return names & imports


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        ("verbs do not know each other", {f"overweave.cli.{verb}" for verb in VERBS}),
        ("papers do not know each other", {f"overweave.experiments.{paper.replace('-', '_')}" for paper in PAPERS}),
        (
            "allocators do not know each other",
            siblings("overweave.planning.allocate") - {f"overweave.planning.allocate.{name}" for name in SHARED},
        ),
        ("routing protocols do not know each other", protocols()),
        (
            "modules of a broker do not know each other",
            siblings("overweave.broker.modules")
            - {"overweave.broker.modules.__init__"}
            - imported_by_a_sibling("overweave.broker.modules"),
        ),
    ],
)
def test_a_contract_names_all_siblings(contract, expected):
    assert CONTRACTS[contract] == expected


def test_what_can_be_configured_is_among_the_independent_modules():
    made = {type(kind.make(Environment("B1"), kind.options())).__module__ for kind in MODULES.values()}
    assert made < CONTRACTS["modules of a broker do not know each other"]
