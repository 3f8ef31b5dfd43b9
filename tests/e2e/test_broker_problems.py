"""Problems of a live broker: in its log and its health report."""

import asyncio
import contextlib
import logging

import pytest
import trustme

from overweave.batches.base import BatchHead
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.wire import Connect, encode
from overweave.drivers.tcp import dialler, links
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.testing.live import network_settings, running, until

PAIR = make_overlay("chain", brokers=2)
RING = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3"), ("B1", "B3")])


async def ailments(settings, seen):
    """What both brokers say is wrong, when it is ``seen``."""
    nodes = [BrokerNode(each) for each in settings.values()]
    try:
        for node in nodes:
            await node.start()
        await until(lambda: seen([node.health_problem() for node in nodes]))
        return [node.health_problem() for node in nodes]
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


def test_a_missing_neighbour_that_is_routed_around_is_a_degradation():
    async def run():
        settings = network_settings(RING, routing="destination")
        async with running(settings) as nodes:
            await until(lambda: all(node.health_problem() is None and node.degradation() is None for node in nodes.values()))
            await nodes["B3"].stop()
            await until(lambda: nodes["B1"].degradation() is not None)
            assert nodes["B1"].health_problem() is None
            assert nodes["B1"].degradation().startswith("no link to B3")
            await nodes["B2"].stop()
            await until(lambda: nodes["B1"].health_problem() is not None)  # nobody is left to route around anybody

    asyncio.run(run())


def test_a_connected_neighbour_without_a_session_is_a_degradation(monkeypatch):
    monkeypatch.setattr(links, "UNESTABLISHED_S", 0.3)

    async def run():
        settings = network_settings(PAIR)
        node = BrokerNode(settings["B1"])
        await node.start()
        try:
            _, writer = await asyncio.open_connection(*parse_address(settings["B1"].listen)[:2])
            writer.writelines(encode(Connect("broker", "B2")))
            await until(lambda: node.degradation() is not None)
            assert (node.health_problem(), node.degradation()) == (None, "no session with B2, though connected")
            writer.close()
            await until(lambda: node.health_problem() == "no link to B2" and node.degradation() is None)
            other = BrokerNode(settings["B2"])
            await other.start()
            await until(lambda: node.health_problem() is None)
            await asyncio.sleep(1.5)  # longer than the limit, and than the interval of the checks
            assert node.degradation() is other.degradation() is None
            await other.stop()
        finally:
            await node.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_trace_that_cannot_be_written_is_known_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    settings = network_settings(PAIR, trace=tmp_path / "file" / "traces")["B1"]
    with pytest.raises(Exception, match="expected a directory for traces"):
        BrokerNode(settings)


SOUND = encode_rows([Publish(Publication({"n": 99}), Header("zz", 7))])
#: Rows, their ttl, and whether brokers write traces.
GARBAGE = {
    "rows that are none": (bytes(100), 9, False),
    "a name that is no text": (SOUND.replace(b"zz", b"\xff\xff"), 9, False),
    "rows that have taken all their hops": (bytes(100), 1, False),
    "rows of which traces are to tell": (b"\xff" + SOUND[1:], 9, True),
}


async def publish_around(garbage, ttl, settings):
    """What arrives at the end of a chain when its head sends garbage in between."""
    got, chain = [], make_overlay("chain", brokers=3)
    config = BrokerConfig(session=SessionConfig(window=16, acknowledge_every=4, acknowledge_delay_s=0.005))
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(
            running(network_settings(chain, routing="destination", config=config, **settings))
        )
        publisher = await stack.enter_async_context(connect(nodes["B1"].settings.listen))
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen))
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))

        async def take():
            async for publication in subscription:
                got.append(publication["n"])  # noqa: PERF401

        stack.callback(asyncio.create_task(take()).cancel)
        for number in range(50):
            if number == 10:
                effects = []
                bound = RawRows(garbage, 1, BatchHead(0, ttl, 0, 1 << chain.position("B3")))
                nodes["B1"].core._sessions["B2"].outbound.send(bound, None, effects, window_exempt=True)
                nodes["B1"]._runner.run(effects)
            await publisher.publish({"n": number})
            await asyncio.wait_for(publisher.flush(), 20)
        await until(lambda: all(node.health_problem() is node.degradation() is None for node in nodes.values()))
        assert not any(node.core.statistics().unsettled for node in nodes.values())
    return got


@pytest.mark.parametrize(("garbage", "ttl", "traced"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_of_a_defective_broker_stops_nobody_for_long(garbage, ttl, traced, caplog, tmp_path):
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(publish_around(garbage, ttl, {"trace": tmp_path} if traced else {})) == list(range(50))
    refused = [record.fields for record in caplog.records if record.getMessage() == "refused"]
    where = "B1" if ttl == 1 else "B2"  # also with traces, which change nothing on the wire
    assert [(fields["peer"], fields["code"]) for fields in refused] == [(where, "bad-frame")]


def test_who_answers_a_call_that_was_given_up_is_not_connected(monkeypatch):
    monkeypatch.setattr(dialler, "DIAL_S", 0.1)

    async def work():
        settings, writers = network_settings(PAIR), []
        _, port, _ = parse_address(settings["B1"].listen)
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", port)
        node = BrokerNode(settings["B2"])
        await node.start()
        await until(lambda: len(writers) > 1)
        writers[0].write(b"".join(encode(Connect("broker", "B1"))))
        await asyncio.sleep(0.05)
        assert node.health_problem() is not None
        await node.stop()
        server.close()
        for writer in writers:
            writer.close()

    asyncio.run(work())
