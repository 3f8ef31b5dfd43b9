"""Networks are refused with the file and the path of the field; all brokers of one see the same network."""

from pathlib import Path

import pytest

from overweave.drivers.tcp.network_addresses import check_listen
from overweave.drivers.tcp.network_file import network_of, read_network
from overweave.drivers.tcp.settings import BrokerSettings, SecuritySettings
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay

CHAIN = {"shape": "chain", "brokers": 3, "port": 7400}
LISTED = [{"id": name, "listen": f"tcp://127.0.0.1:{port}"} for name, port in (("X", 9001), ("Y", 9002), ("Z", 9003))]
LINKS = [{"between": ["X", "Y"]}, {"between": ["Y", "Z"]}]
PUBLIC = {**CHAIN, "host": "10.0.0.1"}
TLS = {"certificate": "c.pem", "key": "k.pem"}


def test_the_example():
    network = read_network(Path(__file__).parents[2] / "examples" / "network.toml")
    assert network.urls == {f"B{i}": f"tcp://127.0.0.1:{7400 + i}" for i in (1, 2, 3)}


def test_every_broker_has_its_own_place_in_the_same_network():
    network = network_of({"network": {**CHAIN, "state": "s", "trace": "t", "metrics_port": 7500}}, Path("dir"))
    for i in (1, 2, 3):
        settings = network.settings(f"B{i}")
        assert (settings.listen, settings.metrics) == (f"tcp://127.0.0.1:{7400 + i}", f"127.0.0.1:{7500 + i}")
        assert (settings.state, settings.trace) == (Path(f"dir/s/B{i}"), Path("dir/t"))
        assert (settings.overlay, settings.urls) == (network.overlay, network.urls)


def test_brokers_and_links_one_by_one():
    network = network_of({"broker": LISTED, "link": LINKS})
    assert network.overlay == Overlay(["X", "Y", "Z"], [("X", "Y"), ("Y", "Z")])
    assert network.settings("Y").listen == "tcp://127.0.0.1:9002"


def test_beside_a_shape_brokers_say_where_they_listen_and_links_add():
    ring = {**CHAIN, "routing": "filter-general"}
    links = [{"between": ["B1", "B2"]}, {"between": ["B1", "B3"]}]
    network = network_of({"network": ring, "broker": [{"id": "B2", "listen": "tcp://127.0.0.1:9"}], "link": links})
    assert network.urls["B2"] == "tcp://127.0.0.1:9"
    assert network.urls["B3"] == "tcp://127.0.0.1:7403"
    assert len(network.overlay.links) == 3


