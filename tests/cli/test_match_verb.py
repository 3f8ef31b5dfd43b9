"""``overweave match``: what it reads, what it answers, what it says about bad lines."""

import errno
import gzip
import io
import json
import os
import pty
import subprocess
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overweave.cli import line_reader, output
from overweave.cli import match as verb
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.naive import NaiveMatcher

FILTERS = "[a,=,1]\nlow\t[a,<,5]\n\n[b,eq,'x']\n"
PUBLICATIONS = "[a,1]\n\n[a,3],[b,'x']\n[c,1]\n"


IDS_ALIKE = f"filters:2:1: expected an id that was not given before, found '{'i' * 24}'…, which line 1 has"


@pytest.fixture
def match(run, tmp_path):
    """Write both inputs to files and match them."""

    def match(filters, publications, *options, **more):
        for name, content in (("filters", filters), ("publications", publications)):
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        outcome = run("match", "--filters", tmp_path / "filters", "--publications", tmp_path / "publications", *options, **more)
        return outcome._replace(err=outcome.err.replace(f"{tmp_path}/", ""))

    return match


def test_plain(match):
    assert match(FILTERS, PUBLICATIONS) == (0, "1\t1 low\n2\t\n3\t4 low\n4\t\n", "")


def test_json(match):
    status, out, err = match(FILTERS, PUBLICATIONS, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"matches": [[1, "low"], [], [4, "low"], []]}


@pytest.mark.parametrize("publications", ["", "\n", "[z,1]"])
def test_json_of_little_input(match, publications):
    expected = [[] for _ in publications.splitlines()]
    assert json.loads(match("", publications, "--json").out) == {"matches": expected}


def test_line_ends_byte_order_mark_and_missing_last_newline(match):
    assert match(b"\xef\xbb\xbf[a,=,1]\r\ns\t[a,=,1]\r\n", b"[a,1]\r\n[a,1]").out == "1\t1 s\n2\t1 s\n"


def test_a_tab_inside_a_filter_does_not_make_an_id(match):
    assert match("[a,eq,'x\ty']\n[b,=,1],\t[c,=,2]\n", "[a,'x\ty'],[b,1],[c,2]").out == "1\t1 2\n"


def test_ids_are_sorted_numbers_first(match):
    filters = "".join(f"{name}[a,=,1]\n" for name in ("b\t", "10\t", "", "9\t", "", "a\t"))
    assert json.loads(match(filters, "[a,1]", "--json").out) == {"matches": [[3, 5, "10", "9", "a", "b"]]}


def test_gzip(run, tmp_path):
    for name, text in (("f.gz", FILTERS), ("p.gz", PUBLICATIONS)):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert (
        run("match", "--filters", tmp_path / "f.gz", "--publications", tmp_path / "p.gz").out == "1\t1 low\n2\t\n3\t4 low\n4\t\n"
    )


@pytest.mark.parametrize(
    "content",
    [b"[a,=,1]\n", gzip.compress(b"[a,=,1]\n" * 9)[:-12], gzip.compress(b"x")[:12] + b"\xff" * 20],
    ids=["not gzip", "cut off", "damaged"],
)
def test_broken_gzip_is_the_users_input(run, tmp_path, content):
    (tmp_path / "f.gz").write_bytes(content)
    status, out, err = run("match", "--filters", tmp_path / "f.gz", "--publications", "-")
    assert (status, out) == (2, "")
    assert err.startswith(f"overweave: {tmp_path}/f.gz: expected gzip data, found ")
    assert err.count("\n") == 1


def test_standard_input(run, tmp_path):
    (tmp_path / "file").write_text("[a,=,1]\n")
    assert run("match", "--filters", tmp_path / "file", "--publications", "-", stdin=b"[a,1]\n").out == "1\t1\n"
    (tmp_path / "file").write_text("[a,1]\n")
    assert run("match", "--filters", "-", "--publications", tmp_path / "file", stdin=b"[a,=,1]\n").out == "1\t1\n"


@pytest.mark.parametrize(("filters", "publications"), [("-", "-"), ("/dev/stdin", "-"), ("-", "/dev/fd/0")])
def test_standard_input_cannot_be_both(run, filters, publications):
    status, _, err = run("match", "--filters", filters, "--publications", publications)
    assert (status, err) == (
        2,
        "overweave: --publications: expected a file, as --filters reads standard input already\n",
    )


def test_empty_path(run):
    problem = (2, "", "overweave: --filters: expected a file or -, found ''\n")
    assert run("match", "--filters", "", "--publications", "-") == problem


