"""Authentication by certificates and tokens at live brokers; rejected peers get the reason, and the broker continues."""

import asyncio
import contextlib
import ssl

import pyarrow.dataset
import pytest
import trustme

from overweave.contract.wire import FRAME_BYTES_MAX, Connect, Error, encode
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import Refused
from overweave.overlay.fixed_shapes import chain
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, with_changes

ONE = Overlay(["B1"])
TOKENS = """
[[client]]
name = "ticker"
token = "right"
publish = ["STOCK"]
subscribe = ["*"]
[[client]]
name = "reader"
token = "read"
subscribe = ["STOCK"]
[[broker]]
id = "B1"
token = "one"
[[broker]]
id = "B2"
token = "two"
"""


class Authority:
    """Signs certificates and puts them into files."""

    def __init__(self, directory):
        directory.mkdir()
        self._directory = directory
        self._authority = trustme.CA()
        self.file = directory / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def certificate(self, name):
        made = self._authority.issue_cert("127.0.0.1", name, common_name=name)
        file = self._directory / f"{name}.pem"
        made.private_key_and_cert_chain_pem.write_to_path(str(file))
        return file


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ours")


@pytest.fixture
def other(tmp_path):
    return Authority(tmp_path / "theirs")


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "tokens.toml").write_text(TOKENS)
    return tmp_path / "tokens.toml"


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=30))


def mutual_network(authority, overlay, **changes):
    settings = network_settings(overlay, scheme="tls")
    found = {}
    for id in overlay.ids:
        security = SecuritySettings(
            certificate=authority.certificate(id), authorities=authority.file, mutual=True, **changes.get(id, {})
        )
        found |= with_changes({id: settings[id]}, security=security)
    return found


async def works(publisher, subscriber):
    """Something gets through."""
    id = await publisher.advertise("[class,eq,'STOCK'],[n,>=,0]")
    async with subscriber.subscribe("[class,eq,'STOCK']") as subscription:
        # The subscription may have to travel; what is published is settled when it got there, or nobody wanted it yet.
        messages = aiter(subscription)
        getting = asyncio.ensure_future(anext(messages))
        while not getting.done():
            await publisher.publish({"class": "STOCK", "n": 1})
            await publisher.flush()
            await asyncio.sleep(0.01)
        assert (await getting)["n"] == 1
    await publisher.unadvertise(id)


async def refusal(url, **who):
    with pytest.raises(Refused) as refused:
        async with asyncio.timeout(10), connect(url, **who):
            pass
    return refused.value.code


async def stays_out(url, **who):
    """The handshake fails, of which asyncio tells the other side nothing: it tries again and again."""
    client = connect(url, **who)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), client:
            pass
    assert not client.attachments[0].is_dialling, "it goes on though nobody waits for it"


def test_tokens(tokens):
    async def work():
        settings = network_settings(chain(2))
        settings = {
            **with_changes({"B1": settings["B1"]}, security=SecuritySettings(tokens=tokens, token="one")),
            **with_changes({"B2": settings["B2"]}, security=SecuritySettings(tokens=tokens, token="two")),
        }
        async with running(settings) as nodes:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            async with connect(url, name="ticker", token="right") as ticker, connect(far, name="reader", token="read") as reader:
                await works(ticker, reader)
                assert await refusal(url, name="ticker", token="wrong") == "unauthorized"
                assert await refusal(url, name="ticker") == "unauthorized"
                assert await refusal(url, name="other", token="right") == "unauthorized"
                assert await refusal(url, name="ticker", token="two") == "unauthorized"
                assert await refusal(url, name="B2", token="two") == "bad-name"
                for disguised in ("ticker ", " ticker", "ticker\u200b", "tic\u00adker", "B1\n", "ticker\ufe0f", "B1\u3164"):
                    assert await refusal(url, name=disguised, token="read") == "bad-name"
                await works(ticker, reader)

    run(work())


