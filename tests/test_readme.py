"""The README says what is true: its Python runs, its commands answer as printed, its table lists the verbs there are."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from overweave.cli import VERBS, main
from overweave.cli.line_reader import BadLines
from overweave.language.codec import ATTRIBUTES_MAX, PREDICATES_MAX
from overweave.language.predicates import NUMBER_OPERATORS, TEXT_OPERATORS
from overweave.language.syntax import parse_publication

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_block():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    expected = re.findall(r"# (.+)$", code, re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().splitlines() == expected


def test_commands(monkeypatch, capfdbinary):
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^    \$ (overweave .*)\n((?:    [^$\n].*\n)*)", README, re.MULTILINE)
    assert commands
    for command, answer in commands:
        with pytest.raises(SystemExit, match="0"):
            main(shlex.split(command)[1:])
        assert capfdbinary.readouterr().out.decode() == re.sub("^    ", "", answer, flags=re.MULTILINE)


def test_operators_and_escapes():
    table = README.partition("| operator on numbers |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = [set(re.findall(r"`([^`]+)`", " ".join(line.split("|")[column] for line in table))) for column in (1, 2)]
    assert columns == [set(NUMBER_OPERATORS.values()), set(TEXT_OPERATORS.values())]
    table = README.partition("| written |")[2].partition("\n\n")[0]
    escapes = re.findall(r"^\| `(\\.)`", table, re.MULTILINE)
    assert parse_publication(f"[x,'{''.join(escapes)}']")["x"] == "'\\\n\r"


def test_limits():
    assert f"at most {PREDICATES_MAX:,} predicates" in README
    assert f"at most {ATTRIBUTES_MAX:,} attributes" in README
    assert f"the first {BadLines.NUMBERS_MAX:,} of each" in README


def test_verbs():
    table = README.partition("| verb |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == set(VERBS)