@pytest.mark.parametrize("path", ["missing", "."])
def test_unreadable_file(run, path):
    status, out, err = run("match", "--filters", path, "--publications", "-")
    assert (status, out) == (2, "")
    assert err.startswith(f"overweave: {path}: expected a readable file, found ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("filters", "publications", "problem"),
    [
        ("[a,=,1]\n[a,=,]\n", "", "filters:2:6: expected a number or a text in single quotes, found ']'"),
        ("name\t[a,~,1]\n", "", "filters:1:9: expected an operator for numbers (=, <>, <, …), found '~'"),
        ("name [a,=,1]\n", "", "filters:1:1: expected '[', found 'name [a,=,1]'"),
        (
            "s\t[a,=,1]\n[a,=,1]\ns\t[a,=,2]\n",
            "",
            "filters:3:1: expected an id that was not given before, found 's', which line 1 has",
        ),
        (
            "2\t[a,=,1]\n[a,=,1]\n",
            "",
            "filters:2:1: expected an id that was not given before, found the line number 2, which line 1 has",
        ),
        (
            "\n[a,=,1]\n\n2\t[a,=,1]\n",
            "",
            "filters:4:1: expected an id that was not given before, found '2', which line 2 has",
        ),
        ("my id\t[a,=,1]\n", "", "filters:1:3: expected an id without blanks, found 'my id'"),
        (f"[a,=,1]\n{'[a,=,1],' * 1024}[a,=,1]\n", "", "filters:2:1: expected at most 1,024 predicates, got 1,025"),
        (
            "",
            ",".join(f"[a{number},1]" for number in range(65_536)),
            "publications:1:1: expected at most 65,535 attributes, got 65,536",
        ),
        (f"[a,{'x' * 1_000_000},1]", "", f"filters:1:4: expected an operator for numbers (=, <>, <, …), found '{'x' * 24}'…"),
        (f"{'i' * 99}\t[a,=,1]\n" * 2, "", IDS_ALIKE),
        ("é[a,=,1]".encode() + b"\xff", "", "filters:1:9: expected text in UTF-8, found the byte 0xff"),
        ("", "[a,1]\n\n[a,1\n", "publications:3:5: expected ']', found the end"),
        ("", b"\xff\xfe", "publications:1:1: expected text in UTF-8, found the byte 0xff"),
    ],
)
def test_the_first_bad_line_ends_it(match, filters, publications, problem):
    status, out, err = match(filters, publications, "--json")
    assert (status, out, err) == (2, "", f"overweave: {problem}\n")


def test_a_number_as_id_is_free_when_no_filter_has_that_line(match):
    filters = "[a,=,1]\n\nx\t[a,=,1]\n2\t[a,=,1]\n3\t[a,=,1]\n01\t[a,=,1]\n99\t[a,=,1]\n"
    assert match(filters, "[a,1]").out == "1\t1 01 2 3 99 x\n"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("good", [1, 3000])
def test_every_line_before_the_bad_one_is_answered(run, tmp_path, good, compressed):
    (tmp_path / "f").write_text("[a,=,1]\n")
    data = b"[a,1]\n" * good + b"bad\n[a,1]\n"
    path = tmp_path / ("p.gz" if compressed else "p")
    path.write_bytes(gzip.compress(data) if compressed else data)
    status, out, err = run("match", "--filters", tmp_path / "f", "--publications", path)
    assert (status, err) == (2, f"overweave: {path}:{good + 1}:1: expected '[', found 'bad'\n")
    assert out == "".join(f"{number}\t1\n" for number in range(1, good + 1))


def test_too_many_predicates_or_attributes_are_skipped_like_any_bad_line(match):
    large = ",".join(f"[a{number},1]" for number in range(65_536))
    filters = f"{'[a,=,1],' * 1024}[a,=,1]\n[a,=,1]\n"
    status, out, _ = match(filters, f"[a,1]\n{large}\n[a,1]\n", "--json", "--skip-bad")
    assert status == 0
    assert json.loads(out) == {
        "matches": [[2], [], [2]],
        "skipped": {"filters": [1], "publications": [2]},
        "skipped_count": {"filters": 1, "publications": 1},
    }


def test_skip_bad_skips_and_counts(match):
    filters = "[a,=,1]\n[a\nx\t[a,>,0]\nx\t[a,>,0]\n"
    publications = b"[a,1]\n\xff\n\n[a,2]\n"
    status, out, err = match(filters, publications, "--json", "--skip-bad")
    assert status == 0
    assert json.loads(out) == {
        "matches": [[1, "x"], [], [], ["x"]],
        "skipped": {"filters": [2, 4], "publications": [2]},
        "skipped_count": {"filters": 2, "publications": 1},
    }
    assert err.splitlines() == [
        "overweave: skipped 3 bad lines (2 filters, 1 publication)",
        "overweave: filters:2:3: expected ',', found the end",
        "overweave: filters:4:1: expected an id that was not given before, found 'x', which line 3 has",
        "overweave: publications:2:1: expected text in UTF-8, found the byte 0xff",
    ]


