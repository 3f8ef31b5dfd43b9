"""The promises that hold for every verb: exit statuses, one-line errors, help."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from overweave.cli import VERBS, app
from overweave.errors import DuplicateId, InvalidInput, UnknownId

PROGRAM = [sys.executable, "-c", "from overweave.cli import main; main()"]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def shell(arguments: str, stdin: str = "") -> Ended:
    """Run the program by a shell, which can close its streams."""
    command = f"{shlex.join(PROGRAM)} {arguments}"
    done = subprocess.run(["sh", "-c", command], input=stdin, capture_output=True, text=True)
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def failing(monkeypatch):
    """Make the verb ``demo`` raise."""

    def failing(error):
        def demo() -> None:
            raise error

        monkeypatch.setattr("overweave.cli.demo.demo", demo)

    return failing


def test_version(run):
    assert run("--version") == (0, "overweave 0.1.0\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_verb(run, arguments):
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    assert all(f"  {verb} " in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example_that_can_be_pasted(run, verb):
    status, out, _ = run(verb, "--help")
    assert status == 0
    example = out.partition("Example:\n")[2].strip()
    assert f"overweave {verb}" in example.splitlines()[-1]


@pytest.mark.parametrize("verb", ["match", "simulate"])  # demo: test_demo_verb.py
def test_examples_work_anywhere(run, verb, tmp_path):
    example = run(verb, "--help").out.partition("Example:\n")[2]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-ec", example], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert verb != "match" or done.stdout == "1\t1\n"


def test_help_is_quick_because_it_imports_nothing_heavy():
    code = "import sys\nfrom overweave.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numpy", "rich.table", "rustworkx"} & set(modules)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mtach"], f"overweave: expected a verb ({', '.join(VERBS)}), found 'mtach'; did you mean 'match'?"),
        (["zebra"], f"overweave: expected a verb ({', '.join(VERBS)}), found 'zebra'\n"),
        (["x" * 10_000], f"overweave: expected a verb ({', '.join(VERBS)}), found '{'x' * 24}'…\n"),
        (["--nonsense"], "overweave: No such option: --nonsense; expected one of --version, --debug, --help\n"),
        (
            ["demo", "--xyz"],
            "overweave: demo: No such option: --xyz; expected one of --brokers, --filters, --seconds, --out, --seed, "
            "--json, --help\n",
        ),
        (["match", "--filters", "x"], "overweave: match: Missing option '--publications'. Expected file of publications"),
        (
            ["bench"],
            "overweave: bench: Missing argument 'NAME'. Expected one of: matching, control, simulator, plane, routing, "
            "pipeline, planning, capacity, scale.",
        ),
        (["demo", "--filters", "many"], "overweave: demo: Invalid value for '--filters': "),
    ],
)
def test_wrong_usage_is_status_2_in_one_line(run, arguments, expected):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(expected)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (InvalidInput("f:1:2: expected\n  this, found that"), 2, "f:1:2: expected this, found that"),
        (DuplicateId("id 3: expected another"), 2, "id 3: expected another"),
        (UnknownId("id 4"), 1, "id 4"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "gone"), 1, "gone: No such file or directory"),
        (MemoryError(), 1, "out of memory"),
        (KeyError("odd"), 1, "KeyError: 'odd' (unexpected; --debug shows a traceback)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_every_error_is_one_line_without_a_traceback(run, failing, error, status, text):
    failing(error)
    assert run("demo") == (status, "", f"overweave: {text}\n")


@pytest.mark.parametrize("arguments", [["--debug", "demo"], ["demo", "--debug"]])
def test_debug_shows_the_traceback(run, failing, arguments):
    failing(InvalidInput("wrong"))
    status, _, err = run(*arguments)
    assert status == 2
    assert err.startswith("Traceback")
    assert err.endswith("\noverweave: wrong\n")


@pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
def test_debug_by_environment(run, failing, monkeypatch, value, shown):
    failing(InvalidInput("wrong"))
    monkeypatch.setenv("OVERWEAVE_DEBUG", value)
    assert ("Traceback" in run("demo").err) == shown


def test_debug_after_two_dashes_is_an_argument():
    assert app._without_debug(["bench", "--debug", "--", "--debug"]) == (True, ["bench", "--", "--debug"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "overweave: No space left on device\n")


@pytest.mark.parametrize("arguments", ["--help", "--version", "demo", "demo --json", "match --filters - --publications x", "x"])
def test_closed_stdout_is_one_line(arguments):
    done = shell(f"{arguments} >&-")
    assert (done.returncode, done.stderr) == (1, "overweave: cannot write the output: standard output is closed\n")
    assert shell(f"{arguments} >&- 2>&-") == done._replace(stderr="")


def test_closed_stderr_drops_messages_and_spares_the_answer(tmp_path):
    (tmp_path / "f").write_text("[a,=,1]\nbad\n")
    match = f"match --filters {tmp_path}/f --publications - --json --skip-bad"
    expected = shell(f"{match} 2>/dev/null", stdin="[a,1]\n")
    assert (expected.returncode, json.loads(expected.stdout)["matches"]) == (0, [[1]])
    assert shell(f"{match} 2>&-", stdin="[a,1]\n") == expected
    for wrong in ("x", "--debug x", "match --filters gone --publications - --debug"):
        assert shell(f"{wrong} 2>&-") == Ended(2, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_messages_that_cannot_be_written_do_not_change_the_exit_status(tmp_path):
    (tmp_path / "f").write_text("[a,=,1]\nbad\n")
    done = shell(f"match --filters {tmp_path}/f --publications - --skip-bad 2>/dev/full", stdin="[a,1]\n")
    assert done == Ended(0, "1\t1\n", "")
    assert shell("x 2>/dev/full").returncode == 2


def test_ctrl_c_while_starting_is_no_traceback():
    code = """if True:
        import os, signal, sys
        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "overweave.cli.app":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interrupting())
        from overweave.cli import main
        main(["--help"])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "overweave: interrupted\n")


