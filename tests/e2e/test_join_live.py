"""Brokers that join a live network as guests: their clients are served, whoever crashes, and an empty one leaves."""

import asyncio

import pytest

from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.operator import Operator
from overweave.overlay.graph import Overlay
from overweave.testing.live import joined, joining_settings, network_settings, processes, running, until, with_changes

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=90))


async def passes(publisher, subscriber, first):
    """Publications with increasing numbers arrive, each once."""
    for number in range(first, first + 3):
        await publisher.publish({"n": number})
    await publisher.flush()
    for number in range(first, first + 3):
        assert (await asyncio.wait_for(anext(subscriber), 20))["n"] == number


@pytest.mark.parametrize("routing", ["filter", "simple"])
def test_clients_of_a_joined_broker_are_served_and_an_empty_one_leaves(routing):
    async def work():
        settings = network_settings(CHAIN, routing=routing)
        async with running(settings) as nodes:
            async with (
                joined(joining_settings(settings, "B13", "B1")) as guest,
                connect(guest.settings.listen, name="s") as subscriber,
                connect(settings["B3"].listen, name="p") as publisher,
            ):
                assert [each for each, _ in guest.directory.others()][:3] == ["B1", "B2", "B3"]
                await publisher.advertise("[n,>=,0]")
                async with subscriber.subscribe("[n,>=,0]") as numbers:
                    await passes(publisher, aiter(numbers), 0)
                assert nodes["B1"].directory["B13"] == guest.settings.listen
                guest.leave()
                assert "B13" in nodes["B1"].links, "it has a client"
                await subscriber.close()
                await until(lambda: not guest.core.clients())
                guest.leave()
                await until(lambda: "B13" not in nodes["B1"].links, what="that the link is gone")
                assert "B13" not in nodes["B1"].core.neighbour_kinds()
                assert "B13" not in nodes["B1"].directory
            assert all(node.health_problem() is None for node in nodes.values())

    run(work())


@pytest.mark.parametrize("victim", ["B13", "B1"])
def test_a_guest_and_its_contact_may_be_killed_and_restarted(tmp_path, victim):
    async def work():
        settings = network_settings(CHAIN)
        settings["B13"] = joining_settings(settings, "B13", "B1")
        settings = {id: with_changes({id: each}, state=tmp_path / id)[id] for id, each in settings.items()}
        with processes(settings) as brokers:
            async with (
                connect(settings["B13"].listen, name="s") as subscriber,
                connect(settings["B3"].listen, name="p") as publisher,
            ):
                await publisher.advertise("[n,>=,0]")
                async with subscriber.subscribe("[n,>=,0]") as numbers:
                    received = aiter(numbers)
                    await asyncio.sleep(0.5)
                    await passes(publisher, received, 0)
                    brokers[victim].kill()
                    await publisher.publish({"n": 3})
                    await asyncio.to_thread(brokers[victim].start)
                    assert (await asyncio.wait_for(anext(received), 20))["n"] == 3
                    await passes(publisher, received, 4)

    run(work())


def test_a_guest_whose_contact_has_lost_its_state_joins_again():
    async def work():
        settings = network_settings(CHAIN)
        async with running(settings) as nodes, joined(joining_settings(settings, "B13", "B1")) as guest:
            nodes["B1"].restart_core(0)
            await until(
                lambda: guest.core.established_neighbours() == ["B1"] and "B13" in nodes["B1"].core.established_neighbours()
            )

    run(work())


def test_a_guest_with_a_guest_of_its_own_dials_its_contact_again():
    async def work():
        settings = network_settings(CHAIN)
        about = joining_settings(settings, "B13", "B1")
        async with (
            running(settings) as nodes,
            joined(about) as guest,
            joined(joining_settings({**settings, "B13": about}, "B14", "B13")) as second,
            connect(second.settings.listen, name="s") as subscriber,
            connect(settings["B3"].listen, name="p") as publisher,
        ):
            await publisher.advertise("[n,>=,0]")
            async with subscriber.subscribe("[n,>=,0]") as numbers:
                received = aiter(numbers)
                await passes(publisher, received, 0)
                old = guest.peers["B1"]
                nodes["B1"].peers["B13"].close()
                await until(lambda: guest.peers.get("B1") is not old, what="that it is lost")
                await passes(publisher, received, 3)
            assert guest.health_problem() is second.health_problem() is None

    run(work())


def test_a_broker_that_has_not_joined_is_unhealthy_until_its_contact_is_there():
    async def work():
        settings = network_settings(Overlay(["B1"]))
        guest = BrokerNode(joining_settings(settings, "B13", "B1"))
        await guest.start()
        try:
            assert guest.health_problem() == f"it has not joined the network at {settings['B1'].listen}"
            async with running(settings):
                await until(lambda: guest.health_problem() is None, what="that it has joined")
        finally:
            await guest.stop()

    run(work())


def test_only_brokers_of_the_file_join_where_brokers_have_numbers():
    async def work():
        settings = network_settings(CHAIN, routing="destination")
        async with running(settings) as nodes:
            guest = BrokerNode(joining_settings(settings, "B13", "B1"))
            await guest.start()
            try:
                await asyncio.sleep(0.5)
                assert guest.health_problem() is not None
                assert "B13" not in nodes["B1"].links
            finally:
                await guest.stop()

    run(work())


def test_a_client_fails_over_to_a_broker_that_joined_after_it_had_connected():
    async def work():
        settings = network_settings(Overlay(["B1"]))
        async with (
            running(settings) as nodes,
            joined(joining_settings(settings, "B13", "B1")) as guest,
            connect(settings["B1"].listen, name="c", failover_s=0.2) as client,
        ):
            guest.leave()
            await until(lambda: "B13" not in nodes["B1"].directory, what="that it has left")
            await until(lambda: not list(client.attachments[0].book), what="that the client knows nobody else")
            async with joined(joining_settings(settings, "B14", "B1")) as other:
                await until(lambda: list(client.attachments[0].book) == ["B14"], what="that the client knows the guest")
                await nodes["B1"].stop()
                await until(lambda: client.broker == "B14", what="that the client has failed over")
                assert "c" in other.core.clients()
                await client.settle()  # it would wait for that when it leaves, and no broker is there then

    run(work())


def test_a_broker_that_has_not_joined_accepts_no_guest():
    """Both would serve clients whose publications reach nobody."""

    async def work():
        settings = network_settings(CHAIN)
        alone = BrokerNode(joining_settings(settings, "B13", "B1"))
        second = BrokerNode(joining_settings({**settings, "B13": alone.settings}, "B14", "B13"))
        await alone.start()
        await second.start()
        await asyncio.sleep(1.0)
        assert alone.core.is_isolated
        assert second.core.is_isolated
        async with running(settings):
            await asyncio.wait_for(asyncio.gather(alone.wait_joined(), second.wait_joined()), 20)
        await second.stop()
        await alone.stop()

    run(work())


@pytest.mark.parametrize("is_open", [True, False])
def test_an_operator_does_not_keep_a_guest_that_leaves(is_open):
    async def work():
        settings = network_settings(CHAIN)
        async with running(settings) as nodes, joined(joining_settings(settings, "B13", "B1")) as guest:
            operator = Operator(parse_address(guest.settings.listen), None)
            async with operator:
                if not is_open:
                    operator._connection.abort()  # its session has not expired yet
                    await asyncio.sleep(0.1)
                assert guest.core.clients()
                guest.leave()
                await until(lambda: "B13" not in nodes["B1"].links, what="that the link is gone")

    run(work())