def test_a_random_shape_is_the_same_for_everybody():
    document = {"network": {"shape": "random-tree", "brokers": 20, "degree_max": 3, "port": 7400}}
    assert network_of(document).overlay == network_of(document).overlay


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"netwrk": {}}, "netwrk: unknown key, the nearest known one is 'network'"),
        ({"network": 3}, "network: expected a table [network], got 3"),
        ({"network": {**CHAIN, "prot": 1}}, "network.prot: unknown key, the nearest known one is 'port'"),
        ({"network": {**CHAIN, "shape": "chian"}}, "network.shape: unknown 'chian', the nearest known one is 'chain'"),
        ({"network": {**CHAIN, "routing": "filtr"}}, "network.routing: unknown 'filtr', the nearest known one is 'filter'"),
        ({"network": {**CHAIN, "brokers": 0}}, "network.brokers: expected an integer of at least 1, got 0"),
        ({"network": {"brokers": 3}}, "network.shape: expected one of chain"),
        ({}, "network.shape: expected one of chain"),
        ({"network": {"shape": "chain", "brokers": 3}}, "network.port: expected an integer from 1 to 65532, got none"),
        ({"network": {**CHAIN, "port": 65533}}, "network.port: expected an integer from 1 to 65532, got 65533"),
        ({"network": {**CHAIN, "port": "x"}}, "network.port: expected an integer, got 'x'"),
        ({"network": {**CHAIN, "tls": 1}}, "network.tls: expected true or false, got 1"),
        ({"network": {**CHAIN, "trace": 1}}, "network.trace: expected a path, got 1"),
        ({"network": {**CHAIN, "trace_every_s": 0}}, "network.trace_every_s: expected a time of at least 0.1 s, got 0"),
        ({"network": {**CHAIN, "metrics_port": 7402}}, "network.metrics_port: expected 3 ports above it"),
        ({"network": CHAIN, "broker": [{"id": "B4"}]}, "broker[0].id: unknown 'B4'"),
        (
            {"network": CHAIN, "broker": [{"id": "B1", "lisen": ""}]},
            "broker[0].lisen: unknown key, the nearest known one is 'listen'",
        ),
        ({"network": CHAIN, "broker": [{"id": "B1", "listen": "x"}]}, "broker[0].listen: expected tcp://HOST:PORT"),
        (
            {"network": CHAIN, "broker": [{"id": "B1", "listen": "tcp://127.0.0.1:7402"}]},
            "network.host: expected an address of its",
        ),
        ({"broker": [*LISTED, LISTED[0]], "link": LINKS}, "broker[3].id: expected another id"),
        ({"network": CHAIN, "broker": [{"id": "B1"}, {"id": "B1"}]}, "broker[1].id: expected every id once, got 'B1' again"),
        ({"network": CHAIN, "broker": [{"id": "B1", "clusters": "A"}]}, "broker[0].clusters: expected a list of texts, got 'A'"),
        ({"broker": [{"id": "B1", "clusters": ["A", "A"]}]}, "broker[0].clusters: expected different names, got ['A', 'A']"),
        (
            {"network": {**CHAIN, "brokers": 2033, "routing": "destination"}},
            "network.routing: expected one for 2,033 brokers, as network.shape 'chain' has; 'destination' takes 2,032 at most",
        ),
        (
            {"network": {**CHAIN, "routing": "destination"}, "modules": {"self_organise": {"every_s": 0}}},
            "modules.self_organise.every_s: expected a time above 0, got 0",
        ),
        ({"broker": [{"id": "../x", "listen": "tcp://127.0.0.1:9"}]}, "broker[0].id: expected a name without slashes"),
        ({"broker": LISTED, "link": LINKS[:1]}, "link: expected links between all brokers"),
        ({"broker": LISTED, "link": [{"between": ["X", "Q"]}]}, "link[0].between: broker 'Q' is not in the overlay"),
        ({"broker": LISTED, "link": [{"between": ["X"]}]}, "link[0].between: expected two texts"),
        ({"broker": LISTED, "link": [*LINKS, {"between": ["X", "Z"]}]}, "network.routing: expected one for overlays with cycles"),
        (
            {"network": {**CHAIN, "routing": "merc"}, "modules": {"self_organise": {"every_s": 1, "degree_max": 3}}},
            "modules.self_organise: expected routing whose brokers know the overlay (destination), got 'merc'",
        ),
        ({"network": CHAIN, "modules": {"reprt": {}}}, "modules.reprt: unknown module, the nearest known one is 'report'"),
        ({"network": CHAIN, "security": {"mutul": True}}, "security.mutul: unknown key, the nearest known one is 'mutual'"),
        ({"network": CHAIN, "security": {"mutual": True}}, "security.certificate: expected a PEM file"),
        ({"network": {**CHAIN, "tls": True}}, "security.certificate: expected a PEM file"),
        ({"network": CHAIN, "brokers": {"windw": 1}}, "brokers.windw: unknown key, the nearest known one is 'window'"),
        ({"network": CHAIN, "brokers": 3}, "brokers: expected a table [brokers], got 3"),
        ({"network": CHAIN, "broker": 3}, "broker: expected tables [[broker]], got 3"),
        ({"network": CHAIN, "broker": {}, "brokers": {}}, "broker: expected either the table [broker] or [brokers], got both"),
        ({"network": CHAIN, "brokers": {"window": 0}}, "brokers.window: expected a number above 0, got 0"),
        ({"network": CHAIN, "brokers": {"window": 65_537}}, "brokers.window: expected an integer from 1 to 65,536, got 65,537"),
        ({"network": CHAIN, "brokers": {"window": 1.5}}, "brokers.window: expected an integer, got 1.5"),
        ({"network": CHAIN, "broker": {"ping_interval_s": -1}}, "broker.ping_interval_s: expected a number above 0, got -1"),
        ({"network": CHAIN, "brokers": {"stall_timeout_s": -1}}, "brokers.stall_timeout_s: expected a number 0 or more, got -1"),
        (
            {"network": CHAIN, "brokers": {"heartbeat_s": 2}},
            "brokers.link_timeout_s: expected more than heartbeat_s, which is 2, got 2",
        ),
        (
            {"network": CHAIN, "brokers": {"stall_timeout_s": 6}},
            "brokers.slow_consumer_timeout_s: expected at least stall_timeout_s, which is 6, got 5",
        ),
        (
            {"network": CHAIN, "broker": [{"id": "B1", "session_expiry_s": 0}]},
            "broker[0].session_expiry_s: expected a number above 0, got 0",
        ),
        ({"network": CHAIN, "broker": [{"id": "B1", "window": 1}]}, "broker[0].window: unknown key"),
        ({"network": CHAIN, "limits": {"clients_max": 0}}, "limits.clients_max: expected a number of at least 1, got 0"),
        (
            {"network": CHAIN, "limits": {"client_max": 1}},
            "limits.client_max: unknown key, the nearest known one is 'clients_max'",
        ),
        ({"network": PUBLIC}, "network.host: expected a loopback address, got tcp://10.0.0.1:7401"),
        ({"network": {**PUBLIC, "tls": True}, "security": TLS}, "network.host: expected a loopback address"),
        ({"network": PUBLIC, "security": {"tokens": "t"}}, "network.host: expected a loopback address"),
    ],
)
def test_what_is_wrong_is_named(document, text):
    with pytest.raises(InvalidInput) as refused:
        network_of(document)
    assert str(refused.value).startswith(text)


