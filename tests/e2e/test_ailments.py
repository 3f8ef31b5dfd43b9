"""What is wrong with a live broker is said: in its log, and to those who ask how it is."""

import asyncio
import logging

import pytest
import trustme

from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.overlay.shapes import make_overlay
from overweave.testing.live import network_settings, until

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