def test_the_console_script_imports_little_before_it_can_be_interrupted():
    code = "import sys; from overweave.cli import main; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typing", "typer", "msgspec", "overweave.language"} & set(modules)


def test_a_reader_that_leaves_is_no_error(tmp_path):
    (tmp_path / "filters").write_text("[a,=,1]\n")
    (tmp_path / "publications").write_text("[a,1]\n" * 100_000)
    command = [*PROGRAM, "match", "--filters", tmp_path / "filters", "--publications", tmp_path / "publications"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\t1\n"
        process.stdout.close()
        assert (process.wait(30), process.stderr.read()) == (0, b"")


def test_a_lone_line_is_answered_at_once_and_ctrl_c_ends_with_130(tmp_path):
    (tmp_path / "filters").write_text("[a,=,1]\n")
    command = [*PROGRAM, "match", "--filters", tmp_path / "filters", "--publications", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        for number in (1, 2):
            process.stdin.write(b"[a,1]\n")
            assert process.stdout.readline() == f"{number}\t1\n".encode()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"overweave: interrupted\n")


def test_what_runs_below_knows_of_debug(run, monkeypatch):
    monkeypatch.delenv("OVERWEAVE_DEBUG", raising=False)
    seen = []

    def demo() -> None:
        seen.append(os.environ.get("OVERWEAVE_DEBUG", "0"))

    monkeypatch.setattr("overweave.cli.demo.demo", demo)
    for arguments in (["demo"], ["demo", "--debug"], ["demo"]):
        run(*arguments)
    assert seen == ["0", "1", "0"]


@pytest.mark.parametrize(
    ("former", "today"),
    [
        (["pub", "--to", "tls://h:1", "--authorities", "no.pem"], ["pub", "--to", "tls://h:1", "--cafile", "no.pem"]),
        (
            ["sub", "[x,=,1]", "--from", "tls://h:1", "--authorities=no.pem"],
            ["sub", "[x,=,1]", "--from", "tls://h:1", "--cafile=no.pem"],
        ),
        (["pub", "--to", "tcp://127.0.0.1:1", "--wait", "0"], ["pub", "--to", "tcp://127.0.0.1:1", "--connect-timeout", "0"]),
        (["sweep", "none.toml", "--out", "out", "--again"], ["sweep", "none.toml", "--out", "out", "--retry-failed"]),
    ],
)  # fmt: skip
def test_former_names_of_options_work_for_a_release_and_are_not_in_the_help(run, former, today):
    status, _, err = run(*today)
    assert status
    assert "No such option" not in err
    assert run(*former) == run(*today)
    assert not any(name in run(former[0], "--help").out for name in ("--authorities", "--wait", "--again"))
