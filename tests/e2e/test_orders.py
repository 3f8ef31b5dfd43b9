"""Orders of migrations at live brokers: permissions, forged frames, lists of clients, and orderers that leave."""

import asyncio
import logging

import pytest

from overweave.contract.control_wire import encode_control
from overweave.contract.frames import BarrierKind, ControlFrame, Migrate, MigrationBarrier, SessionEpoch, StreamEnd
from overweave.contract.requests import MigrationRequest
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import Refused
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, running, until, uplink_of

TOKENS = """
[[client]]
name = "reader"
token = "read"
subscribe = ["*"]
[[client]]
name = "ops"
token = "operate"
control = true
[[broker]]
id = "B1"
token = "one"
[[broker]]
id = "B2"
token = "one"
"""


@pytest.fixture
def secured(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    return network_settings(chain(2), security=SecuritySettings(tokens=file, token="one"))


def operator(settings, name=None, token=None):
    return Operator(parse_address(settings["B1"].listen), None, name, token)


def test_an_order_needs_the_permission_control(secured, caplog):
    async def scenario():
        async with running(secured) as nodes, connect(secured["B1"].listen, name="reader", token="read") as reader:
            await reader.subscribe("[class,eq,'A']").__aenter__()
            async with operator(secured, "ops", "operate") as ops:
                assert [each.name for each in await ops.clients()] == ["reader"]
                with pytest.raises(Refused, match=r"not-allowed: client 'reader' may not order 'reader' to move to 'B2'"):
                    async with operator(secured, "reader", "read") as forged:  # takes the name over, which its token proves
                        await forged.migrate("reader", "B2")
                with pytest.raises(Refused, match="not-allowed: client 'reader' may not list clients"):
                    async with operator(secured, "reader", "read") as forged:
                        await forged.clients()
                assert nodes["B1"].core.statistics().migrations_failed == 0
                assert "is not a client of B1" in await ops.migrate("nobody", "B2")
                assert nodes["B1"].core.statistics().migrations_failed == 1
                assert "broker 'B9'" in await ops.migrate("reader", "B9")

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    refused = [record.fields for record in caplog.records if record.getMessage() == "refused"]
    assert [(each["peer"], each["code"]) for each in refused] == [("reader", "not-allowed")] * 2
    assert refused[0]["text"].startswith("client 'reader' may not order 'reader' to move to 'B2'")
    rejected = [record.fields for record in caplog.records if record.getMessage() == "order-rejected"]
    assert [(each["peer"], each["client"]) for each in rejected] == [("ops", "'reader'")]
    assert rejected[0]["text"].startswith("broker 'B9': expected one of the network")


def test_a_client_may_not_order_another_client_without_the_permission(secured):
    async def scenario():
        async with running(secured) as nodes, operator(secured, "ops", "operate") as ops:
            async with connect(secured["B1"].listen, name="reader", token="read") as reader:
                connection = uplink_of(reader).connection
                connection.send(MigrationRequest("t", "ops", "B2"))
                with pytest.raises(Refused, match="not-allowed"):
                    await asyncio.wait_for(_fails(reader), 5)
            assert nodes["B1"].core.migrations() == {}
            assert await ops.client("reader") is None

    asyncio.run(scenario())


async def _fails(client):
    while True:
        await client.flush()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "message",
    [
        Migrate("t", "B2", None, True, BarrierKind.STREAM),
        StreamEnd("t"),
        MigrationBarrier("t", "victim", "B2"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_frames_of_brokers_are_rejected_from_clients(message):
    settings = network_settings(chain(2))

    async def scenario():
        async with running(settings) as nodes, connect(settings["B1"].listen, name="forger") as forger:
            encode_control(message)
            epoch = SessionEpoch(1, 0)
            uplink_of(forger).connection.send(ControlFrame(epoch, epoch, 0, 0, message))
            with pytest.raises(Refused, match="bad-frame"):
                await asyncio.wait_for(_fails(forger), 5)
            assert nodes["B1"].core.migrations() == {}

    asyncio.run(scenario())


def test_orders_name_unknown_brokers_and_open_networks_let_everybody_order():
    settings = network_settings(chain(2))

    async def scenario():
        async with running(settings), operator(settings) as ops:
            assert ops.broker == "B1"
            error = await ops.migrate("c", "B22")
            assert error == "broker 'B22': expected one of the network, the nearest known one is 'B2'"
            async with connect(settings["B1"].listen, name="c") as client, client.subscribe("[class,eq,'A']"):
                (entry,) = await ops.clients()
                assert (entry.name, entry.subscriptions, entry.connected, entry.moving_to) == ("c", 1, True, None)
                assert await ops.client("d") is None

    asyncio.run(scenario())


def test_an_orderer_that_leaves_is_forgotten():
    settings = network_settings(chain(2))

    async def scenario():
        async with running(settings) as nodes:
            async with operator(settings) as ops:
                await ops.clients()
                assert nodes["B1"].server.operators._operators
            await until(lambda: not nodes["B1"].server.operators._operators)
            assert nodes["B1"].server.operators.clients() == []

    asyncio.run(scenario())
