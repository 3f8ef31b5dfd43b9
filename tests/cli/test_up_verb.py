"""Processes live and die together; what is wrong with a network is said before any is started."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from overweave.drivers.tcp.processes import ChildProcess, ProcessExited, supervise

CHILD = "import sys, time; print('ready', flush=True); "
WAITING = [sys.executable, "-c", f"{CHILD} time.sleep(60)"]
DEAF = [sys.executable, "-c", f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {CHILD} time.sleep(60)"]
FAILING = [sys.executable, "-c", f"{CHILD} print('first\\nno port', file=sys.stderr); sys.exit(3)"]


def stop():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("command", [WAITING, DEAF])
def test_a_signal_stops_all_even_those_that_do_not_listen(command):
    begin_s = time.monotonic()
    asyncio.run(supervise({"B1": WAITING, "B2": command}, stop, stop_s=0.5))
    assert time.monotonic() - begin_s < 20


def test_a_signal_is_heard_while_they_start(monkeypatch):
    started, start = [], ChildProcess.start

    async def start_and_stop(name, *rest):
        started.append(name)
        child = await start(name, *rest)
        stop()
        await asyncio.sleep(0.05)
        return child

    monkeypatch.setattr(ChildProcess, "start", start_and_stop)
    asyncio.run(supervise({f"B{number}": WAITING for number in range(5)}, lambda: pytest.fail("ready"), stop_s=0.5))
    assert started == ["B0"]


def test_one_that_dies_is_named_with_its_last_line_and_takes_the_others_along():
    lines = []
    with pytest.raises(ProcessExited, match=r"^B2 ended with status 3: no port$"):
        asyncio.run(supervise({"B1": WAITING, "B2": FAILING}, lambda: None, lambda *line: lines.append(line)))
    assert lines == [("B2", "first"), ("B2", "no port")]


def test_a_child_does_not_outlive_a_parent_that_is_killed():
    code = "import time\nfrom overweave.drivers.tcp.processes import stop_with_parent\nstop_with_parent(0)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        child.stdin.close()
        assert child.wait(20) == -signal.SIGTERM


def test_wrong_networks_are_status_2(run, tmp_path):
    file = tmp_path / "network.toml"
    file.write_text("[network]\nshap = 'chain'\n")
    expected = (2, "", f"overweave: {file}: network.shap: unknown key, the nearest known one is 'shape'\n")
    assert run("up", file) == run("broker", "--config", file, "--id", "B1") == expected


def test_a_broker_that_is_not_in_the_overlay_has_to_join(run, tmp_path):
    file = tmp_path / "network.toml"
    file.write_text('[network]\nshape = "chain"\nbrokers = 2\nport = 7400\n[[broker]]\nid = "B9"\nspare = true\n')
    for options, text in (
        (["--id", "B9"], "broker 'B9': spare in the network file, so it needs the URL of a broker to join at"),
        (["--id", "B8"], "broker 'B8': expected one of the network"),
        (["--id", "B8", "--join", "tcp://127.0.0.1:7401"], "listen: expected a URL for broker 'B8'"),
        (["--id", "B1", "--listen", "tcp://127.0.0.1:9"], "--listen: expected --join with it"),
        (["--id", "B9", "--join", "B1"], "join: expected tcp://HOST:PORT"),
    ):
        status, out, err = run("broker", "--config", file, *options)
        assert (status, out) == (2, "")
        assert text in err
