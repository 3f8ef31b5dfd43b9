"""``overweave move`` and ``overweave drain`` against live brokers in a thread: results, errors, and clients that stay."""

import asyncio
import contextlib
import json
import threading

import pytest
import trustme
from live_network import live_network

from overweave.cli.client_options import Credentials
from overweave.cli.operators import operator_at, target_of
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.blocking import connect_blocking
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import InvalidInput
from overweave.testing.live import running

TOKENS = """
[[client]]
name = "reader"
token = "read"
subscribe = ["*"]
[[client]]
name = "other"
token = "other"
[[client]]
name = "ops"
token = "operate"
control = true
""" + "".join(f'[[broker]]\nid = "B{n}"\ntoken = "broker"\n' for n in (1, 2, 3))


@pytest.fixture
def network(tmp_path):
    """A network file whose brokers run in a thread, and their URLs."""
    with _network(tmp_path / "network.toml") as made:
        yield made


@pytest.fixture
def secured(tmp_path):
    """The same with tokens."""
    (tmp_path / "tokens.toml").write_text(TOKENS)
    with _network(tmp_path / "network.toml", '[security]\ntokens = "tokens.toml"\ntoken = "broker"\n') as made:
        yield made


@contextlib.contextmanager
def _network(file, more=""):
    ports = free_ports(3)
    brokers = "".join(f'[[broker]]\nid = "B{n}"\nlisten = "tcp://127.0.0.1:{port}"\n' for n, port in enumerate(ports, 1))
    links = "".join(f'[[link]]\nbetween = ["B{n}", "B{n + 1}"]\n' for n in (1, 2))
    file.write_text(brokers + links + more)
    found = read_network(file)
    started, loop = threading.Event(), asyncio.new_event_loop()
    stopped = asyncio.Event()

    async def serve():
        async with running({id: found.settings(id) for id in found.overlay.ids}):
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    yield file, found.urls
    loop.call_soon_threadsafe(stopped.set)
    thread.join()
    loop.close()


def test_names_that_are_not_known(run, network):
    file, urls = network
    with connect_blocking(urls["B1"], name="ticker"):
        status, out, err = run("move", "tickr", "--to", "B3", file)
        assert (status, out) == (2, "")
        assert err == "overweave: client 'tickr': expected a client of the network, the nearest known one is 'ticker'\n"
        status, _, err = run("move", "ticker", "--to", "B33", file)
        assert status == 2
        assert "--to: broker 'B33': expected one of the network, the nearest known one is 'B3'" in err
        status, out, _ = run("move", "ticker", "--to", "B1", file)
        assert (status, out) == (0, "ticker: at B1 already\n")
    status, _, err = run("drain", "B4", file)
    assert status == 2
    assert "BROKER: broker 'B4': expected one of the network" in err
    status, _, err = run("drain", "B2", "--to", "B2", file)
    assert status == 2
    assert "--to: expected another broker than 'B2', which is drained" in err


def test_brokers_that_do_not_run(run, tmp_path):
    file = tmp_path / "network.toml"
    file.write_text(f'[network]\nshape = "chain"\nbrokers = 2\nport = {free_ports(1)[0] % 60_000 + 1_000}\n')
    status, _, err = run("move", "c", "--to", "B2", file)
    assert status == 1
    assert "client 'c': not found at any broker; unreachable: B1:" in err
    status, _, err = run("drain", "B1", file)
    assert status == 1
    assert "broker B1 cannot be reached: tcp://" in err


def test_options_that_contradict_each_other(run, network):
    status, _, err = run("move", "c", "--to", "B2", "--only", "publishing", "--subscriptions", "c/1", network[0])
    assert status == 2
    assert "--subscriptions: expected none with --only publishing" in err


def test_a_client_moves(run, network):
    file, urls = network
    with connect_blocking(urls["B1"], name="reader") as reader, reader.subscribe("[class,eq,'A']") as found:
        status, out, err = run("move", "reader", "--to", "B3", "--json", file)
        assert (status, err) == (0, "")
        moved = json.loads(out)
        assert (moved["client"], moved["from"], moved["to"], moved["subscriptions"]) == ("reader", ["B1"], "B3", 1)
        with connect_blocking(urls["B1"], name="ticker") as ticker:
            ticker.publish({"class": "A"})
            ticker.flush()
        assert dict(found.get(timeout_s=5)) == {"class": "A"}


def test_a_subscription_that_the_client_does_not_have_does_not_count_as_moved(run, network):
    file, urls = network
    with connect_blocking(urls["B1"], name="reader") as reader, reader.subscribe("[class,eq,'A']"):
        status, out, err = run("move", "reader", "--to", "B3", "--subscriptions", "other", file)
        assert (status, out) == (1, "")
        assert "client 'reader' stays at B1: the client has no subscription 'other'" in err


