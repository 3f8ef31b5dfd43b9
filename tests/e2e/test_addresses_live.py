"""Addresses that live brokers learn: who may connect as a broker, whose name no client has, and what clients are told."""

import asyncio

import pytest
import trustme

from overweave.contract.connection_messages import Connect
from overweave.contract.effects import OverlayChanged
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.security import client_context
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import Refused
from overweave.language.headers import OverlayEpoch
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until, with_changes

ONE = Overlay(["B1"])


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


class Forger:
    """A handler of a connection that says whatever it was told to."""

    def __init__(self, *said):
        self._said, self.heard = said, []

    def connected(self, connection):
        for each in self._said:
            connection.send(each)

    def received(self, connection, message):
        self.heard.append(message)

    def lost(self, connection):
        self.heard.append(None)


async def answer(node, *said, context=None):
    """The first message of a broker to a peer that says something."""
    forger, (host, port) = Forger(*said), node.settings.listen.split("://")[1].split(":")
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: Connection(forger), host, int(port), ssl=context)
    try:
        await until(lambda: bool(forger.heard), what="an answer")
        return forger.heard[0]
    finally:
        transport.abort()


def state_of(*members):
    tree = EpochTree(OverlayEpoch(1), tuple(each.id for each in members), ())
    return OverlayState(OverlayVersion(1, Phase.PREPARED), members, (tree,), OverlayEpoch(1))


def test_connected_clients_learn_new_addresses_and_the_names_of_brokers_are_taken_from_clients():
    async def work():
        async with running(network_settings(ONE)) as nodes:
            node = nodes["B1"]
            async with connect(node.settings.listen, name="plain") as plain, connect(node.settings.listen, name="B7") as namesake:
                assert list(plain.attachments[0].book) == []
                changed = OverlayChanged(state_of(Member("B1"), Member("B7", "tcp://127.0.0.1:9"), Member("B8")))
                node._link_effects.performers()[OverlayChanged](changed)
                await until(lambda: list(plain.attachments[0].book) == ["B7"], what="the new address")
                with pytest.raises(Refused, match="no broker's"):
                    await until(lambda: namesake.attachments.__getitem__(0).uplink.is_stopped)
                    await namesake.publish({"n": 1})
            for name in ("B7", "B8"):
                with pytest.raises(Refused, match="no broker's"):
                    async with connect(node.settings.listen, name=name):
                        pass
            async with connect(node.settings.listen, name="later") as later:
                assert list(later.attachments[0].book) == ["B7"]

    run(work())


def test_a_client_that_says_it_is_a_broker_is_rejected_where_there_are_tokens(tmp_path):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[[client]]\nname = 'c'\ntoken = 'client'\npublish = ['*']\n[[broker]]\nid = 'B9'\ntoken = 'nine'\n")

    async def work():
        settings = network_settings(ONE, security=SecuritySettings(tokens=tokens, token="one"))
        async with running(settings) as nodes:
            node = nodes["B1"]
            for name, token in (("c", "client"), ("B9", "client"), ("B1", "nine"), ("B8", "nine"), ("B9", None)):
                for guest in (False, True):
                    said = Connect("broker", name, token, listen="tcp://127.0.0.1:9", guest=guest)
                    refused = await answer(node, said)
                    assert refused.code in ("unauthorized", "bad-name"), (name, token)
            assert not node.links.neighbours
            assert set(node.directory) == {"B1"}
            admitted = await answer(node, Connect("broker", "B9", "nine", listen="tcp://127.0.0.1:9", guest=True))
            assert admitted.role == "broker"
            assert node.directory["B9"] == "tcp://127.0.0.1:9"

    run(work())


def test_a_certificate_alone_makes_no_broker_of_an_unknown_name(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def security(name):
        file = tmp_path / f"{name}.pem"
        authority.issue_cert("127.0.0.1", name, common_name=name).private_key_and_cert_chain_pem.write_to_path(str(file))
        return SecuritySettings(certificate=file, authorities=tmp_path / "ca.pem", mutual=True)

    async def work():
        settings = network_settings(ONE, "tls", security=security("B1"))
        settings = with_changes(settings, urls={**settings["B1"].urls, "B2": "tls://127.0.0.1:9"})
        async with running(settings) as nodes:
            for name, code in (("c", "bad-name"), ("B3", "bad-name"), ("B2", None)):
                found = await answer(nodes["B1"], Connect("broker", name), context=client_context(security(name)))
                assert getattr(found, "code", None) == code, name

    run(work())
