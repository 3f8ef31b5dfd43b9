"""Logs: one line for one event, whatever is in it."""

import io
import json
import logging
import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overweave.drivers.tcp import logs
from overweave.drivers.tcp.logs import TEXT_MAX, Log, printable


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers[:] = before


def logged(as_json, write, **options):
    stream = io.StringIO()
    logs.configure(stream, as_json, **options)
    write()
    return stream.getvalue()


def test_json():
    text = logged(True, lambda: Log("B1").warning("link-down", peer="B2", tries=3, wait_s=0.5, last=None, final=False))
    assert text.endswith("}\n")
    line = json.loads(text)
    time = datetime.fromisoformat(line.pop("time"))
    assert time.utcoffset() == timedelta(0)
    assert line == {
        "level": "warning",
        "broker": "B1",
        "event": "link-down",
        "fields": {"peer": "B2", "tries": 3, "wait_s": 0.5, "last": None, "final": False},
    }


def test_readable():
    text = logged(False, lambda: Log("B1").info("link-up", peer="B2", reason='the "first"', tries=1))
    assert re.fullmatch(r'\d{4}-\d\d-\d\dT[\d:.]+Z info B1 link-up peer=B2 reason="the \\"first\\"" tries=1\n', text)


def test_levels():
    def write():
        Log("B1").debug("seen")
        Log("B1").info("noted")

    assert [json.loads(line)["event"] for line in logged(True, write).splitlines()] == ["noted"]
    assert len(logged(True, write, level=logging.DEBUG).splitlines()) == 2


def test_the_last_stream_gets_all():
    first = io.StringIO()
    logs.configure(first, as_json=True)
    assert logged(False, lambda: Log("B1").info("once")).count("once") == 1
    assert first.getvalue() == ""


def test_others_are_heard_from_warnings_on():
    def write():
        logging.getLogger("asyncio").info("quiet")
        logging.getLogger("asyncio").error("bad\n%s", "thing")

    line = json.loads(logged(True, write))
    assert (line["broker"], line["event"], line["fields"]) == ("", r"bad\nthing", {})


def test_errors_say_where():
    try:
        raise ValueError("odd\nthing")
    except ValueError as error:
        caught = error
    fields = json.loads(logged(True, lambda: Log("B1").error("failed", caught, page=b"/x\xff")))["fields"]
    assert (fields["error"], fields["page"]) == (r"ValueError: odd\nthing", r"/x\xff")
    assert "test_errors_say_where" in fields["traceback"]


@pytest.mark.parametrize("as_json", [True, False])
@given(text=st.text(), number=st.integers() | st.floats())
def test_nothing_makes_a_second_line_or_a_control_character(as_json, text, number):
    fields = {text: text} | {"peer": text, "number": number}
    text = logged(as_json, lambda: Log(text).info(text, **fields))
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert not as_json or json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("as_json", [True, False])
def test_long_values_are_cut(as_json):
    text = logged(as_json, lambda: Log("B1").info("told", peer="x" * 10_000, number=1 << 100_000))
    assert text.count("x") in (TEXT_MAX, TEXT_MAX + 1)
    assert len(text) < 3 * TEXT_MAX


def test_printable():
    assert printable("plain é …") == "plain é …"
    assert printable("a\x1b\x85\u202e\ud800") == r"a\x1b\x85\u202e\ud800"
