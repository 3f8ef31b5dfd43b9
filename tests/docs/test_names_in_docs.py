"""Documents name only what exists: files, classes, attributes, modules, options of verbs, and targets of links."""

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

from overweave.cli import VERBS
from overweave.pipeline.schemas import TABLES
from overweave.testing.chaos import rules

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/overweave"
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")])
#: Names of others: Hadoop, NATS, Raft, Spark, Python's own libraries.
FOREIGN = {
    "False", "FileContext.rename", "FileSystem", "Path", "Ready", "Step", "asyncio.timeout", "fs.defaultFS", "max_ack_pending",
    "percentile_approx", "pyarrow.fs", "True",
}  # fmt: skip
#: Files that readers of a guide write.
EXAMPLES = {"topic_routing.py"}
#: Endings of file names that look like attributes.
SUFFIXES = {"csv", "graphml", "gz", "html", "journal", "json", "lock", "md", "parquet", "pem", "prom", "svg", "toml", "txt"}
#: Options of every verb.
COMMON_OPTIONS = {"--debug", "--help", "--version"}

every_document = pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))


@every_document
def test_files_exist(path):
    missing = [name for name in names(path) if is_file_name(name) and name not in EXAMPLES and not file_exists(name)]
    assert missing == []


@every_document
def test_classes_and_attributes_exist(path):
    missing = [name for name in names(path) if name not in FOREIGN and not name_exists(name)]
    assert missing == []


@every_document
def test_python_imports_what_exists(path):
    for code in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("overweave"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ow":
                assert hasattr(importlib.import_module("overweave"), node.attr)


@every_document
def test_modules_that_are_run_exist(path):
    assert all(importable(name) for name in re.findall(r"python -m (overweave[\w.]*\w)", path.read_text()))


@every_document
def test_commands_have_options_that_exist(path):
    unknown = [(verb, option) for verb, option in commands(path) if verb not in VERBS or option not in options_of(verb)]
    assert unknown == []


@every_document
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@every_document
def test_decisions_exist(path):
    text = re.sub(r"former records? \d{4}.*", "", path.read_text())  # numbers that are not used any more
    numbers = re.findall(r"decision\s+(\d{4})", text)
    assert [number for number in numbers if not any((ROOT / "docs/decisions").glob(f"{number}-*.md"))] == []


def test_the_guide_to_testing_has_every_rule_of_chaos():
    guide = (ROOT / "docs/guides/testing.md").read_text()
    texts = [value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)]
    assert texts
    assert [text for text in texts if f"| {text.format('REASON')} |" not in guide] == []


def test_checks_can_fail():
    assert not name_exists("BrokerCore.perform")
    assert not name_exists("BrokenCore")
    assert not name_exists("publish_carefully")
    assert not name_exists("overweave.planning.no_such_design")
    assert not file_exists("broker/no_such_file.py")
    assert name_exists("BrokerCore.handle")
    assert "--no-such-option" not in options_of("match")


def names(path):
    """The backticked names of a document, without the arguments of calls; code blocks are left out."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for span in re.findall(r"`([^`\n]+)`", text):
        found = re.fullmatch(r"([\w./]+?)(\(.*\))?", span)
        if found:
            yield found[1]


def is_file_name(name):
    return name.endswith(".py") or ("/" in name and name.partition("/")[0] in {"src", "tests", "docs", "examples", *packages()})


def file_exists(name):
    """Whether a path exists as it is or below the package; a bare name may be anywhere in source or tests."""
    if "/" not in name:
        return any(next((ROOT / folder).rglob(name), None) for folder in ("src", "tests"))
    return any((folder / name).exists() for folder in (ROOT, PACKAGE, ROOT / "tests"))


def name_exists(name):
    """Whether a CamelCase, snake_case or dotted name is one of the source; other words are not looked at."""
    first, _, rest = name.partition(".")
    if not first or name.startswith(("_", "overweave_")):
        return True  # a suffix, or a metric, whose name is composed
    if "/" in name or name.endswith(".py") or rest.rpartition(".")[2] in SUFFIXES:
        return True
    if re.fullmatch(r"[A-Z][a-z]\w*", first):
        return first in classes() and (not rest or rest in attributes(first))
    if first == "overweave" and rest:
        return importable(name)
    parts = name.split(".")
    return not ("_" in name or rest) or not all(map(str.isidentifier, parts)) or identifiers().issuperset(parts)


def importable(name):
    """Whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    if (ROOT / "src" / name.replace(".", "/")).with_suffix(".py").exists() or (ROOT / "src" / name.replace(".", "/")).is_dir():
        return True
    return bool(module) and importable(module) and hasattr(importlib.import_module(module), attribute)


def commands(path):
    """Every verb and option of the commands in a document."""
    text = path.read_text().replace("\\\n", " ")
    for line in re.findall(r"overweave +([a-z][^`\n|]*)", text):
        verb, *words = line.split()
        if verb in VERBS:
            yield from ((verb, re.sub(r"[=,.;:)].*", "", word)) for word in words if re.match(r"--[a-z]", word))


@cache
def options_of(verb):
    application = typer.Typer()
    application.command()(getattr(importlib.import_module(f"overweave.cli.{verb}"), verb))
    parameters = typer.main.get_command(application).params
    return COMMON_OPTIONS.union(*([*each.opts, *each.secondary_opts] for each in parameters))


@cache
def anchors(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def packages():
    return {path.name for path in PACKAGE.iterdir() if path.is_dir()}


@cache
def trees():
    return [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]


@cache
def classes():
    """The classes and capitalised aliases of the source, by name, with their definitions."""
    found = {}
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
        for node in tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, [])
    return found


def attributes(name):
    """Methods, fields and attributes of a class and its bases."""
    found = set()
    for node in classes().get(name, []):
        for each in ast.walk(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(each.name)
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
            elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                found.add(each.attr)
        found.update(*(attributes(base.id) for base in node.bases if isinstance(base, ast.Name) and base.id != name))
    return found


@cache
def identifiers():
    """Every name that the source uses, defines or imports, words of its texts, folders and files, and columns of tables."""
    found = {"ow", *sys.stdlib_module_names}.union(*(schema.fieldNames() for schema in TABLES.values()))
    for path in PACKAGE.rglob("*.py"):
        found.update(path.relative_to(PACKAGE).with_suffix("").parts)
    for tree in trees():
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            for field in ("id", "attr", "name", "arg"):
                if isinstance(value := getattr(node, field, None), str):
                    found.add(value)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.update(re.findall(r"\w+", node.value))
    return found
