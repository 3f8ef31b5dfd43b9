"""The collector of live brokers, over TCP."""

import asyncio

import msgspec
import pytest

from overweave.contract.observation import CHANGE, COLLECTOR, OBSERVE, Observation, ObservedClient
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import OverweaveError, Refused
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, running

TOKENS = """
[[client]]
name = "publisher"
token = "publish"
publish = ["*"]
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


def operator(settings, name=None, token=None):
    return Operator(parse_address(settings["B1"].listen), None, name, token)


@pytest.mark.parametrize("kind", [OBSERVE, CHANGE])
def test_the_collector_answers_operators_only(tmp_path, capsys, kind):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    settings = network_settings(chain(2), security=SecuritySettings(tokens=file, token="one"))

    async def scenario():
        async with running(settings):
            text = "not-allowed: client 'publisher' may not make requests to the module 'collector'"
            with pytest.raises(Refused, match=text):
                async with operator(settings, "publisher", "publish") as forged:
                    await forged.ask(COLLECTOR, kind)
            async with operator(settings, "ops", "operate") as ops:
                with pytest.raises(OverweaveError, match="expected one of the module 'collector'"):
                    await ops.ask(COLLECTOR, "repaint" + kind)
                with pytest.raises(OverweaveError, match="expected a state of the overlay"):
                    await ops.ask(COLLECTOR, CHANGE)

    asyncio.run(scenario())


def test_an_operator_observes_all_brokers_and_their_clients():
    settings = network_settings(chain(3))

    async def scenario():
        async with (
            running(settings),
            connect(settings["B3"].listen, name="c") as client,
            client.subscribe("[class,eq,'A']"),
            operator(settings, "ops") as ops,
        ):
            found = msgspec.msgpack.decode(await ops.ask(COLLECTOR, OBSERVE), type=Observation)
        assert found.brokers.keys() == {"B1", "B2", "B3"}
        assert {id: each.url for id, each in found.brokers.items()} == {id: each.listen for id, each in settings.items()}
        assert found.brokers["B3"].clients == (ObservedClient("c", True, 1, 0),)
        assert found.brokers["B1"].clients == (), "operators are not among them"

    asyncio.run(scenario())
