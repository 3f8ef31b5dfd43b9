"""Limits of live brokers: who asks for too much is told which limit it met, it is counted, and nobody else notices."""

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.monitor import fetch_snapshot
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.settings import LimitSettings
from overweave.errors import Refused
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until, uplink_of, with_changes

ONE = Overlay(["B1"])
WITHIN_S = 20


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


def limited(**limits):
    settings = network_settings(ONE, limits=LimitSettings(**limits))
    return with_changes(settings, metrics=f"127.0.0.1:{free_ports(1)[0]}")


async def subscribe_twice(client):
    async with client.subscribe("[x,>,1]"), client.subscribe("[x,>,2]"):
        pass


async def advertise_twice(client):
    await client.advertise("[x,>,1]")
    await client.advertise("[x,>,2]")


async def subscribe_long(client):
    async with client.subscribe(f"[x,eq,'{'y' * 100}']"):
        pass


@pytest.mark.parametrize(
    ("limit", "value", "asks", "text"),
    [
        ("subscriptions_per_client_max", 1, subscribe_twice, "at most 1 subscriptions of a client, got 2"),
        ("subscriptions_max", 2, subscribe_twice, "at most 2 subscriptions of all clients of a broker, got 3"),
        ("advertisements_per_client_max", 1, advertise_twice, "at most 1 advertisements of a client, got 2"),
        ("filter_bytes_max", 50, subscribe_long, "at most 50 bytes of a filter, got 110"),
    ],
)
def test_who_says_too_much_is_told_so_and_others_go_on(limit, value, asks, text):
    async def work():
        settings = limited(**{limit: value})
        async with running(settings) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as other:
                await other.advertise("[x,>,0]")
                async with other.subscribe("[x,>,0]") as got:
                    with pytest.raises(Refused, match=f"limits.{limit}: expected {text}") as refused:
                        async with connect(url) as client:
                            await asks(client)
                    assert refused.value.code == "limit-exceeded"
                    await other.publish({"x": 7})
                    assert (await anext(aiter(got)))["x"] == 7
            snapshot = await fetch_snapshot(settings["B1"].metrics)
            assert {key: count for key, count in snapshot.limits_exceeded.items() if count} == {limit: 1}
            metrics = await asyncio.to_thread(page, settings, "/metrics")
            assert f'overweave_limit_exceeded_total{{broker="B1",limit="{limit}"}} 1.0' in metrics
            # What the client had said before is withdrawn.
            await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 0)

    run(work())


def page(settings, path):
    with urllib.request.urlopen(f"http://{settings['B1'].metrics}{path}", timeout=5) as answer:
        return answer.read().decode()


def test_a_client_says_again_what_is_known_without_meeting_a_limit():
    async def work():
        async with running(limited(subscriptions_per_client_max=1)) as nodes:
            async with connect(nodes["B1"].settings.listen) as client, client.subscribe("[x,>,1]"):
                client.host.core.renew_epoch("")
                uplink_of(client).connection.abort()
                await until(lambda: uplink_of(client).connection is not None and uplink_of(client).connection.peer == "B1")
                await asyncio.wait_for(client.flush(), WITHIN_S)
            assert not any(nodes["B1"]._limits.exceeded.values())

    run(work())


def test_one_client_too_many_is_refused_at_once_and_who_was_there_may_come_back():
    async def work():
        async with running(limited(clients_max=1)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url, name="first") as first:
                with pytest.raises(Refused, match=r"limits\.clients_max: expected at most 1 clients, got 2") as refused:
                    async with connect(url):
                        pass
                assert refused.value.code == "connection-limit"
                uplink_of(first).connection.abort()
                await until(lambda: "first" in nodes["B1"].peers and uplink_of(first).connection is not None)
                await first.advertise("[x,>,0]")
            assert nodes["B1"]._limits.exceeded["clients_max"] == 1
            async with connect(url):
                pass

    run(work())


def test_connections_that_say_nothing_make_room_for_others():
    async def work():
        async with running(limited(connections_max=10)) as nodes, contextlib.AsyncExitStack() as stack:
            node, url = nodes["B1"], nodes["B1"].settings.listen
            port = int(url.rpartition(":")[2])
            early = await stack.enter_async_context(connect(url))
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
            await until(lambda: node.server.connection_count >= 26)
            await asyncio.sleep(0.1)
            assert node.server.connection_count == 26  # connections_max and those that may be a neighbour's
            # Clients come in all the same, as long as no more of them do than there may be.
            for _ in range(9):
                await stack.enter_async_context(connect(url))
            with pytest.raises(Refused, match=r"limits\.connections_max: expected at most 10 connections"):
                async with connect(url):
                    pass
            await early.advertise("[x,>,0]")
            await stack.pop_all().aclose()
            for each in silent:
                each.close()
            await until(lambda: node.server.connection_count == 0)
            async with connect(url):
                assert node._limits.exceeded["connections_max"] >= 35

    run(work())


