"""Whether a client is connected: only while a broker serves it, also during a failover."""

import asyncio

from overweave.cli import client_options
from overweave.drivers.tcp import failover
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, until, with_changes


def test_a_server_that_never_answers_is_no_connection(monkeypatch):
    monkeypatch.setattr(failover, "_TRY_S", 0.3)

    async def work():
        accepted, (port,) = [], free_ports(1)
        silent = await asyncio.start_server(lambda *streams: accepted.append(streams), "127.0.0.1", port)
        settings = network_settings(chain(2))
        settings = with_changes(settings, urls={**settings["B1"].urls, "B2": f"tcp://127.0.0.1:{port}"})
        node = BrokerNode(settings["B1"])
        await node.start()
        async with connect(settings["B1"].listen, failover_s=0.1) as client:
            assert client.connected
            await node.stop()
            await until(lambda: not client.connected)
            while len(accepted) < 2:
                assert not client.connected
                assert not client.host.attachments.connections
                await asyncio.sleep(0.01)
            await client.close()
        silent.close()
        for _, writer in accepted:
            writer.close()

    asyncio.run(asyncio.wait_for(work(), 30))


class Client:
    """A client whose connection and broker are told."""

    connected, broker = True, "B1"


def test_messages_name_the_broker_that_replaces_a_lost_one(monkeypatch):
    checks, said, client = [], [], Client()
    monkeypatch.setattr(client_options, "_polling", lambda check: checks.append(check) or _Nothing())
    monkeypatch.setattr(client_options, "say", said.append)
    with client_options._connection_reports(client, parse_address("tcp://127.0.0.1:7401")):
        for client.connected, client.broker in (
            (False, "B1"), (True, "B1"), (False, "B1"), (True, "B2"), (False, "B2"), (True, "B2"), (False, "B2"), (True, "B1"),
        ):  # fmt: skip
            checks[0]()
    assert said == [
        "tcp://127.0.0.1:7401: connection lost, reconnecting",
        "tcp://127.0.0.1:7401: reconnected",
        "tcp://127.0.0.1:7401: connection lost, reconnecting",
        "broker B2: connected, replaces B1",
        "broker B2: connection lost, reconnecting",
        "broker B2: reconnected",
        "broker B2: connection lost, reconnecting",
        "tcp://127.0.0.1:7401: connected, replaces B2",
    ]


class _Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass
