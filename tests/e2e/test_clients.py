"""Clients that are away too long, say much at once, or never say who they are."""

import asyncio
import contextlib

import pytest

from overweave.contract.wire import FRAME_BYTES_MAX, Connect, Ping, encode
from overweave.drivers.tcp import subscriptions
from overweave.drivers.tcp.client import CONFIG, QUEUE_MAX, Receipt, connect
from overweave.errors import InvalidInput, Refused, SessionLost
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until, uplink_of

ONE = Overlay(["B1"])
CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
WITHIN_S = 20


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


async def lose_for(client, away_s):
    """Break a connection, and let it not be made again for a while."""
    address, uplink_of(client).address = (
        uplink_of(client).address,
        uplink_of(client).address._replace(port=1),
    )
    uplink_of(client).connection.abort()
    await asyncio.sleep(away_s)
    uplink_of(client).address = address


@pytest.mark.parametrize("away_s", [0.0, 0.4])  # remembered, forgotten
def test_a_client_that_was_away_goes_on(away_s):
    async def work():
        async with running(network_settings(ONE, session_expiry_s=0.2)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as publisher, connect(url) as subscriber:
                await publisher.advertise("[n,>=,0]")
                async with subscriber.subscribe("[n,>=,0]") as subscription:
                    for number, away in enumerate((None, subscriber, publisher)):
                        if away is not None:
                            await lose_for(away, away_s)
                            await until(lambda: nodes["B1"].gauges()["connected_clients"] == 2)
                            await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 1)
                        if away is subscriber and away_s:
                            with pytest.raises(SessionLost, match=r"session-expired: the client was away for more than 0\.2 s"):
                                await asyncio.wait_for(anext(aiter(subscription)), WITHIN_S)
                        await publisher.publish({"n": number})
                        await asyncio.wait_for(publisher.flush(), WITHIN_S)
                        message = await asyncio.wait_for(anext(aiter(subscription)), WITHIN_S)
                        assert message["n"] == number

    run(work())


def test_clients_that_come_anew_under_their_names_at_other_brokers_are_served():
    """Also when their first brokers, which waited for them, withdraw what they had said there."""

    async def work():
        async with running(network_settings(CHAIN, session_expiry_s=1.0)) as nodes, contextlib.AsyncExitStack() as stack:

            async def served(publishes_at, subscribes_at, waits_s):
                publisher, subscriber = [
                    await stack.enter_async_context(connect(nodes[broker].settings.listen, name=name))
                    for broker, name in ((publishes_at, "p"), (subscribes_at, "s"))
                ]
                await publisher.advertise("[n,>=,0]")
                subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
                await asyncio.sleep(waits_s)
                await publisher.publish({"n": 1})
                await asyncio.wait_for(anext(aiter(subscription)), WITHIN_S)
                await publisher.flush()
                return publisher, subscriber

            for client in await served("B1", "B3", 0.3):
                uplink_of(client).address = uplink_of(client).address._replace(port=1)  # it is not seen again
                uplink_of(client).connection.abort()
                client.host.closed = True
            await served("B3", "B1", 2.5)
            assert sum(node.core.statistics().tables["advertisements"] for node in nodes.values()) == 3

    run(work())


def test_a_subscription_of_several_filters_gets_each_publication_once():
    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await client.advertise("[n,>=,0]")
            async with client.subscribe("[n,<,4]", "[n,>,2]", "[n,eq,9]") as some, client.subscribe("[n,eq,3]") as three:
                for number in (1, 3, 9):
                    await client.publish({"n": number})
                await asyncio.wait_for(client.flush(), WITHIN_S)
                assert [(await anext(aiter(some)))["n"] for _ in range(3)] == [1, 3, 9]
                assert (some.pending, three.pending) == (0, 1)
            await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 0)
            with pytest.raises(InvalidInput, match="filters: expected at least one"):
                client.subscribe()

    run(work())


