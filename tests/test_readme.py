"""The README says what is true: its Python runs, its commands answer as printed, its table lists the verbs there are."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from overweave.cli import VERBS, main

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


def test_verbs():
    table = README.partition("| verb |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == set(VERBS)