def test_a_fast_publisher_is_slowed_down_and_loses_nothing():
    async def work():
        async with running(limited(publish_rate_hz_max=200)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as fast, connect(url) as other:
                await fast.advertise("[x,>=,0]")
                await other.advertise("[y,>=,0]")
                async with other.subscribe("[x,>=,0]", "[y,>=,0]") as got:
                    start_s, gaps_s = time.monotonic(), []

                    async def publish():
                        for x in range(500):
                            await fast.publish({"x": x})
                            if x % 10 == 9:
                                await fast.flush()

                    publishing = asyncio.create_task(publish())
                    received, own = [], 0
                    async for publication in got:
                        if "x" in publication:
                            received.append(publication["x"])
                            if len(received) == 500:
                                break
                            if len(received) % 100 == 0:
                                sent_s = time.monotonic()
                                await other.publish({"y": own})
                        else:
                            own += 1
                            gaps_s.append(time.monotonic() - sent_s)
                    await publishing
                    assert received == list(range(500))
                    # A burst of a second, and the other 300 at 200 a second.
                    assert 1.3 < time.monotonic() - start_s < 10
                    assert len(gaps_s) == 4
                    assert max(gaps_s) < 1
            assert nodes["B1"]._limits.exceeded["publish_rate_hz_max"] > 0

    run(work())


def test_whoever_is_slowed_down_for_long_is_not_taken_for_dead():
    async def work():
        settings = with_changes(limited(publish_rate_hz_max=10), ping_interval_s=0.1)
        async with running(settings) as nodes, connect(settings["B1"].listen) as client:
            await client.advertise("[x,>=,0]")
            connection = nodes["B1"].peers[client.name]
            await client.publish_encoded(client.encode([{"x": 1}] * 20))
            await until(lambda: connection.held)
            await client.publish({"x": 2})
            await asyncio.wait_for(client.flush(), WITHIN_S)
            assert nodes["B1"].peers[client.name] is connection

    run(work())


@pytest.mark.parametrize("window", [1, 16])
def test_clients_keep_to_the_window_of_their_broker(window):
    async def work():
        config = BrokerConfig(session=SessionConfig(window=window, acknowledge_every=1, acknowledge_delay_s=0.001))
        async with running(network_settings(ONE, config=config)) as nodes:
            url, most = nodes["B1"].settings.listen, 0
            async with connect(url) as client:
                await client.advertise("[x,>=,0]")
                async with client.subscribe("[x,>=,0]") as got:
                    for x in range(500):
                        await client.publish({"x": x})
                        most = max(most, client.unsettled)
                    await client.publish_encoded(client.encode([{"x": x} for x in range(500, 1000)]))
                    await asyncio.wait_for(client.flush(), WITHIN_S)
                    assert [(await anext(aiter(got)))["x"] for _ in range(1000)] == list(range(1000))
                    assert most <= 2 * window

    run(work())


NETWORK = """
[network]
shape = "chain"
brokers = 1
port = {port}
metrics_port = {metrics}
"""


def test_at_the_limit_of_file_descriptors_a_broker_serves_whom_it_has(tmp_path):
    port, metrics = free_ports(2)
    (tmp_path / "network.toml").write_text(NETWORK.format(port=port - 1, metrics=metrics - 1))
    command = [
        sys.executable,
        "-m",
        "overweave",
        "broker",
        "--config",
        str(tmp_path / "network.toml"),
        "--id",
        "B1",
        "--log-json",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)),
        )
    try:
        assert process.stdout.readline() == b"ready\n"
        run(crowd(f"tcp://127.0.0.1:{port}", port, metrics, process.pid))
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["event"], line["fields"]["code"]) for line in lines] == [("full", "connection-limit")]


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def crowd(url, port, metrics, pid):
    async with connect(url) as publisher, connect(url) as subscriber:
        await publisher.advertise("[x,>=,0]")
        async with subscriber.subscribe("[x,>=,0]") as got:
            silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
            await asyncio.sleep(0.3)
            before_s, start_s = cpu_s(pid), time.monotonic()
            for x in range(20):
                await publisher.publish({"x": x})
                assert (await asyncio.wait_for(anext(aiter(got)), 5))["x"] == x
                health = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{metrics}/health", timeout=5)
                assert health.status == 200
                health.close()
                await asyncio.sleep(0.05)
            assert cpu_s(pid) - before_s < 0.5 * (time.monotonic() - start_s)
            async with connect(url):  # strangers make room for it
                pass
            for each in silent:
                each.close()


def test_few_bytes_are_in_flight_to_a_slow_client_and_publishers_wait():
    async def work():
        session = SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005, window_bytes=1 << 20)
        async with running(network_settings(ONE, config=BrokerConfig(session=session))) as nodes:
            node, url = nodes["B1"], nodes["B1"].settings.listen
            async with connect(url) as publisher, connect(url) as subscriber:
                await publisher.advertise("[x,>=,0]")
                async with subscriber.subscribe("[x,>=,0]") as got:
                    uplink_of(subscriber).connection.pause_reading()
                    for x in range(60):
                        await publisher.publish({"x": x}, bytes(200_000))
                        await asyncio.sleep(0)
                    await until(lambda: node.core.statistics().publications_in == 60)
                    await asyncio.sleep(0.1)
                    connection = node.peers[subscriber.name]
                    waiting = sum(len(piece) for message in connection._waiting for piece in message)
                    assert waiting + connection._transport.get_write_buffer_size() < 2 << 20
                    node.core.validate()
                    assert publisher.unsettled >= 50
                    uplink_of(subscriber).connection.resume_reading()
                    assert [(await anext(aiter(got)))["x"] for _ in range(60)] == list(range(60))
                    await asyncio.wait_for(publisher.flush(), WITHIN_S)
                    node.core.validate()

    run(work())
