"""``overweave plan tcp://…`` against live brokers in a thread, under traffic."""

import asyncio
import contextlib
import json
import threading
import time

import pytest

from overweave.drivers.tcp.blocking import connect_blocking
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.pipeline import session
from overweave.pipeline.plan_files import read_plan
from overweave.testing.live import running

TOKENS = """
[[client]]
name = "ops"
token = "operate"
control = true
[[client]]
name = "all"
token = "all"
publish = ["*"]
subscribe = ["*"]
[[client]]
name = "p"
token = "publish"
publish = ["*"]
subscribe = ["*"]
""" + "".join(f'[[broker]]\nid = "B{n}"\ntoken = "broker"\n' for n in (1, 2, 3, 4))


@contextlib.contextmanager
def network_of(file, more=""):
    """A chain of four brokers in a thread: their URLs and nodes."""
    ports = free_ports(4)
    brokers = "".join(f'[[broker]]\nid = "B{n}"\nlisten = "tcp://127.0.0.1:{port}"\n' for n, port in enumerate(ports, 1))
    links = "".join(f'[[link]]\nbetween = ["B{n}", "B{n + 1}"]\n' for n in (1, 2, 3))
    file.write_text(brokers + links + more)
    found = read_network(file)
    started, loop, nodes = threading.Event(), asyncio.new_event_loop(), {}
    stopped = asyncio.Event()

    async def serve():
        async with running({id: found.settings(id) for id in found.overlay.ids}) as made:
            nodes.update(made)
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield found.urls, nodes
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


@contextlib.contextmanager
def traffic(urls, token=None):
    """A publisher at one end, and a subscriber at each other broker."""
    done = threading.Event()
    with contextlib.ExitStack() as stack:
        publisher = stack.enter_context(connect_blocking(urls["B1"], name="p", token=token))
        publisher.advertise("[x,isPresent,0]")
        for number in (2, 3, 4):
            if token is None:
                reader = stack.enter_context(connect_blocking(urls[f"B{number}"], name=f"c{number}"))
                stack.enter_context(reader.subscribe(f"[x,<,{number * 20}]"))

        def publish():
            number = 0
            while not done.wait(0.002):
                publisher.publish({"x": number * 37 % 100})
                number += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@pytest.fixture
def without_spark(monkeypatch):
    monkeypatch.setattr(session, "session", None)


def test_a_live_network_is_planned_from_one_of_its_brokers(run, tmp_path, without_spark):
    with network_of(tmp_path / "network.toml") as (urls, nodes):
        with traffic(urls):
            status, out, err = run(
                "plan", urls["B2"], "--window", 2, "--profile-bits", 128, "--json", "--out", tmp_path / "plan.json"
            )
        assert status == 0, err
        assert err == "overweave: profiling 4 brokers for 2 s\n"
        answer = json.loads(out)
        assert (answer["before"]["brokers"], answer["after"]["brokers"]) == (4, 1)
        assert answer["evidence"]["window_bits"] == 128
        inputs = {row["broker"]: row["before"]["input_hz"] for row in answer["brokers"]}
        rate_hz = inputs["B1"]
        assert 50 < rate_hz < 500
        assert inputs["B4"] == pytest.approx(0.8 * rate_hz, rel=0.1)
        plan = read_plan(tmp_path / "plan.json")
        # The check of all steps finds the profiles beside the plan.
        status, out, err = run("apply", tmp_path / "plan.json", "--network", tmp_path / "network.toml", "--dry-run")
        assert status == 0, err
        assert "utilisation predicted" in out
        assert {"c2", "c3", "c4"} <= plan.clients.keys() if hasattr(plan.clients, "keys") else plan.clients
        deadline_s = time.monotonic() + 5
        while any(node.core.module_status()["collector"] for node in nodes.values()):
            assert time.monotonic() < deadline_s, "the profile has ended"


def test_a_network_without_traffic_has_no_plan(run, tmp_path, without_spark):
    with network_of(tmp_path / "network.toml") as (urls, _):
        status, _, err = run("plan", urls["B1"], "--window", 0.2)
        assert status == 1
        assert "no publications within 0.2 s: nothing to plan for" in err


def test_a_plan_needs_the_permission_control(run, tmp_path, without_spark):
    (tmp_path / "tokens.toml").write_text(TOKENS)
    security = '[security]\ntokens = "tokens.toml"\ntoken = "broker"\n'
    with network_of(tmp_path / "network.toml", security) as (urls, _), traffic(urls, "publish"):
        status, _, err = run("plan", urls["B1"], "--window", 0.2, "--name", "all", "--token", "all")
        assert status == 1
        assert "client 'all~" in err
        assert "may not make requests to the module 'collector'; it needs the permission control" in err
        status, _, err = run("plan", urls["B1"], "--window", 0.2, "--name", "ops", "--token", "operate")
        assert "profiling 4 brokers" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("tcp://127.0.0.1:1", "--network", "n.toml"), "--network: expected without the URL of a broker as SOURCE"),
        (("tcp://127.0.0.1:1", "--follow"), "--follow: expected without the URL of a broker as SOURCE"),
        (("tcp://127.0.0.1:1", "--window", "0"), "--window: expected a time above 0, found 0"),
        (("tcp://127.0.0.1:1", "--profile-bits", "100"), "--profile-bits: expected a multiple of 64 from 64 to 65,536, got 100"),
        (("profiles", "--profiles-out", "d"), "--profiles-out: expected with the URL of a broker as SOURCE"),
        (("profiles", "--window", "3"), "--window: expected with the URL of a broker as SOURCE"),
    ],
)
def test_options_that_do_not_fit_the_source(run, arguments, error):
    status, _, err = run("plan", *arguments)
    assert status == 2
    assert error in err