def test_brokers_of_a_shape_may_have_clusters():
    listed = [{"id": "B1", "clusters": ["C1"]}, {"id": "B2", "clusters": ["C1", "C2"]}, {"id": "B3", "clusters": ["C2"]}]
    overlay = network_of({"network": {**CHAIN, "routing": "merc"}, "broker": listed}).overlay
    assert {cluster: overlay.members(cluster) for cluster in overlay.clusters} == {"C1": ("B1", "B2"), "C2": ("B2", "B3")}


@pytest.mark.parametrize(
    ("network", "security"),
    [
        ({**PUBLIC, "tls": True}, {**TLS, "tokens": "t"}),
        ({**PUBLIC, "tls": True}, {**TLS, "authorities": "a", "mutual": True}),
        (PUBLIC, {"insecure": True}),
    ],
)
def test_others_may_reach_brokers_that_ask_for_proof(network, security):
    assert "10.0.0.1" in network_of({"network": network, "security": security}).urls["B1"]


def test_the_broker_itself_refuses_too():
    def settings(url, **security):
        return BrokerSettings(id="B1", listen=url, overlay=Overlay(["B1"]), urls={}, security=SecuritySettings(**security))

    for url in ("tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1"):
        check_listen(settings(url))
    for url in ("tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://example.org:1"):
        check_listen(settings(url, insecure=True))
        with pytest.raises(InvalidInput, match="insecure = true"):
            check_listen(settings(url))


def test_errors_name_the_file_and_unknown_brokers_the_nearest(tmp_path):
    file = tmp_path / "network.toml"
    file.write_text("x = 1")
    with pytest.raises(InvalidInput) as refused:
        read_network(file)
    assert str(refused.value).startswith(f"{file}: x: unknown key")
    with pytest.raises(InvalidInput, match="'B9': expected one of the network, the nearest known one is"):
        network_of({"network": CHAIN}).settings("B9")


def test_options_reach_every_broker_and_some_may_differ():
    options = {"window": 64, "session_expiry_s": 60, "heartbeat_s": 1, "link_timeout_s": 3, "stall_timeout_s": 0}
    options |= {"slow_consumer_timeout_s": 7, "pending_max": 8, "undeliverable_timeout_s": 9, "ping_interval_s": 11}
    options |= {"drain_timeout_s": 12, "acknowledge_every": 13, "acknowledge_delay_s": 0.014}
    document = {"network": CHAIN, "brokers": options, "limits": {"pending_bytes_max": 15, "clients_max": 16}}
    document["broker"] = [{"id": "B2", "session_expiry_s": 5, "slow_consumer_timeout_s": 0}]
    network = network_of(document)
    one, two = network.settings("B1"), network.settings("B2")
    config = one.config
    assert (config.session.window, config.session.acknowledge_every, config.session.acknowledge_delay_s) == (64, 13, 0.014)
    assert (config.heartbeat_s, config.link_timeout_s, config.undeliverable_timeout_s) == (1, 3, 9)
    assert (config.stall_timeout_s, config.slow_consumer_timeout_s, config.pending_max, config.pending_bytes_max) == (
        None,
        7,
        8,
        15,
    )
    assert (one.ping_interval_s, one.session_expiry_s, one.drain_timeout_s, one.limits.clients_max) == (11, 60, 12, 16)
    assert (two.session_expiry_s, two.config.slow_consumer_timeout_s, two.config.session.window) == (5, None, 64)


def test_a_table_of_one_broker_is_that_of_all():
    assert network_of({"network": CHAIN, "broker": {"window": 64}}) == network_of({"network": CHAIN, "brokers": {"window": 64}})


def test_without_options_brokers_are_as_they_are_without_a_file():
    plain = BrokerSettings(id="B1", listen="tcp://127.0.0.1:7401", overlay=Overlay(["B1"]), urls={})
    settings = network_of({"network": CHAIN}).settings("B1")
    for name in ("config", "limits", "session_expiry_s", "ping_interval_s", "drain_timeout_s"):
        assert getattr(settings, name) == getattr(plain, name)