@pytest.mark.parametrize("left", ["taken", "ended"])
def test_a_client_with_a_full_subscription_reads_on_when_there_is_room(left):
    async def work():
        async with running(network_settings(ONE)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as publisher, connect(url) as subscriber:
                await publisher.advertise("[n,>=,0]")
                async with subscriber.subscribe("[n,>=,0]") as full, subscriber.subscribe("[n,eq,0]") as other:
                    rows = publisher.encode([{"n": number % 1000} for number in range(4000)])
                    while full.pending < QUEUE_MAX:
                        await publisher.publish_encoded(rows)
                        await asyncio.sleep(0.01)
                    assert not uplink_of(subscriber).connection._transport.is_reading()
                    if left == "taken":
                        batches = full.batches()
                        while full.pending >= QUEUE_MAX // 2:
                            await anext(batches)
                    else:
                        await asyncio.wait_for(full.__aexit__(None, None, None), WITHIN_S)
                    assert uplink_of(subscriber).connection._transport.is_reading()
                    seen = other.pending
                    await publisher.publish({"n": 0})
                    await asyncio.wait_for(publisher.flush(), WITHIN_S)
                    await until(lambda: other.pending > seen)

    run(work())


def registered(client):
    """What a client has registered at its broker."""
    return client.host.core.registered("")


async def cancelled(work):
    """Begin to wait for something, and give up at once."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await work


def test_a_cancelled_subscribe_leaves_nothing_that_nobody_reads(monkeypatch):
    monkeypatch.setattr(subscriptions, "QUEUE_MAX", 20)

    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await cancelled(client.subscribe("[n,>=,0]", "[n,eq,3]").__aenter__())
            assert not registered(client)
            async with client.subscribe("[n,>=,0]") as numbers:
                for number in range(50):
                    await client.publish({"n": number})
                    assert (await asyncio.wait_for(anext(aiter(numbers)), WITHIN_S))["n"] == number
            await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 0)

    run(work())


def test_a_client_reads_on_when_a_full_subscription_is_cancelled_before_it_is_in_force(monkeypatch):
    monkeypatch.setattr(subscriptions, "QUEUE_MAX", 3)

    async def work():
        settings = network_settings(CHAIN)
        async with running(settings) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(nodes["B3"].settings.listen) as other, connect(url) as publisher, connect(url) as subscriber:
                await other.advertise("[n,>=,0]")
                await publisher.advertise("[n,>=,0]")
                await nodes["B2"].stop()  # which the subscription has to pass
                entering = asyncio.create_task(subscriber.subscribe("[n,>=,0]").__aenter__())
                await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 1)
                for number in range(3):
                    await publisher.publish({"n": number})
                connection = uplink_of(subscriber).connection
                await until(lambda: not connection._transport.is_reading(), what="that the subscription is full")
                assert not entering.done()
                entering.cancel()
                await asyncio.wait([entering])
                assert connection._transport.is_reading()
                async with running({"B2": settings["B2"]}):  # else clients would wait for it when they leave
                    await asyncio.gather(*(client.settle() for client in (other, publisher, subscriber)))

    run(work())


def test_a_cancelled_advertise_leaves_no_advertisement():
    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await cancelled(client.advertise("[n,>=,0]"))
            assert not registered(client)
            await cancelled(client.publish({"n": 1}))  # it is advertised first
            assert not registered(client)
            await client.publish({"n": 1})
            assert len(registered(client)) == 1
            assert await client.flush() == Receipt(1, 1)

    run(work())


LARGE = {
    "payloads": [({}, bytes(6 << 20))] * 5,
    "two that fit in no frame together": [({}, bytes((8 << 20) - 1)), ({}, bytes(8 << 20))],
    "texts": [({"s": "x" * ((1 << 20) - 100)}, b"")] * 20,
}


@pytest.mark.parametrize("several", LARGE.values(), ids=LARGE)
def test_large_publications_of_one_turn_do_not_end_up_in_one_frame(several):
    async def work():
        async with running(network_settings(ONE)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url) as client:
                await client.advertise("[n,>=,0]")
                async with client.subscribe("[n,>=,0]") as subscription:
                    for number, (content, payload) in enumerate(several):
                        await client.publish({"n": number, **content}, payload)
                    await asyncio.wait_for(client.flush(), WITHIN_S)
                    messages = subscription.messages()
                    for number, (_, payload) in enumerate(several):
                        message = await asyncio.wait_for(anext(messages), WITHIN_S)
                        assert (message.publication["n"], len(message.payload)) == (number, len(payload))

    run(work())


def test_rows_of_any_length_are_cut_to_frames_and_what_fits_in_none_is_refused_at_once():
    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await client.advertise("[n,>=,0]")
            async with client.subscribe("[n,>=,0]") as subscription:
                await client.publish_encoded(client.encode([{"n": number} for number in range(30)], bytes(1 << 20)))
                for too_long in (
                    client.publish({"n": 1}, bytes(16 << 20)),
                    client.publish_encoded(client.encode([{"n": 1}], bytes(16 << 20))),
                ):
                    with pytest.raises(InvalidInput, match="publication: expected at most 16,776,657 bytes"):
                        await too_long
                await asyncio.wait_for(client.flush(), WITHIN_S)
                publications = aiter(subscription)
                assert [(await asyncio.wait_for(anext(publications), WITHIN_S))["n"] for _ in range(30)] == list(range(30))

    run(work())


def test_a_client_whose_frame_has_no_room_for_destinations_stops_nobody():
    async def work():
        async with contextlib.AsyncExitStack() as stack:
            nodes = await stack.enter_async_context(running(network_settings(CHAIN, routing="destination")))
            publisher, other = [await stack.enter_async_context(connect(nodes["B1"].settings.listen)) for _ in range(2)]
            for client in (publisher, other):
                await client.advertise("[n,>=,0]")
            subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen))
            subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
            rows = other.encode([{"n": 666}], bytes(FRAME_BYTES_MAX - 200))
            attachment = other.host
            attachment.send_rows(rows.renumbered(attachment.core.next_sequence, 0.0))
            with pytest.raises(Refused, match="expected publications of at most"):
                await asyncio.wait_for(other.flush(), WITHIN_S)
            await publisher.publish({"n": 7})
            await asyncio.wait_for(publisher.flush(), WITHIN_S)
            assert (await asyncio.wait_for(anext(aiter(subscription)), WITHIN_S))["n"] == 7

    run(work())


def test_publishing_one_at_a_time_waits_when_too_much_is_unsettled():
    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await client.advertise("[n,>=,0]")
            address, uplink_of(client).address = (
                uplink_of(client).address,
                uplink_of(client).address._replace(port=1),
            )
            uplink_of(client).connection.abort()

            async def publish():
                for number in range(CONFIG.window + 2000):
                    await client.publish({"n": number})
                    await asyncio.sleep(0)

            publishing = asyncio.create_task(publish())
            await until(lambda: client.unsettled >= CONFIG.window)
            await asyncio.sleep(0.05)
            assert client.unsettled <= CONFIG.window + 1024
            uplink_of(client).address = address
            await asyncio.wait_for(publishing, WITHIN_S)

    run(work())


@pytest.mark.parametrize(
    "drop", [b"".join(encode(Ping())), b"".join(encode(Connect("client", "x" * 200)))], ids=["pings", "drops"]
)
def test_a_stranger_has_to_say_who_it_is_in_time(drop):
    async def work():
        async with running(network_settings(ONE, ping_interval_s=0.1)) as nodes:
            host, port = nodes["B1"].settings.listen.removeprefix("tcp://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            loop = asyncio.get_running_loop()
            start_s = loop.time()
            closed = asyncio.create_task(reader.read())
            with pytest.raises(OSError):
                for byte in drop * 10:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(0.02)
                    if closed.done():
                        closed.result()
                        raise ConnectionResetError
            assert loop.time() - start_s < 3
            writer.close()

    run(work())
