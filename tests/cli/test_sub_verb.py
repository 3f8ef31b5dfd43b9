"""``overweave sub`` against a live broker."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import overweave as ow
from overweave.contract.effects import Reject
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.testing.broker_thread import BrokerThread

PROGRAM = [sys.executable, "-W", "error", "-c", "from overweave.cli import main; main()"]
FILTER = "[class,eq,'A'],[n,>=,0]"


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def publisher(broker):
    with ow.connect_blocking(broker.url, name="ticker") as client:
        client.advertise("[class,eq,'A'],[n,isPresent,0]")
        yield client


@pytest.fixture
def sub(run, broker, publisher):
    """Run the verb, and publish numbered publications as soon as it has subscribed."""

    def sub(*arguments, numbers=(0, 1, 2)):
        def publish():
            wait_for_subscriptions(broker, 1)
            publisher.publish_many({"class": "A", "n": n} for n in numbers)

        thread = threading.Thread(target=publish)
        thread.start()
        outcome = run("sub", "--from", broker.url, FILTER, *arguments)
        thread.join()
        wait_for_subscriptions(broker, 0)
        return outcome

    return sub


def wait_for_subscriptions(broker, count):
    end_s = time.monotonic() + 60
    while broker.node.core.statistics().tables.get("subscriptions", 0) != count:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_text(sub):
    assert sub("--count", 3) == (0, "[class,'A'],[n,0]\n[class,'A'],[n,1]\n[class,'A'],[n,2]\n", "")


def test_count_ends_after_so_many(sub):
    assert sub("--count", 2, numbers=range(5000)).out == "[class,'A'],[n,0]\n[class,'A'],[n,1]\n"


def test_json(sub):
    assert sub("--count", 2, "--json").out == '{"class":"A","n":0}\n{"class":"A","n":1}\n'


def test_headers(sub, publisher):
    now_s = time.time()
    lines = [json.loads(line) for line in sub("--count", 2, "--json", "--headers").out.splitlines()]
    assert [line["attributes"] for line in lines] == [{"class": "A", "n": 0}, {"class": "A", "n": 1}]
    assert [line["publisher"] for line in lines] == ["ticker"] * 2
    assert lines[1]["sequence"] == lines[0]["sequence"] + 1
    assert all(abs(line["published_at_s"] - now_s) < 20 and line["hops"] == 1 and 0 <= line["delay_s"] < 20 for line in lines)


def test_it_ends_after_a_time(sub):
    start_s = time.monotonic()
    assert sub("--for", 0.4) == (0, "[class,'A'],[n,0]\n[class,'A'],[n,1]\n[class,'A'],[n,2]\n", "")
    assert time.monotonic() - start_s > 0.4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--from", "tcp://h:1", "[x,>,]"], "FILTER:6: expected a number or a text in single quotes, found ']'"),
        (["--from", "h:1", "[x,>,1]"], "--from: expected tcp://HOST:PORT or tls://HOST:PORT, got 'h:1'"),
        (["--from", "tcp://h:1", "[x,>,1]", "--headers"], "--headers: expected together with --json"),
    ],
)
def test_wrong_options(run, arguments, problem):
    assert run("sub", *arguments) == (2, "", f"overweave: {problem}\n")


def test_a_refusal_is_one_line(run, tmp_path):
    (tmp_path / "tokens.toml").write_text('[[client]]\nname = "*"\ntoken = "secret"\nsubscribe = ["A"]\n')
    with BrokerThread(security=SecuritySettings(tokens=tmp_path / "tokens.toml")) as broker:
        known = ["sub", "--from", broker.url, "--name", "reader"]
        problem = "overweave: unauthorized: client 'reader': expected a token"
        assert run(*known, FILTER) == (1, "", f"{problem}, got none\n")
        assert run(*known, FILTER, "--token", "other") == (1, "", f"{problem} that is good for this name\n")
        status, out, err = run(*known, "--token", "secret", "[n,>,0]")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("overweave: not-allowed: client 'reader' may not subscribe to ")
        assert run("sub", "--from", broker.url, "--token", "secret", FILTER, "--for", 0.1) == (0, "", "")


def test_a_refusal_in_the_middle_comes_after_what_came_before(sub, broker, publisher):
    def cut_off():
        time.sleep(0.5)
        name = next(name for name in broker.node.peers if name != "ticker")
        broker.call(broker.node.reject, Reject(name, "slow-consumer", "too slow", forget=True))

    thread = threading.Thread(target=cut_off)
    thread.start()
    status, out, err = sub(numbers=[7])
    thread.join()
    assert (status, out, err) == (1, "[class,'A'],[n,7]\n", "overweave: slow-consumer: too slow\n")


def test_a_gap_is_one_line_after_what_came_before(run):
    """The broker restarts without state, so that it does not know the subscription for a while."""
    with BrokerThread() as broker, ow.connect_blocking(broker.url) as publisher:

        def publish():
            wait_for_subscriptions(broker, 1)
            publisher.publish({"class": "A", "n": 1})
            publisher.flush()
            broker.stop()
            broker.start()

        thread = threading.Thread(target=publish)
        thread.start()
        status, out, err = run("sub", "--from", broker.url, FILTER)
        thread.join()
    assert (status, out) == (1, "[class,'A'],[n,1]\n")
    assert err.splitlines()[-1].startswith("overweave: session-lost: broker B1 has lost subscriptions of this client")


def test_a_broker_that_goes_away_is_waited_for(run, tmp_path):
    with BrokerThread(state=tmp_path) as broker, ow.connect_blocking(broker.url) as publisher:
        publisher.advertise("[class,eq,'A'],[n,isPresent,0]")

        def publish():
            wait_for_subscriptions(broker, 1)
            publisher.publish({"class": "A", "n": 1})
            publisher.flush()
            broker.stop()
            publisher.publish({"class": "A", "n": 2})
            time.sleep(0.5)
            broker.start()
            publisher.publish({"class": "A", "n": 3})

        thread = threading.Thread(target=publish)
        thread.start()
        status, out, err = run("sub", "--from", broker.url, FILTER, "--count", 3)
        thread.join()
    assert (status, out) == (0, "[class,'A'],[n,1]\n[class,'A'],[n,2]\n[class,'A'],[n,3]\n")
    assert err.startswith(f"overweave: {broker.url}: connection lost, reconnecting\n")


def test_a_broker_that_stays_away_does_not_keep_it(run):
    with BrokerThread() as broker:

        def leave():
            wait_for_subscriptions(broker, 1)
            time.sleep(0.1)
            broker.stop()

        thread = threading.Thread(target=leave)
        thread.start()
        assert run("sub", "--from", broker.url, FILTER, "--for", 0.5).status == 0
        thread.join()


def test_a_broker_that_does_not_answer_in_time(run, broker, monkeypatch):
    async def never(_):
        await asyncio.sleep(20)

    monkeypatch.setattr("overweave.drivers.tcp.subscriptions.Subscription.__aenter__", never)
    err = "overweave: FILTER: expected a confirmation of the broker within 0.1 s\n"
    assert run("sub", "--from", broker.url, FILTER, "--for", 0.1) == (1, "", err)


@contextlib.contextmanager
def started(broker, *arguments):
    command = [*PROGRAM, "sub", "--from", broker.url, FILTER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_for_subscriptions(broker, 1)
            yield process
        finally:
            process.kill()


def test_lines_come_at_once_and_a_reader_that_leaves_is_no_error(broker, publisher):
    with started(broker) as process:
        for n in (1, 2):
            publisher.publish({"class": "A", "n": n})
            assert process.stdout.readline() == f"[class,'A'],[n,{n}]\n".encode()
        process.stdout.close()  # and nothing more is published
        assert (process.wait(10), process.stderr.read()) == (0, b"")
    wait_for_subscriptions(broker, 0)


def test_ctrl_c(broker):
    with started(broker) as process:
        os.kill(process.pid, signal.SIGINT)
        assert (process.wait(10), process.stdout.read(), process.stderr.read()) == (130, b"", b"overweave: interrupted\n")
    wait_for_subscriptions(broker, 0)


@pytest.fixture
def default_hangup():
    """Children get the default of SIGHUP, even if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("default_hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_signal_leaves_cleanly(broker, publisher, number):
    """A client that just vanishes would hold its publishers back until its session has ended."""
    with started(broker) as process:
        os.kill(process.pid, number)
        process.wait(10)
        start_s = time.monotonic()
        publisher.publish({"class": "A", "n": 1})
        publisher.flush()
        assert time.monotonic() - start_s < 2
        assert process.returncode == 128 + number
        assert (process.stdout.read(), process.stderr.read()) == (b"", f"overweave: ended by {number.name}\n".encode())
    wait_for_subscriptions(broker, 0)


def test_an_ignored_hangup_stays_ignored(broker, publisher):
    command = [*PROGRAM[:-1], "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); " + PROGRAM[-1]]
    command += ["sub", "--from", broker.url, FILTER, "--count", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # as under nohup
        wait_for_subscriptions(broker, 1)
        os.kill(process.pid, signal.SIGHUP)
        publisher.publish({"class": "A", "n": 1})
        assert (process.wait(10), process.stdout.read()) == (0, b"[class,'A'],[n,1]\n")
