"""SIGHUP: brokers read their tokens again, and peers that are not welcome any more are told so."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.network_file import network_of, read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import InvalidInput, Refused
from overweave.overlay.fixed_shapes import chain
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until, with_changes

ONE = Overlay(["B1"])
CLIENT = '[[client]]\nname = "{}"\ntoken = "{}"\npublish = ["*"]\nsubscribe = {}\n'
BROKER = '[[broker]]\nid = "{}"\ntoken = "{}"\n'
ALL = '["*"]'


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


@pytest.fixture
def tokens(tmp_path):
    return tmp_path / "tokens.toml"


def test_tokens_are_read_again(tokens):
    tokens.write_text(CLIENT.format("stays", "s", ALL) + CLIENT.format("goes", "g", ALL))

    async def work():
        settings = with_changes(network_settings(ONE), security=SecuritySettings(tokens=tokens))
        async with running(settings) as nodes:
            node, url = nodes["B1"], nodes["B1"].settings.listen
            async with connect(url, name="stays", token="s") as stays:
                goes = await connect(url, name="goes", token="g").__aenter__()
                await stays.advertise("[x,>,0]")
                async with goes.subscribe("[x,>,0]"), stays.subscribe("[x,>,0]") as got:
                    tokens.write_text("not TOML")
                    node.reload()
                    await goes.publish({"x": 1})
                    assert (await anext(aiter(got)))["x"] == 1
                    tokens.write_text(CLIENT.format("stays", "s", ALL) + CLIENT.format("new", "n", ALL))
                    node.reload()
                    async with connect(url, name="new", token="n") as new:
                        await new.advertise("[x,>,0]")
                        await new.publish({"x": 2})
                        assert (await anext(aiter(got)))["x"] == 2
                    await until(lambda: goes.host.error is not None)
                    assert goes.host.error.code == "unauthorized"
                    assert "the tokens of broker B1 have changed" in goes.host.error.text
                    await until(lambda: node.core.clients() == ["stays"])
                await goes.close()
                with pytest.raises(Refused, match="expected a token that is good for this name"):
                    async with connect(url, name="goes", token="g"):
                        pass

    run(work())


def test_who_may_subscribe_to_less_is_asked_to_say_all_again(tokens):
    tokens.write_text(CLIENT.format("reader", "r", '["A", "B"]') + CLIENT.format("*", "p", ALL))

    async def work():
        settings = with_changes(network_settings(ONE), security=SecuritySettings(tokens=tokens))
        async with running(settings) as nodes:
            url = settings["B1"].listen
            async with connect(url, name="reader", token="r") as reader, reader.subscribe("[class,eq,'A']"):
                # More, or other rights to publish, change nothing for those who are there.
                tokens.write_text(CLIENT.format("reader", "r", '["C", "B", "A"]').replace('publish = ["*"]', "publish = []"))
                connection = nodes["B1"].peers["reader"]
                nodes["B1"].reload()
                assert nodes["B1"].peers["reader"] is connection
                with pytest.raises(Refused, match="may not advertise"):
                    await reader.advertise("[x,>,0]")
            async with connect(settings["B1"].listen, name="reader", token="r") as reader:
                with contextlib.suppress(Refused):
                    async with reader.subscribe("[class,eq,'A']") as got:
                        tokens.write_text(CLIENT.format("reader", "r", '["B"]'))
                        nodes["B1"].reload()
                        with pytest.raises(Refused, match="may not subscribe to") as refused:
                            await anext(aiter(got))
                        assert refused.value.code == "not-allowed"

    run(work())


def test_brokers_are_disconnected_too_and_let_in_again(tokens):
    both = BROKER.format("B1", "one") + BROKER.format("B2", "two")
    tokens.write_text(both)

    async def work():
        network = network_settings(chain(2))
        settings = {
            id: with_changes({id: each}, security=SecuritySettings(tokens=tokens, token={"B1": "one", "B2": "two"}[id]))[id]
            for id, each in network.items()
        }
        async with running(settings) as nodes:
            tokens.write_text(BROKER.format("B1", "one"))
            nodes["B1"].reload()
            await until(lambda: "no link to B2" in (nodes["B1"].health_problem() or ""))
            await until(lambda: "expected a token" in (nodes["B2"].health_problem() or ""))
            tokens.write_text(both)
            nodes["B1"].reload()
            await until(lambda: nodes["B1"].health_problem() is None and nodes["B2"].health_problem() is None)

    run(work())


NETWORK = """
[network]
shape = "chain"
brokers = 2
port = {port}
[security]
tokens = "tokens.toml"
[[broker]]
id = "B1"
listen = "tcp://127.0.0.1:{first}"
token = "one"
[[broker]]
id = "B2"
listen = "tcp://127.0.0.1:{second}"
token_file = "two"
"""


def test_up_passes_sighup_on(tmp_path, tokens):
    first, second = free_ports(2)
    (tmp_path / "network.toml").write_text(NETWORK.format(port=7400, first=first, second=second))
    (tmp_path / "two").write_text("two\n")
    brokers = BROKER.format("B1", "one") + BROKER.format("B2", "two")
    tokens.write_text(brokers)
    command = [sys.executable, "-m", "overweave", "up", str(tmp_path / "network.toml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline().startswith(b"B1\t")

        async def admitted(port):
            async with connect(f"tcp://127.0.0.1:{port}", name="c", token="c") as client:
                await client.advertise("[x,>,0]")

        with pytest.raises(Refused, match="expected a token"):
            run(admitted(first))
        tokens.write_text(brokers + CLIENT.format("c", "c", ALL))
        os.kill(process.pid, signal.SIGHUP)
        for port in (first, second):
            for attempt in range(100):
                try:
                    run(admitted(port))
                    break
                except Refused:
                    assert attempt < 99
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_broker_has_its_own_token(tmp_path):
    document = NETWORK.format(port=7400, first=7401, second=7402).replace("[security]", '[security]\ntoken = "all"')
    (tmp_path / "network.toml").write_text(document)
    network = read_network(tmp_path / "network.toml")
    assert network.settings("B1").security.token == "one"
    with pytest.raises(InvalidInput, match="token_file: expected a readable file, found no such file"):
        network.settings("B2")
    (tmp_path / "two").write_text("two\n")
    assert network.settings("B2").security.token == "two"
    shape = {"shape": "chain", "brokers": 2, "port": 7400}
    both = [{"id": "B1", "token": "x", "token_file": "y"}]
    with pytest.raises(InvalidInput, match=r"broker\[0\].token: expected either this or token_file, got both"):
        network_of({"network": shape, "broker": both})
    plain = network_of({"network": shape, "broker": [{"id": "B1"}], "security": {"token": "all"}})
    assert {plain.settings(id).security.token for id in ("B1", "B2")} == {"all"}