def test_skip_bad_shows_only_the_first_few(match):
    status, out, err = match("", "bad\n" * 100, "--skip-bad")
    assert (status, out.count("\n")) == (0, 100)
    assert err.count("\n") == 1 + line_reader.BadLines.SHOWN
    err = match("bad\n" * 100, "bad\n", "--skip-bad").err
    assert err.splitlines()[-1] == "overweave: publications:1:1: expected '[', found 'bad'", "one file does not hide the other"
    assert match("", "bad", "--skip-bad").err.startswith("overweave: skipped 1 bad line (0 filters, 1 publication)\n")


def test_skip_bad_without_bad_lines(match):
    status, out, err = match("[a,=,1]", "[a,1]", "--json", "--skip-bad")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "matches": [[1]],
        "skipped": {"filters": [], "publications": []},
        "skipped_count": {"filters": 0, "publications": 0},
    }


def test_json_is_written_whole_or_not_at_all(run, tmp_path):
    class Interrupted(io.BytesIO):
        def read1(self, size=-1):
            chunk = super().read1(6)
            if not chunk:
                raise KeyboardInterrupt
            return chunk

    (tmp_path / "filters").write_text("[a,=,1]\n")
    arguments = ["match", "--filters", tmp_path / "filters", "--publications", "-"]
    assert run(*arguments, stdin=Interrupted(b"[a,1]\n" * 2)) == (130, "1\t1\n2\t1\n", "overweave: interrupted\n")
    assert run(*arguments, "--json", stdin=Interrupted(b"[a,1]\n" * 2)) == (130, "", "overweave: interrupted\n")


def test_a_large_document_goes_through_a_temporary_file(match, monkeypatch):
    monkeypatch.setattr(output, "MEMORY_BYTES", 10)
    assert json.loads(match("[a,=,1]", "[a,1]\n" * 5000, "--json").out) == {"matches": [[1]] * 5000}


def test_no_room_for_the_temporary_file(match, monkeypatch):
    class Full(tempfile.SpooledTemporaryFile):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Full)
    status, out, err = match("[a,=,1]", "[a,1]", "--json")
    assert (status, out) == (1, "")
    assert err.startswith(f"overweave: cannot buffer the output in {tempfile.gettempdir()}")
    assert err.endswith("No space left on device\n")


def test_fewer_publications_at_once_when_they_match_much():
    assert verb._next_rows(1, 0) == 2
    assert verb._next_rows(verb.ROWS_MAX, 5) == verb.ROWS_MAX
    assert verb._next_rows(100, 100 * verb.IDS_MAX) == 1


def test_progress_is_for_terminals_only(tmp_path):
    (tmp_path / "f").write_text("[a,=,1]\n")
    (tmp_path / "p").write_text("[a,1]\n" * 3)
    arguments = ["match", "--filters", str(tmp_path / "f"), "--publications", str(tmp_path / "p"), "--json"]
    terminal, stderr = pty.openpty()
    program = [sys.executable, "-c", "from overweave.cli import main; main()"]
    done = subprocess.run([*program, *arguments], stdout=subprocess.PIPE, stderr=stderr, env=os.environ | {"TERM": "xterm"})
    os.close(stderr)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"matches": [[1]] * 3}
    assert "reading filters" in shown
    assert "preparing (first run: " in shown


NAMES = st.sampled_from("ab")
NUMBERS = st.integers(-2, 2)
TEXTS = st.sampled_from(["'x'", "'xy'", "''"])
PREDICATES = st.one_of(
    st.builds("[{},{},{}]".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS),
    st.builds("[{},{},{}]".format, NAMES, st.sampled_from(["eq", "neq", "str-prefix", "str-contains", "str-lt"]), TEXTS),
)
FILTER_TEXTS = st.lists(PREDICATES, min_size=1, max_size=3).map(",".join)
PUBLICATION_TEXTS = st.dictionaries(NAMES, NUMBERS | TEXTS, min_size=1).map(
    lambda attributes: ",".join(f"[{name},{value}]" for name, value in attributes.items())
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FILTER_TEXTS | st.just("")), st.lists(PUBLICATION_TEXTS | st.just(" ")))
def test_answers_are_those_of_the_oracle(match, filters, publications):
    oracle = NaiveMatcher()
    oracle.add_many((number, parse_filter(text), None) for number, text in enumerate(filters, 1) if text)
    expected = [sorted(oracle.match(parse_publication(text))) if text.strip() else [] for text in publications]
    written = "".join(f"{text}\n" for text in filters), "".join(f"{text}\n" for text in publications)
    assert json.loads(match(*written, "--json").out) == {"matches": expected}
