"""``overweave top``: rates between looks, for as long as somebody watches."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

from overweave.broker.counters import Statistics
from overweave.cli import top as verb
from overweave.drivers.tcp.monitor import Snapshot

NOBODY = "127.0.0.1:1"


@pytest.fixture
def looks(monkeypatch):
    """Let every look find the next of these: a count of publications, or None for nobody."""

    def looks(*counts):
        rest = list(enumerate(counts))

        async def look(addresses):
            number, count = rest.pop(0)
            if count is None:
                return dict.fromkeys(addresses, "connection refused")
            return dict.fromkeys(addresses, Snapshot("B1", True, 10.0 + number, Statistics(count, 0, 0, 0, 0, 0, {}, {}), {}))

        monkeypatch.setattr(verb, "fetch_snapshots", look)

    return looks


def test_once(run, looks):
    looks(100, 350)
    status, out, err = run("top", "--metrics", NOBODY, "--once", "--interval", 0.01)
    assert (status, err) == (0, "")
    head, line = out.splitlines()
    assert head.split()[:3] == ["broker", "state", "in/s"]
    assert line.split()[:5] == ["B1", "up", "250", "0", "350"]


def test_json_is_one_document(run, looks):
    looks(100, 350)
    (line,) = json.loads(run("top", "--metrics", NOBODY, "--json", "--interval", 0.01).out)
    assert (line["broker"], line["publications_in_per_s"], line["publications_in"]) == ("B1", 250, 350)


def test_once_is_status_1_when_no_broker_was_reached(run, looks):
    looks(None, None)
    assert run("top", "--metrics", NOBODY, "--once", "--interval", 0.01).status == 1
    looks(100, None)
    assert run("top", "--metrics", NOBODY, "--json", "--interval", 0.01).status == 1


def test_q_ends_it_and_the_terminal_is_as_before():
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-c", "from overweave.cli import main; main()", "top", "--metrics", NOBODY, "--interval", "60"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as process:
        shown = b""
        while b"unreachable" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, b"xq")
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def test_it_goes_on_when_brokers_go_and_come_back(looks):
    looks(100, None, 300, 400)
    seen = []
    with pytest.raises(IndexError):
        asyncio.run(verb._watch({"B1": NOBODY}, 0.01, False, seen.extend))
    assert [(line.state, line.publications_in_per_s) for line in seen] == [
        ("up", 10),  # since the start, as nothing else is known
        ("unreachable", None),
        ("up", None),
        ("up", 100),
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_it_looks_again_until_ctrl_c(terminal):
    command = [sys.executable, "-c", "from overweave.cli import main; main()", "top", "--metrics", NOBODY, "--interval", "0.05"]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"unreachable") < 3:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b"overweave: interrupted\n"
    if terminal:
        shown += os.read(ours, 1 << 16)
        assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is there again
    os.close(ours)
