"""Live publishers: what is advertised for them, what is refused, and what their receipts say."""

import asyncio

import pytest

import overweave as ow
from overweave.drivers.tcp.client import Receipt, connect
from overweave.overlay.graph import Overlay
from overweave.testing.broker_thread import BrokerThread
from overweave.testing.live import network_settings, running, until, uplink_of

ONE = Overlay(["B1"])
CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
WITHIN_S = 20
ROUTING = ["filter", "identity-advertised", "filter-general", "destination", "merc"]


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


async def taken(subscription, count):
    found = []
    async for publication in subscription:
        found.append(dict(publication))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("routing", ROUTING)
def test_what_nobody_advertised_reaches_the_other_end(routing):
    async def work():
        async with (
            running(network_settings(CHAIN, routing=routing)) as nodes,
            connect(nodes["B1"].settings.listen) as publisher,
            connect(nodes["B3"].settings.listen) as subscriber,
            subscriber.subscribe("[n,>=,10]") as numbers,
            subscriber.subscribe("[s,eq,'x'],[n,>=,10]") as texts,
        ):
            shapes = [{"class": "A"}, {"class": "B"}, {"class": "A", "s": "x"}, {"s": "x"}]
            for number, shape in enumerate(shapes):
                await publisher.publish(shape | {"n": number})
            await publisher.flush()
            statistics = nodes["B1"].core.statistics()
            assert (statistics.unadvertised, statistics.tables["advertisements"]) == (0, 4)
            await asyncio.sleep(0.5)  # until what these call for has come back
            sent = [shape | {"n": number + 10} for number, shape in enumerate(shapes)]
            await publisher.publish_encoded(publisher.encode(sent[:2]))
            for content in sent[2:]:
                await publisher.publish(content)
            await asyncio.wait_for(publisher.flush(), WITHIN_S)
            assert await asyncio.wait_for(taken(numbers, 4), WITHIN_S) == sent
            assert await asyncio.wait_for(taken(texts, 2), WITHIN_S) == sent[2:]

    run(work())


def test_encoded_rows_are_advertised_too():
    async def work():
        async with (
            running(network_settings(ONE)) as nodes,
            connect(nodes["B1"].settings.listen) as client,
            client.subscribe("[n,>=,0]") as numbers,
        ):
            await client.publish_encoded(client.encode([{"n": 1}, {"n": 2, "s": "x"}]))
            await client.flush()
            assert [each["n"] for each in await asyncio.wait_for(taken(numbers, 2), WITHIN_S)] == [1, 2]

    run(work())


def test_nothing_is_advertised_that_is_already():
    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            own = await client.advertise("[class,eq,'A'],[n,>=,0]")
            async with client.subscribe("[n,isPresent,0]") as numbers:
                sizes = []
                for content in ({"class": "A", "n": 1}, {"n": 2}, {"class": "A", "n": -1}, {"n": -2, "class": "A"}, {"n": -3}):
                    await client.publish(content)
                    sizes.append(nodes["B1"].core.statistics().tables["advertisements"])
                assert sizes == [1, 1, 2, 2, 3]
                await client.unadvertise(own)
                await client.publish({"n": 3})
                await client.flush()
                assert [each["n"] for each in await asyncio.wait_for(taken(numbers, 6), WITHIN_S)] == [1, 2, -1, -2, -3, 3]

    run(work())


def test_publications_of_many_tasks_keep_their_order():
    """Those whose advertisement is under way are not overtaken by others that need none."""

    async def work():
        async with running(network_settings(ONE)) as nodes, connect(nodes["B1"].settings.listen) as client:
            await client.publish({"n": 0})
            await client.flush()
            async with client.subscribe("[n,>=,0]") as numbers:
                contents = [{"n": n} | {f"x{n % 7}": 1 for _ in range(n % 3)} for n in range(200)]
                await asyncio.gather(*(client.publish(content) for content in contents))
                await client.flush()
                assert [each["n"] for each in await asyncio.wait_for(taken(numbers, 200), WITHIN_S)] == list(range(200))

    run(work())


