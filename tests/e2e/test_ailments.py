"""What is wrong with a live broker is said: in its log, and to those who ask how it is."""

import asyncio
import contextlib
import logging

import pytest
import trustme

from overweave.contract.raw import RawRows
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.overlay.shapes import make_overlay
from overweave.testing.live import network_settings, running, until

PAIR = make_overlay("chain", brokers=2)


async def ailments(settings, seen):
    """What both brokers say is wrong, when it is ``seen``."""
    nodes = [BrokerNode(each) for each in settings.values()]
    try:
        for node in nodes:
            await node.start()
        await until(lambda: seen([node.ailment() for node in nodes]))
        return [node.ailment() for node in nodes]
    finally:
        for node in nodes:
            await node.stop()


def test_a_neighbour_whose_certificate_is_not_trusted(tmp_path, caplog):
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    settings = network_settings(PAIR, "tls", "localhost", security=SecuritySettings(certificate=tmp_path / "broker.pem"))
    with caplog.at_level(logging.WARNING):
        one, other = asyncio.run(ailments(settings, lambda found: "certificate" in (found[1] or "")))
    assert one == "no link to B2"
    assert other.startswith("no link to B1 (expected a certificate that can be trusted, found one with: ")
    assert [record.fields["peer"] for record in caplog.records if record.getMessage() == "unreachable"] == ["B1"]


def test_a_network_that_is_whole_has_none():
    assert asyncio.run(ailments(network_settings(PAIR), lambda found: found == [None, None])) == [None, None]


def test_a_trace_that_cannot_be_written_is_known_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    settings = network_settings(PAIR, trace=tmp_path / "file" / "traces")["B1"]
    with pytest.raises(Exception, match="expected a directory for traces"):
        BrokerNode(settings)


async def publish_around(garbage):
    """What arrives at the end of a chain when its head sends garbage in between."""
    got, chain = [], make_overlay("chain", brokers=3)
    async with running(network_settings(chain, routing="destination")) as nodes, contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(nodes["B1"].settings.listen))
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen))
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))

        async def take():
            async for publication in subscription:
                got.append(publication["n"])  # noqa: PERF401

        stack.callback(asyncio.create_task(take()).cancel)
        for number in range(20):
            if number == 10:
                effects = []
                bound = RawRows(garbage, 1, bound=1 << chain.position("B3"), ttl=9)
                nodes["B1"].core._sessions["B2"].send(bound, None, effects, under_way=True)
                nodes["B1"]._carry_out(effects)
            await publisher.publish({"n": number})
            await publisher.flush()
        await until(lambda: all(node.ailment() is None for node in nodes.values()))
    return got


def test_garbage_of_a_defective_broker_stops_nobody_for_long(caplog):
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(publish_around(bytes(100))) == list(range(20))
    refused = [record.fields for record in caplog.records if record.getMessage() == "refused"]
    assert [(fields["peer"], fields["code"]) for fields in refused] == [("B2", "bad-frame")]
