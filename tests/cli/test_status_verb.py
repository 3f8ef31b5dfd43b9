"""``overweave status``: one line for each broker, whatever became of it."""

import asyncio
import json
import socket
import threading
import time

import pytest

from overweave.broker.counters import Statistics
from overweave.cli import broker_lines as verb
from overweave.cli import status as status_verb
from overweave.drivers.tcp.monitor import MonitorServer, Snapshot

NETWORK = '[network]\nshape = "chain"\nbrokers = 2\nport = 7400\n'


def snapshot(broker="B1", count=100, uptime_s=10.0, healthy=True):
    return Snapshot(
        broker, healthy, uptime_s, Statistics(count, 2 * count, 50, 0, 0, 0, {"subscriptions": 7}, {"c": 3, "d": 1}), {}
    )


@pytest.fixture
def serve():
    """Serve observatories in a thread, as live brokers would; answers with their addresses."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers = []

    def serve(*brokers, healthy=True, degraded=False):
        addresses = []
        for broker in brokers:
            observed = MonitorServer(
                broker,
                lambda broker=broker: snapshot(broker).statistics,
                dict,
                lambda: None if healthy else "no link to B2",
                degradation=lambda: "no link to B3" if degraded else None,
            )
            servers.append(asyncio.run_coroutine_threadsafe(observed.serve_http("127.0.0.1", 0), loop).result(10))
            addresses.append(f"127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}")
        return addresses

    yield serve
    for server in servers:
        loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.call_later, 0.02, loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def nobody():
    """An address where nobody listens, and nobody else can: it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_table(run, serve):
    status, out, err = run("status", *(f"--metrics={address}" for address in serve("B1", "B2")))
    assert (status, err) == (0, "")
    head, first, second = out.splitlines()
    assert head.split() == ["broker", "state", "in/s", "out/s", "in", "out", "to", "clients", "subscriptions", "unsettled"]
    assert first.split()[:2] == ["B1", "up"]
    assert first.split()[-5:] == ["100", "200", "50", "7", "4"]
    assert second.split()[0] == "B2"


def test_json(run, serve):
    (address,) = serve("B1")
    status, out, _ = run("status", "--metrics", address, "--json")
    (line,) = json.loads(out)
    assert status == 0
    assert (line["broker"], line["address"], line["state"], line["reason"]) == ("B1", address, "up", None)
    assert (line["publications_in"], line["publications_out"], line["publications_to_clients"]) == (100, 200, 50)
    assert (line["deliveries"], line["deliveries_per_s"]) == (50, line["publications_to_clients_per_s"])  # the former names
    assert (line["subscriptions"], line["unsettled"]) == (7, 4)
    assert line["publications_in_per_s"] == pytest.approx(100 / line["uptime_s"])


def test_one_that_is_gone_is_status_1_and_the_others_are_shown(run, serve, nobody):
    (address,) = serve("B1")
    status, out, _ = run("status", "--metrics", nobody, "--metrics", address)
    assert status == 1
    _, gone, there, reason = out.splitlines()
    assert gone.split()[:3] == [nobody, "unreachable", "–"]
    assert there.split()[:2] == ["B1", "up"]
    assert reason == f"{nobody}: connection refused"


def test_one_that_says_it_is_not_well_is_status_1(run, serve):
    status, out, _ = run("status", "--json", "--metrics", *serve("B1", healthy=False))
    line = json.loads(out)[0]
    assert (status, line["state"], line["reason"]) == (1, "unhealthy", "no link to B2")


def test_one_that_routes_around_a_neighbour_is_degraded_and_that_is_status_0(run, serve):
    status, out, _ = run("status", "--json", "--metrics", *serve("B1", degraded=True))
    line = json.loads(out)[0]
    assert (status, line["state"], line["reason"]) == (0, "degraded", "no link to B3")
    assert (
        json.loads(run("status", "--json", "--metrics", *serve("B1", healthy=False, degraded=True)).out)[0]["state"]
        == "unhealthy"
    )


def test_the_silent_are_waited_for_at_once(run, monkeypatch):
    monkeypatch.setattr(verb, "ANSWER_S_MAX", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start_s = time.monotonic()
        lines = asyncio.run(verb.fetch_snapshots({f"{number}": address for number in range(10)}))
        assert time.monotonic() - start_s < 1.5
    assert set(lines.values()) == {"no answer within 0.3 s"}


def test_brokers_of_a_file(run, serve, nobody, tmp_path, monkeypatch):
    (tmp_path / "n.toml").write_text(NETWORK + "metrics_port = 7500\n")
    addresses = verb.addresses_of(tmp_path / "n.toml", None)
    assert addresses == {"B1": "127.0.0.1:7501", "B2": "127.0.0.1:7502"}
    served = serve("B1", "B7")
    monkeypatch.setattr(status_verb, "addresses_of", lambda *_: dict(zip(("B1", "B2"), served, strict=True)) | {"B3": None})
    status, out, _ = run("status", tmp_path / "n.toml", "--json")
    assert status == 1
    assert [(line["broker"], line["state"], line["reason"]) for line in json.loads(out)] == [
        ("B1", "up", None),
        ("B2", "unreachable", "broker B7 answers there"),
        ("B3", "unreachable", "no metrics address"),
    ]


def test_names_are_shown_as_they_are(run, serve):
    out = run("status", "--metrics", *serve("[red]\x1b[2J")).out
    assert "[red]\\x1b[2J" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("name", ["status", "top"])
def test_wrong_input(run, tmp_path, name):
    (tmp_path / "n.toml").write_text(NETWORK)
    for arguments, text in (
        ([], "expected either a network's FILE or --metrics HOST:PORT"),
        ([tmp_path / "n.toml", "--metrics", "x:1"], "expected either a network's FILE or --metrics HOST:PORT"),
        (["--metrics", "x"], "--metrics: expected HOST:PORT, found 'x'"),
        ([tmp_path / "n.toml"], f"{tmp_path}/n.toml: network.metrics_port: expected a port, found none"),
    ):
        status, out, err = run(name, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(f"overweave: {text}")


def test_rates_are_since_the_look_before():
    (line,) = verb.lines_of({"B1": "x:1"}, {"B1": snapshot(count=160, uptime_s=12.0)}, {"B1": snapshot(count=100, uptime_s=10.0)})
    assert (line.publications_in_per_s, line.publications_out_per_s, line.publications_to_clients_per_s) == (30, 60, 0)


@pytest.mark.parametrize("before", ["away", snapshot(count=500, uptime_s=5.0), snapshot(count=50, uptime_s=99.0)])
def test_who_was_away_or_started_anew_has_no_rate(before):
    (line,) = verb.lines_of({"B1": "x:1"}, {"B1": snapshot()}, {"B1": before})
    assert (line.state, line.publications_in_per_s, line.publications_in) == ("up", None, 100)