def test_named_subscriptions_move_from_the_brokers_that_have_them(run, network):
    file, urls = network
    with (
        connect_blocking(urls["B1"], name="reader") as reader,
        reader.subscribe("[class,eq,'A']") as one,
        reader.subscribe("[class,eq,'B']") as other,
    ):
        first, second = (each._subscription.id for each in (one, other))

        def moved(to, *ids):
            status, out, err = run("move", "reader", "--to", to, *(f"--subscriptions={id}" for id in ids), "--json", file)
            return (json.loads(out)["from"], json.loads(out)["subscriptions"]) if not status else err

        assert moved("B2", second) == (["B1"], 1)
        assert moved("B3", second) == (["B2"], 1)
        text = f"the client has no subscription '{second}' at B1, but at B3"
        assert text in moved("B3", second)
        assert "the client has no subscription 'other'" in moved("B2", "other")
        assert moved("B2", first, second) == (["B1", "B3"], 2)


def test_a_broker_without_clients_is_drained_at_once(run, network):
    status, out, _ = run("drain", "B2", network[0])
    assert status == 0
    assert out.startswith("B2: moved 0 clients in ")
    assert out.endswith("; it can be stopped\n")


def test_an_operator_that_was_killed_is_no_client(run, network):
    file, urls = network

    async def killed():
        async with Operator(parse_address(urls["B2"]), None) as operator:
            await operator.clients()
            operator._connection.abort()
            await asyncio.sleep(0.1)

    asyncio.run(killed())
    status, out, _ = run("drain", "B2", "--json", file)
    assert (status, json.loads(out)["moved"], json.loads(out)["stayed"]) == (0, {}, {})


def test_a_client_moves_to_a_spare_broker_that_has_joined_and_back(run, tmp_path, monkeypatch):
    with live_network(tmp_path, monkeypatch) as network:
        network.start_guest("B4", "B1")
        with connect_blocking(network.urls["B1"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            for to in ("B4", "B1"):
                status, _, err = run("move", "reader", "--to", to, network.file)
                assert status == 0, err
                assert reader.broker == to


def test_brokers_with_tls_and_without_in_one_network(tmp_path):
    authority = tmp_path / "authority.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    brokers = '[[broker]]\nid = "B1"\nlisten = "tcp://127.0.0.1:7401"\n[[broker]]\nid = "B2"\nlisten = "{}://localhost:7402"\n'
    file, more = tmp_path / "network.toml", '[[link]]\nbetween = ["B1", "B2"]\n'
    security = '[security]\nauthorities = "authority.pem"\ncertificate = "authority.pem"\n'
    file.write_text(brokers.format("tls") + more + security)
    target = target_of(file, Credentials())
    for url in target.network.urls.values():
        operator_at(target, url)
    file.write_text(brokers.format("tcp") + more)
    with pytest.raises(InvalidInput, match="--cafile: expected none for tcp"):
        target_of(file, Credentials(authorities=authority))


def test_clients_that_stay_are_listed_with_reasons(run, network):
    file, urls = network
    # A name at two brokers is two clients: the first one cannot attach where the second one is.
    with connect_blocking(urls["B2"], name="here"), connect_blocking(urls["B1"], name="here"):
        status, out, _ = run("drain", "B2", "--to", "B1", "--json", file)
    assert status == 1
    result = json.loads(out)
    assert not result["empty"]
    assert list(result["stayed"]) == ["here"]


def test_a_drain_spreads_clients_by_number(run, network):
    file, urls = network
    clients = [connect_blocking(urls["B2"], name=f"c{number:02}") for number in range(50)]
    try:
        for client in clients:
            client.__enter__()
        status, out, _ = run("drain", "B2", "--rate", "200", "--json", file)
        assert status == 0
        moved = json.loads(out)["moved"]
        assert len(moved) == 50
        assert sorted(list(moved.values()).count(broker) for broker in ("B1", "B3")) == [25, 25]
    finally:
        for client in clients:
            client.close()


def test_tokens_need_the_permission_control(run, secured):
    file, urls = secured
    with connect_blocking(urls["B1"], name="reader", token="read") as reader, reader.subscribe("[class,eq,'A']"):
        status, _, err = run("move", "reader", "--to", "B2", "--name", "other", "--token", "other", file)
        assert status == 1
        assert "not-allowed: client 'other~" in err
        assert "may not list clients; it needs the permission control" in err
        status, _, err = run("drain", "B1", "--name", "ops", "--token", "wrong", file)
        assert status == 1
        assert "unauthorized: client 'ops~" in err
        status, out, err = run("move", "reader", "--to", "B2", "--name", "ops", "--token", "operate", file)
        assert (status, err) == (0, "")
        assert out.startswith("reader: moved 1 subscription from B1 to B2 in ")
