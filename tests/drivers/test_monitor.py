"""The monitoring endpoint of a live broker, and its resistance to malformed requests."""

import asyncio
import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from overweave.broker.counters import Counters, Statistics
from overweave.broker.module_traffic import ModuleTraffic
from overweave.broker.story import Step
from overweave.drivers.tcp import monitor
from overweave.drivers.tcp.metrics import PEERS_MAX
from overweave.drivers.tcp.monitor import REQUEST_BYTES_MAX, MonitorError, MonitorServer, fetch_snapshot, host_and_port
from overweave.errors import InvalidInput

STATISTICS = Statistics(10, 20, 30, 4, 5, 6, {"subscriptions": 7, "advertisements": 1}, {"B2": 3})


def observatory(statistics=STATISTICS, healthy=True, gauges=None):
    return MonitorServer(
        "B1", lambda: statistics, lambda: gauges or {"queue_length": 2.5}, lambda: None if healthy else "no link to B2"
    )


def served(observed, talk):
    """Whatever ``talk(port)`` answers while ``observed`` is served, on a port that the system chose."""

    async def go():
        server = await observed.serve_http("127.0.0.1", 0)
        try:
            return await talk(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            await server.wait_closed()
            assert observed._connections == 0

    return asyncio.run(go())


async def say(port, data, end=False):
    """Send bytes and return what comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def exchange(observed, data, end=False):
    return served(observed, lambda port: say(port, data, end))


def get(observed, path, method="GET"):
    """Status, headers and body of one page."""
    head, _, body = exchange(observed, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


def samples(observed):
    status, headers, body = get(observed, "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = list(text_string_to_metric_families(body.decode()))
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


def test_metrics():
    broker = ("broker", "B1")
    found = samples(observatory())
    uptime_s = found.pop(("overweave_uptime_s", broker))
    assert 0 <= uptime_s < 60
    assert found == {
        ("overweave_migrations", broker): 0,
        ("overweave_migrations_completed_total", broker): 0,
        ("overweave_migrations_failed_total", broker): 0,
        ("overweave_publications_in_total", broker): 10,
        ("overweave_publications_out_total", broker): 20,
        ("overweave_publications_to_clients_total", broker): 30,
        ("overweave_deliveries_total", broker): 30,  # the former name
        ("overweave_duplicates_total", broker): 4,
        ("overweave_unadvertised_total", broker): 0,
        ("overweave_control_dropped_total", broker): 0,
        ("overweave_forged_total", broker): 0,
        ("overweave_control_in_total", broker): 5,
        ("overweave_control_out_total", broker): 6,
        ("overweave_table_entries", broker, ("table", "subscriptions")): 7,
        ("overweave_table_entries", broker, ("table", "advertisements")): 1,
        ("overweave_unsettled", broker, ("peer", "B2")): 3,
        ("overweave_queue_length", broker): 2.5,
    }


def test_peers_that_have_most_to_settle_get_a_line_and_the_rest_share_one():
    unsettled = {f"c{number}": number for number in range(1, 101)}
    found = samples(observatory(Statistics(0, 0, 0, 0, 0, 0, {}, unsettled)))
    lines = {key[2][1]: value for key, value in found.items() if key[0] == "overweave_unsettled"}
    assert len(lines) == PEERS_MAX + 1
    assert sum(lines.values()) == sum(unsettled.values())
    assert lines["c100"] == 100
    assert "c80" not in lines


def test_odd_names_stay_inside_their_place():
    found = samples(observatory(Statistics(0, 0, 0, 0, 0, 0, {}, {'a"b\n\\': 1}), gauges={"a.b": 1.0}))
    assert found["overweave_unsettled", ("broker", "B1"), ("peer", 'a"b\n\\')] == 1
    assert found["overweave_a_b", ("broker", "B1")] == 1


def test_health():
    status, headers, body = get(observatory(), "/health")
    assert (status, headers["Content-Type"], json.loads(body)) == (200, "application/json", {"broker": "B1", "status": "ok"})
    status, _, body = get(observatory(healthy=False), "/health?verbose")
    assert (status, json.loads(body)) == (503, {"broker": "B1", "status": "unhealthy", "reason": "no link to B2"})


def test_statistics():
    status, headers, body = get(observatory(), "/statistics")
    assert (status, headers["Content-Length"], headers["Connection"]) == (200, str(len(body)), "close")
    found = json.loads(body)
    assert (found["broker"], found["healthy"], found["gauges"]) == ("B1", True, {"queue_length": 2.5})
    assert found["statistics"]["publications_in"] == 10
    assert found["statistics"]["tables"] == STATISTICS.tables


def test_the_story_of_one_message():
    steps = {"p q:1": [Step(1.5, "publish", "B2", ("B3", "s"))]}
    observed = MonitorServer("B1", lambda: STATISTICS, story=lambda message: steps.get(message, []))
    status, headers, body = get(observed, "/story?id=p%20q:1")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == [{"at_s": 1.5, "what": "publish", "peer": "B2", "to": ["B3", "s"]}]
    assert json.loads(get(observed, "/story?id=q:1")[2]) == []
    status, _, body = get(observed, "/story")
    assert (status, body[:15]) == (400, b"expected ?id= a")


def test_other_paths_and_methods():
    assert get(observatory(), "/")[0] == 404
    status, headers, _ = get(observatory(), "/metrics", "POST")
    assert (status, headers["Allow"]) == (405, "GET")


def test_a_large_answer_arrives_whole():
    many = Statistics(0, 0, 0, 0, 0, 0, {}, {f"client-{number:08}": 1 for number in range(100_000)})
    status, headers, body = get(observatory(many), "/statistics")
    assert (status, int(headers["Content-Length"])) == (200, len(body))


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n",
        b"get /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET /health HTTP/1.1\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\0\r\n\r\n",
        b"GET /" + b"x" * REQUEST_BYTES_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 2 * REQUEST_BYTES_MAX,
    ],
)
def test_what_is_no_request_is_400(request_):
    assert exchange(observatory(), request_).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_half_a_request_is_400_and_none_is_no_answer():
    assert exchange(observatory(), b"GET /hea", end=True).startswith(b"HTTP/1.1 400 ")
    assert exchange(observatory(), b"", end=True) == b""


@settings(max_examples=30)
@given(data=st.binary(max_size=300) | st.binary(max_size=50).map(lambda more: b"GET /health HTTP/1.1\r\nHost: x" + more))
def test_garbage_never_raises_and_the_next_is_answered(data):
    async def talk(port):
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await say(port, data + b"\r\n\r\n", end=True)
        assert b"HTTP/1.1 200 OK" in await say(port, b"GET /health HTTP/1.0\r\n\r\n")
        assert complaints == []

    served(observatory(), talk)


def test_who_says_nothing_is_left_after_a_while(monkeypatch):
    monkeypatch.setattr(monitor, "EXCHANGE_S_MAX", 0.05)
    assert exchange(observatory(), b"GET /health HTTP/1.1\r\n") == b""


def test_who_does_not_read_is_left_after_a_while(monkeypatch):
    monkeypatch.setattr(monitor, "EXCHANGE_S_MAX", 0.1)
    many = observatory(Statistics(0, 0, 0, 0, 0, 0, {}, {f"client-{number:08}": 1 for number in range(500_000)}))

    async def talk(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /statistics HTTP/1.0\r\n\r\n")
        while not many._connections:
            await asyncio.sleep(0.01)
        while many._connections:
            await asyncio.sleep(0.01)
        writer.transport.abort()

    served(many, talk)


def test_too_many_at_once_are_sent_away(monkeypatch):
    monkeypatch.setattr(monitor, "CONNECTIONS_MAX", 1)

    async def talk(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET")
        await writer.drain()
        refused = await say(port, b"GET /health HTTP/1.0\r\n\r\n")
        writer.close()
        await asyncio.sleep(0.05)
        return refused, await say(port, b"GET /health HTTP/1.0\r\n\r\n")

    refused, answered = served(observatory(), talk)
    assert refused == b"" or refused.startswith(b"HTTP/1.1 503 ")  # nothing where the reset overtakes the answer
    assert answered.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/metrics", "/statistics"])
def test_a_broker_that_fails_to_say_is_500_and_in_the_log(path, caplog):
    def broken():
        raise RuntimeError("odd")

    assert get(MonitorServer("B1", broken), path)[0] == 500
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.ERROR, "observe-failed")]


def test_ask():
    snapshot = served(observatory(healthy=False, gauges={"x": float("inf")}), lambda port: fetch_snapshot(f"127.0.0.1:{port}"))
    assert (snapshot.broker, snapshot.healthy, snapshot.statistics) == ("B1", False, STATISTICS)
    assert snapshot.gauges == {"x": None}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "not a broker's reply: nothing"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "not a broker's reply: HTTP/1.1 404 Not Found"),
        (b"SSH-2.0-x\x1b[2J\r\n", r"not a broker's reply: SSH-2.0-x\\x1b\[2J"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "not a snapshot"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "not a snapshot"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"broker": 1}', "not a snapshot"),
        (None, "no answer within 0.1 s"),
    ],
)
def test_ask_somebody_else(answer, reason):
    async def other(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            writer.close()
        opened.append(writer)

    async def go():
        server = await asyncio.start_server(other, "127.0.0.1", 0)
        async with server:
            try:
                await fetch_snapshot(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.1)
            finally:
                opened[0].close()

    opened = []
    with pytest.raises(MonitorError, match=reason):
        asyncio.run(go())


def test_ask_nobody():
    async def go():
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
        await fetch_snapshot(f"127.0.0.1:{port}")

    with pytest.raises(MonitorError, match=r"^connection refused$"):
        asyncio.run(go())


@pytest.mark.parametrize("text", ["", "x", "x:", ":1", "x:0", "x:65536", "x:1:2", "https://x:1", "x y:1", "[::1]", "x:١"])
def test_no_address(text):
    with pytest.raises(InvalidInput, match="expected HOST:PORT, found"):
        host_and_port(text)


def test_modules_have_a_state_and_traffic_by_kind():
    counters = Counters()
    counters.traffic.count("m", "PIE", received=3, sent=5)
    observed = MonitorServer("B1", lambda: counters.statistics({}, {}), module_status=lambda: {"m": {"phase": "idle", "at": {1}}})
    found = samples(observed)
    labels = ("broker", "B1"), ("kind", "PIE"), ("module", "m")
    assert found["overweave_module_messages_received_total", *labels] == 3
    assert found["overweave_module_messages_sent_total", *labels] == 5
    snapshot = served(observed, lambda port: fetch_snapshot(f"127.0.0.1:{port}"))
    assert snapshot.modules == {"m": {"phase": "idle", "at": [1]}}
    assert snapshot.statistics.module_traffic == (ModuleTraffic("m", "PIE", 3, 5),)