@pytest.mark.parametrize("routing", ROUTING)
def test_what_is_not_advertised_is_an_error_once_and_the_client_goes_on(routing):
    async def work():
        async with running(network_settings(ONE, routing=routing)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url, advertise=False) as client, client.subscribe("[n,>=,0]") as numbers:
                await client.advertise("[n,>=,5]")
                await client.publish({"n": 1})
                with pytest.raises(ow.NotAdvertised, match=r"not-advertised: publication \[n,1\]: not covered by any adv"):
                    await asyncio.wait_for(client.flush(), WITHIN_S)
                assert (await client.flush(), uplink_of(client).connection is not None) == (Receipt(1, 1), True)
                await client.publish_encoded(client.encode([{"n": 6}, {"n": 2}, {"n": 7}]))
                await until(lambda: client.host.notices.pending is not None)
                with pytest.raises(ow.NotAdvertised, match="1 publication was dropped"):
                    await client.publish({"n": 8})
                await client.publish({"n": 8})
                assert await client.flush() == Receipt(4, 1)
                assert [each["n"] for each in await asyncio.wait_for(taken(numbers, 3), WITHIN_S)] == [6, 7, 8]
                assert nodes["B1"].core.statistics().unadvertised == 2

    run(work())


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_notice_survives_a_connection_that_breaks_and_is_heard_once(is_heard):
    async def work():
        async with running(network_settings(ONE)) as nodes:
            client = connect(nodes["B1"].settings.listen, advertise=False)
            await client.__aenter__()
            noticed = client.host.notices.add
            if not is_heard:
                client.host.notices.add = lambda *_: None
            await client.publish({"n": 1})
            if is_heard:
                with pytest.raises(ow.NotAdvertised):
                    await client.flush()
            else:
                await client.flush()
            client.host.notices.add = noticed
            uplink_of(client).connection.abort()
            await until(lambda: uplink_of(client).connection is None)
            await until(lambda: uplink_of(client).connection is not None and uplink_of(client).connection.peer == "B1")
            await asyncio.sleep(0.1)
            assert (client.host.notices.pending is None) == is_heard
            await client.close()

    run(work())


def test_leaving_raises_what_nobody_was_told_and_closes_all_the_same():
    async def work():
        async with running(network_settings(ONE)) as nodes:
            with pytest.raises(ow.NotAdvertised):
                async with connect(nodes["B1"].settings.listen, advertise=False) as client:
                    await client.publish({"n": 1})
            await until(lambda: not nodes["B1"].core.clients())
            assert uplink_of(client).connection is None

    run(work())


def test_it_is_logged_once_a_second(caplog):
    async def work():
        async with (
            running(network_settings(ONE)) as nodes,
            connect(nodes["B1"].settings.listen, name="p", advertise=False) as client,
        ):
            for number in range(20):
                with pytest.raises(ow.NotAdvertised):
                    await client.publish({"n": number})
                    await client.flush()

    run(work())
    logged = [record.fields for record in caplog.records if record.getMessage() == "not-advertised"]
    assert 1 <= len(logged) <= 3
    assert logged[0]["peer"] == "p"


def test_receipts():
    async def work():
        async with (
            running(network_settings(CHAIN)) as nodes,
            connect(nodes["B1"].settings.listen) as publisher,
            connect(nodes["B3"].settings.listen) as far,
            connect(nodes["B1"].settings.listen) as near,
        ):
            assert await publisher.flush() == Receipt(0, 0)
            await publisher.advertise("[n,isPresent,0]")
            async with far.subscribe("[n,>,7]"), near.subscribe("[n,<,3]"), near.subscribe("[n,<,2]"):
                await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 3)
                for number in range(10):
                    await publisher.publish({"n": number})
                receipt = await publisher.flush()
                assert (receipt, receipt.forwarded) == (Receipt(10, 5), 5)
                assert await publisher.flush() == Receipt(0, 0)
                uplink_of(publisher).connection.abort()
                for number in range(10):
                    await publisher.publish({"n": number})
                assert await publisher.flush() == Receipt(10, 5)
                # The client gets what it publishes itself: what goes to it settles nothing that is still to be counted.
                async with publisher.subscribe("[n,=,9]"):
                    for _ in range(50):
                        for number in range(10):
                            await publisher.publish({"n": number})
                        assert await publisher.flush() == Receipt(10, 5)
            assert publisher.unmatched == 10 + 250

    run(work())


def test_the_blocking_client_has_all_of_it():
    with BrokerThread() as broker, ow.connect_blocking(broker.url) as client:
        with client.subscribe("[n,>,1]") as numbers:
            client.publish_many([{"n": 1}, {"n": 2}])
            assert client.flush() == Receipt(2, 1)
            assert numbers.get(5)["n"] == 2
        with ow.connect_blocking(broker.url, advertise=False) as bare:
            bare.publish({"n": 2})
            with pytest.raises(ow.NotAdvertised):
                bare.flush()
            assert bare.flush().unmatched == 1