@pytest.mark.parametrize("what", ["advertise", "publish", "subscribe"])
def test_classes_that_are_not_allowed(tokens, what):
    async def work():
        async with running(network_settings(ONE, security=SecuritySettings(tokens=tokens))) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url, name="ticker", token="right") as ticker:
                with pytest.raises(Refused) as refused:
                    async with connect(url, name="reader", token="read") as reader:
                        if what == "advertise":
                            await reader.advertise("[class,eq,'STOCK']")
                        elif what == "publish":
                            await reader.publish({"class": "STOCK", "n": 1})
                            await reader.flush()
                        else:
                            async with reader.subscribe("[class,eq,'NEWS']"):
                                pass
                assert refused.value.code == "not-allowed"
                await works(ticker, ticker)

    run(work())


def test_tls(authority, other):
    async def work():
        security = SecuritySettings(certificate=authority.certificate("B1"))
        async with running(network_settings(ONE, scheme="tls", security=security)) as nodes:
            url = nodes["B1"].settings.listen
            async with connect(url, authorities=authority.file) as client:
                await works(client, client)
                assert await refusal(url, authorities=other.file) == "bad-certificate"
                await stays_out(url.replace("tls:", "tcp:"))  # who speaks no TLS is not understood
                await works(client, client)

    run(work())


def test_mutual_tls(authority, other):
    async def work():
        async with running(mutual_network(authority, chain(2))) as nodes:
            url, far = (nodes[id].settings.listen for id in ("B1", "B2"))
            ours = authority.certificate("client")
            async with (
                connect(url, authorities=authority.file, certificate=ours) as one,
                connect(far, authorities=authority.file, certificate=ours) as two,
            ):
                await works(one, two)
                await stays_out(url, authorities=authority.file)
                await stays_out(url, authorities=authority.file, certificate=other.certificate("client"))
                assert nodes["B1"].gauges()["connected_clients"] == 1
                await works(one, two)

    run(work())


@pytest.mark.parametrize("routing", ["destination", "merc"])
def test_routing_by_destination_over_mutual_tls_with_traces(authority, tmp_path, routing):
    settings = with_changes(mutual_network(authority, chain(3)), routing=routing, trace=tmp_path / "traces")

    async def work():
        async with running(settings) as nodes:
            ours = {"authorities": authority.file, "certificate": authority.certificate("client")}
            async with (
                connect(nodes["B1"].settings.listen, **ours) as one,
                connect(nodes["B3"].settings.listen, **ours) as two,
            ):
                await works(one, two)

    run(work())
    rows = pyarrow.dataset.dataset(tmp_path / "traces", format="parquet").to_table().to_pylist()
    last = max(row["sequence"] for row in rows if row["subscription"] is not None)
    ways = sorted((row["hops"], row["broker"], row["subscription"] is None) for row in rows if row["sequence"] == last)
    assert ways == [(0, "B1", True), (1, "B2", True), (2, "B3", False)]


def test_mutual_tls_with_tokens_needs_both(authority, tokens):
    async def work():
        both = {"B1": {"tokens": tokens}}
        async with running(mutual_network(authority, ONE, **both)) as nodes:
            url, ours = nodes["B1"].settings.listen, authority.certificate("ticker")
            async with connect(url, name="ticker", token="right", authorities=authority.file, certificate=ours) as client:
                await works(client, client)
                wrong = {"name": "reader", "authorities": authority.file}
                await stays_out(url, **wrong, token="read")
                assert await refusal(url, **wrong, token="read", certificate=ours) == "unauthorized"
                theirs = authority.certificate("reader")
                assert await refusal(url, **wrong, token="wrong", certificate=theirs) == "unauthorized"
                await works(client, client)

    run(work())


@pytest.mark.parametrize(("name", "welcome"), [("B2", True), ("B9", False)])
def test_a_broker_needs_a_certificate_of_its_name(authority, name, welcome):
    async def work():
        settings = mutual_network(authority, chain(2))["B1"]
        node = BrokerNode(settings)
        await node.start()
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(str(authority.certificate(name)))
        address = parse_address(settings.listen)
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        writer.write(b"".join(encode(Connect("broker", "B2"))))
        frames, found = FrameReader(), []
        frames.bytes_max = FRAME_BYTES_MAX
        while not found:
            found = list(frames.feed(await reader.read(1 << 16)))
        assert isinstance(found[0], Connect) if welcome else found[0].code == "unauthorized"
        assert isinstance(found[0], Error) is not welcome
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await node.stop()

    run(work())
