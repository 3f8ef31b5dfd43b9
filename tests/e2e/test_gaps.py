"""Subscribers that miss publications always learn it; nobody else is told anything."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from overweave.contract.effects import Reject
from overweave.contract.wire import Connect
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.tombstones import Tombstones
from overweave.errors import Refused, SessionLost
from overweave.overlay.graph import Overlay
from overweave.testing.chaos.proxy import Route
from overweave.testing.live import network_settings, processes, running, until, uplink_of

ONE = Overlay(["B1"])
CONFIG = network_settings(ONE)["B1"].config
WITHIN_S = 30
#: A client that counts what it gets, until something is raised.
COUNTING = """
import asyncio, sys
import overweave as ow

async def main():
    count = 0
    async with ow.connect(sys.argv[1], name="counting") as client, client.subscribe("[n,>=,0]") as numbers:
        print("subscribed", flush=True)
        try:
            async for batch in numbers.batches():
                count += batch.count
        except ow.OverweaveError as error:
            print(type(error).__name__, error.code, count, flush=True)
            for again in (client.publish({"n": 1}), client.flush()):
                try:
                    await again
                except ow.Refused as error:
                    print(type(error).__name__, error.code, flush=True)

asyncio.run(main())
"""
SUB = "from overweave.cli import main; main()"


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=90))


async def publish_while_stopped(broker, process, rows, payload):
    """Publish to a process that is stopped, until its broker has cut it off and given up telling it."""
    async with connect(broker.url) as publisher:
        await publisher.publish({"n": 0})
        await publisher.flush()
        descriptors = broker.descriptors()
        os.kill(process.pid, signal.SIGSTOP)
        encoded = publisher.encode([{"n": number} for number in range(100)], payload)
        for _ in range(rows // 100):
            await publisher.publish_encoded(encoded)
        await asyncio.wait_for(publisher.flush(), WITHIN_S)
        await until(lambda: broker.descriptors() < descriptors, WITHIN_S, "that it is cut off")
    os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize(("rows", "payload"), [(2_000, b""), (20_000, bytes(1_000))], ids=["small", "more than sockets hold"])
def test_a_client_that_was_stopped_learns_that_it_was_cut_off(rows, payload):
    config = msgspec.structs.replace(CONFIG, slow_consumer_timeout_s=1.0)
    with processes(network_settings(ONE, config=config)) as brokers:
        command, pipe = [sys.executable, "-c", COUNTING, brokers["B1"].url], subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, text=True) as process:
            try:
                assert process.stdout.readline() == "subscribed\n"
                asyncio.run(publish_while_stopped(brokers["B1"], process, rows, payload))
                kind, code, count = process.stdout.readline().split()
                assert (kind, code) == ("Refused", "slow-consumer")
                assert int(count) <= rows + 1
                assert process.stdout.read() == "Refused slow-consumer\n" * 2
                assert process.wait(WITHIN_S) == 0
            finally:
                process.kill()


def test_sub_that_was_stopped_ends_with_one_line():
    config = msgspec.structs.replace(CONFIG, slow_consumer_timeout_s=1.0)
    with processes(network_settings(ONE, config=config)) as brokers:
        command, pipe = [sys.executable, "-c", SUB, "sub", "--from", brokers["B1"].url, "[n,>=,0]"], subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
            try:
                descriptors = brokers["B1"].descriptors()
                end_s = time.monotonic() + WITHIN_S
                while brokers["B1"].descriptors() == descriptors and time.monotonic() < end_s:
                    time.sleep(0.05)
                time.sleep(1.0)  # it subscribes
                asyncio.run(publish_while_stopped(brokers["B1"], process, 20_000, bytes(1_000)))
                _, err = process.communicate(timeout=WITHIN_S)
                last = err.decode().splitlines()[-1]
                assert (process.returncode, last.split(": ")[:2]) == (1, ["overweave", "slow-consumer"])
            finally:
                process.kill()


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_broker_that_restarts(keeps_state, tmp_path):
    """With state nothing is missing and nothing is raised; without it the subscription raises, once."""

    async def work(broker):
        async with (
            connect(broker.url) as publisher,
            connect(broker.url) as subscriber,
            subscriber.subscribe("[n,>=,0]") as numbers,
            subscriber.subscribe("[n,<,0]") as others,
        ):
            await publisher.publish({"n": 0})
            await publisher.flush()
            await asyncio.to_thread(broker.kill)
            uplink = uplink_of(subscriber)
            address, uplink.address = uplink.address, uplink.address._replace(port=1)
            await publisher.publish({"n": 1})
            await asyncio.to_thread(broker.start)
            flushed = asyncio.create_task(publisher.flush())
            if not keeps_state:
                await asyncio.wait_for(flushed, WITHIN_S)  # before the subscriber is back
            uplink_of(subscriber).address = address
            receipt = await asyncio.wait_for(flushed, WITHIN_S)
            await subscriber.subscribe("[n,=,-7]").__aenter__()  # the other subscriptions are in force before it
            await publisher.publish({"n": 2})
            await asyncio.wait_for(publisher.flush(), WITHIN_S)
            assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == 0
            if keeps_state:
                assert receipt.unmatched == 0
                assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == 1
            else:
                assert receipt.unmatched == 1
                for each in (numbers, others):
                    with pytest.raises(SessionLost, match="session-lost: broker B1 has lost subscriptions") as raised:
                        await asyncio.wait_for(anext(aiter(each)), WITHIN_S)
                    assert 0 < raised.value.until_s - raised.value.since_s < WITHIN_S
            assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == 2

    with processes(network_settings(ONE, state=tmp_path if keeps_state else None)) as brokers:
        run(work(brokers["B1"]))


def test_a_session_that_expired_says_what_was_dropped_after_what_came_before():
    async def work():
        async with running(network_settings(ONE, session_expiry_s=0.3)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as publisher, connect(url) as subscriber, subscriber.subscribe("[n,>=,0]") as numbers:
                await publisher.publish({"n": 0})
                await publisher.flush()
                await until(lambda: numbers.pending == 1)
                address, uplink_of(subscriber).address = (
                    uplink_of(subscriber).address,
                    uplink_of(subscriber).address._replace(port=1),
                )
                uplink_of(subscriber).connection.abort()
                await until(lambda: nodes["B1"].gauges()["connected_clients"] == 1)
                for number in range(1, 4):
                    await publisher.publish({"n": number})
                await asyncio.wait_for(publisher.flush(), WITHIN_S)
                uplink_of(subscriber).address = address
                await until(lambda: numbers.gap_is_next or len(numbers._batches) == 2)
                async for number in numbers:
                    assert number["n"] == 0
                    break
                with pytest.raises(SessionLost) as raised:
                    await anext(numbers.batches())
                assert (raised.value.code, raised.value.count) == ("session-expired", 3)
                assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
                await until(lambda: nodes["B1"].core.registration_count("subscription") == 1)  # it is sent again after the gap
                await publisher.publish({"n": 4})
                assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == 4

    run(work())


def test_who_has_no_subscription_in_force_is_told_nothing():
    async def work():
        async with running(network_settings(ONE, session_expiry_s=0.1)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as publisher:
                ticket, uplink_of(publisher).address = (
                    publisher.attachments[0]._resume_token,
                    uplink_of(publisher).address._replace(port=1),
                )
                uplink_of(publisher).connection.abort()
                numbers = publisher.subscribe("[n,>=,0]")
                entering = asyncio.create_task(numbers.__aenter__())
                await until(lambda: not nodes["B1"].core.clients())
                uplink_of(publisher).address = uplink_of(connect(url)).address
                await asyncio.wait_for(entering, WITHIN_S)
                assert publisher.attachments[0]._resume_token != ticket
                await publisher.publish({"n": 1})
                assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == 1

    run(work())


@pytest.mark.parametrize("is_heard", [True, False])
def test_being_cut_off_is_raised_however_the_client_hears_of_it(is_heard):
    async def work():
        async with running(network_settings(ONE)) as nodes:
            node = nodes["B1"]
            async with connect(node.settings.listen, name="c") as client, client.subscribe("[n,>=,0]") as numbers:
                connection = node.peers["c"]
                if not is_heard:
                    connection.send = lambda _: None  # as when the client reads nothing until the connection is gone
                node.reject(Reject("c", "slow-consumer", "too slow", 7, forget=True))
                for _ in range(2):
                    with pytest.raises(Refused, match="slow-consumer: too slow"):
                        await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S)
                with pytest.raises(Refused, match="slow-consumer: too slow"):
                    await client.publish({"n": 1})
                with pytest.raises(Refused, match="slow-consumer: too slow"):
                    await client.flush()
                # Told once: whoever comes anew under the name and key begins anew.
                assert len(node.sessions.tombstones) == (1 if is_heard else 0)

    run(work())


@pytest.mark.parametrize("code", ["session-expired", "slow-consumer", None])
def test_a_gap_is_told_again_if_the_first_answer_gets_lost(code):
    """Word of it is part of the new session, however often its client connects before it hears something."""

    async def work():
        async with running(network_settings(ONE)) as nodes:
            node = nodes["B1"]
            async with connect(node.settings.listen, name="c") as client, client.subscribe("[n,>=,0]") as numbers:
                received, heard = client.attachments[0].received, []

                def lose_first(connection, message):
                    if isinstance(message, Connect) and not heard:
                        heard.append(message)
                        connection.abort()
                    else:
                        received(connection, message)

                client.attachments[0].received = lose_first
                uplink_of(client).connection.abort()
                if code is not None:
                    node.sessions.add_tombstone("c", code, "text", 7)
                node.sessions.end("c")
                expected = Refused if code == "slow-consumer" else SessionLost
                with pytest.raises(expected, match=code or "session-lost"):
                    await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S)
                assert heard

    run(work())


def test_only_some_tombstones_are_kept():
    tombstones = Tombstones(count_max=3)
    for number in range(5):
        tombstones.add(str(number), "key", "code", "text", 0.0, number)
    assert [tombstones.pop(str(number), "key", 1.0) is not None for number in range(5)] == [False, False, True, True, True]
    assert len(tombstones) == 0


def test_the_gap_begins_with_the_connection_that_was_lost_not_with_attempts_to_connect_again():
    async def work():
        async with running(network_settings(Overlay(["B1", "B2"], [("B1", "B2")]))) as nodes:
            route = Route(parse_address(nodes["B1"].settings.listen).port)
            relay = await asyncio.start_server(route.accept, "127.0.0.1", 0)
            url = f"tcp://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
            async with connect(url, name="s", failover_s=1.0) as client, client.subscribe("[n,>=,0]") as numbers:
                cut_s = client.now_s()
                route.inject("cut", 60.0)  # whoever connects now is accepted, and disconnected at once
                with pytest.raises(SessionLost, match="failed-over") as raised:
                    await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S)
                assert raised.value.since_s <= cut_s
                assert raised.value.until_s > cut_s + 0.9
            relay.close()

    run(work())
