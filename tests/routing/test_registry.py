"""The registry of routing protocols: names, options, and distributions of third parties, broken ones too."""

import asyncio
import contextlib
import os
import subprocess
import sys
from functools import partial

import pytest
from third_party import install

import overweave as ow
from overweave.cli import main
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.network_file import network_of
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.pipeline.sweeps.file import sweep_of
from overweave.routing.backup_paths import Path, PathSet
from overweave.routing.options import AdvertisementTreeOptions, ClusterOptions, RootOptions, RoutingOptions
from overweave.routing.registry import BUILT_IN, PROTOCOLS, BrokenProtocol, RoutingProtocol, protocol
from overweave.testing.live import network_settings, running, until
from overweave.testing.routing import ToyNetwork

SCENARIO = {
    "duration_s": 2,
    "overlay": {"shape": "chain", "brokers": 3},
    "workload": {"publishers": 1, "subscriptions_per_publisher": 2},
}
FINE = """
from overweave.routing.base import Engine
from overweave.routing.flooding import Flooding
from overweave.routing.registry import RoutingProtocol

PROTOCOL = RoutingProtocol(lambda broker, overlay, incarnation, options: Engine(Flooding()))
NUMBER = 7
"""
ANY = parse_filter("[x,>,1]")


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A directory of installed distributions, one of which registers the protocol ``fine``."""
    monkeypatch.syspath_prepend(
        str(install(tmp_path / "site", "fine-routing", {"fine": "fine_one:PROTOCOL"}, {"fine_one.py": FINE}))
    )
    yield tmp_path / "site"
    sys.modules.pop("fine_one", None)


def test_without_distributions_there_are_the_built_in_protocols():
    assert list(PROTOCOLS) == list(BUILT_IN)
    assert protocol("merc") is BUILT_IN["merc"]
    with pytest.raises(InvalidInput, match=r"^network.routing: unknown 'floding', the nearest known one is 'flooding'$"):
        protocol("floding", "network.routing")


def test_an_installed_protocol_is_one_of_all(site):
    assert list(PROTOCOLS) == [*BUILT_IN, "fine"]
    assert "fine" in PROTOCOLS
    assert simulate(scenario_of(SCENARIO | {"routing": {"protocol": "fine"}})).deliveries > 0
    with pytest.raises(InvalidInput, match=r"^protocol: unknown 'fin', the nearest known one is 'fine'$"):
        protocol("fin")


BROKEN = [
    (
        "absent",
        "no_such_module:PROTOCOL",
        {},
        "cannot import 'absent', 'no_such_module:PROTOCOL' of distribution 'bad-routing': Modu",
    ),
    ("raises", "bad_one:PROTOCOL", {"bad_one.py": "raise RuntimeError('two\\nlines')"}, "RuntimeError: two lines"),
    (
        "wrong",
        "fine_one:NUMBER",
        {},
        "expected a RoutingProtocol for 'wrong', found int: 'fine_one:NUMBER' of distribution 'bad-ro",
    ),
    ("missing", "fine_one:NO_SUCH", {}, "AttributeError"),
    ("malformed", "", {}, "cannot import 'malformed'"),
    ("fine", "fine_one:PROTOCOL", {}, "expected one registration of 'fine', found "),
    ("filter", "fine_one:PROTOCOL", {}, "expected a name of its own, found the built-in 'filter' again: 'fine_one:PROTOCOL' of"),
]


@pytest.mark.parametrize(("name", "value", "modules", "text"), BROKEN)
def test_a_broken_registration_is_an_error_where_its_name_is_used(site, capfdbinary, name, value, modules, text):
    other = "fine" if name != "fine" else "second"
    install(site, "bad-routing", {name: value}, modules)
    install(site, "second-routing", {"second": "fine_one:PROTOCOL"})
    with pytest.raises(BrokenProtocol, match=r"^routing\.protocol: ") as broken:
        scenario_of(SCENARIO | {"routing": {"protocol": name}})
    assert text in str(broken.value)
    assert "\n" not in str(broken.value)
    assert isinstance(protocol(other), RoutingProtocol)
    assert set(PROTOCOLS) == {*BUILT_IN, "fine", "second"} - ({name} - set(BUILT_IN))
    assert PROTOCOLS["filter"] is BUILT_IN["filter"]
    with pytest.raises(SystemExit) as leaving:
        main(["protocols"])
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert leaving.value.code == 0
    assert [line for line in lines if "unusable: " in line and text in line and line.startswith(name)]
    assert sum("unusable" in line for line in lines) == 1


def test_the_list_has_options_with_their_defaults(capfdbinary):
    with pytest.raises(SystemExit):
        main(["protocols"])
    lines = {line.split()[0]: line for line in capfdbinary.readouterr().out.decode().splitlines()}
    assert set(lines) == set(BUILT_IN)
    assert lines["filter-general"].endswith("; options: parent_hold_ticks=4 startup_ticks=6")
    assert "options" not in lines["filter"]


@pytest.mark.parametrize(
    ("routing", "text"),
    [
        (
            {"protocol": "covering", "rot": "B1"},
            "routing.rot: unknown key, the nearest known one is 'root'; 'covering' has the opt",
        ),
        (
            {"protocol": "filter", "root": "B1"},
            "routing.root: unknown key, the nearest known one is 'protocol'; 'filter' has no op",
        ),
        ({"protocol": "covering", "root": 7}, "routing.root: expected a text, got 7"),
        ({"protocol": "covering", "root": "B9"}, "routing.root: unknown 'B9', the nearest known one is 'B3'"),
        ({"protocol": "merc", "hold_down_ticks": 0}, "routing.hold_down_ticks: expected an integer of at least 1, got 0"),
        ({"protocol": 7}, "routing.protocol: expected a text, got 7"),
    ],
)
def test_wrong_options_of_a_scenario_are_named(routing, text):
    with pytest.raises(InvalidInput) as refused:
        scenario_of(SCENARIO | {"routing": routing}).make_overlay()
    assert str(refused.value).startswith(text)


def test_a_network_file_has_options_beside_the_name():
    network = {"shape": "chain", "brokers": 3, "port": 7400, "routing": "covering"}
    assert network_of({"network": network, "routing": {"root": "B2"}}).settings("B1").routing_options == RootOptions(root="B2")
    for routing, text in (
        ({"root": "B9"}, "routing.root: unknown 'B9', the nearest known one is 'B3'"),
        ({"rooot": "B2"}, "routing.rooot: unknown key, the nearest known one is 'root'; 'covering' has the options root"),
        ({"protocol": "filter"}, "routing.protocol: expected the protocol's name in network.routing, got 'filter' here"),
    ):
        with pytest.raises(InvalidInput) as refused:
            network_of({"network": network, "routing": routing})
        assert str(refused.value) == text
    with pytest.raises(InvalidInput, match=r"^routing.root: unknown key, 'filter' has no options$"):
        network_of({"network": network | {"routing": "filter"}, "routing": {"root": "B2"}})


def test_a_sweep_varies_options():
    sweep = sweep_of(SCENARIO | {"routing": {"protocol": "covering", "root": ["B1", "B2"]}})
    assert [task.parameters["routing_root"] for task in sweep.tasks] == ["B1", "B2"]
    with pytest.raises(InvalidInput, match=r"^routing.root: unknown 'B4'"):
        sweep_of(SCENARIO | {"routing": {"protocol": "covering", "root": ["B1", "B4"]}})


@pytest.mark.parametrize("name", ["hierarchical-simple", "identity", "covering"])
def test_publications_climb_to_the_root_that_is_given(name):
    overlay = make_overlay("chain", brokers=4)
    for root, hops in ((None, 0), ("B1", 0), ("B3", 2)):
        network = ToyNetwork(overlay, partial(protocol(name).make, options=RootOptions(root=root)), seed=1)
        network.publish("B1", "a", parse_publication("[x,2]"))
        assert network.hops == hops


@pytest.mark.parametrize("ticks", [1, 3])
def test_a_former_parent_keeps_subscriptions_for_the_ticks_that_are_given(ticks):
    options = AdvertisementTreeOptions(parent_hold_ticks=ticks, startup_ticks=1)
    routing = protocol("filter-general").make("B1", make_overlay("chain", brokers=3), options=options).routing
    for neighbour in ("B2", "B3"):
        routing.add_neighbour(neighbour)
    list(routing.tick())
    routing.on_control(Subscribe("s", ANY), "client")
    routing.on_control(Advertise("a", ANY, Header(path=("B9", "B5", "B2"))), "B2")
    moved = routing.on_control(Advertise("a", ANY, Header(path=("B9", "B3"))), "B3")
    assert ("B3", "s") in [(to, message.id) for to, message in moved if isinstance(message, Subscribe)]
    ended = [[to for to, message in routing.tick() if isinstance(message, Unsubscribe)] for _ in range(ticks)]
    assert ended == [[]] * (ticks - 1) + [["B2"]]


@pytest.mark.parametrize("ticks", [1, 3])
def test_a_lost_path_is_held_down_for_the_ticks_that_are_given(ticks):
    overlay = make_overlay("clustered-chain", brokers=6, clusters=2)
    paths = protocol("merc").make("B1", overlay, options=ClusterOptions(hold_down_ticks=ticks)).routing._exchange.paths.of(None)
    assert isinstance(paths, PathSet)
    paths.set("s", [Path(2, ANY, 1, False)])
    paths.set("s", [], lambda: [Path(3, ANY, 1, False)])
    for _ in range(ticks):
        assert list(paths.hold_down.of("s")) == [3]
        paths.tick()
    assert not list(paths.hold_down.of("s"))


FAILING = """
from overweave.routing.base import Engine
from overweave.routing.flooding import Flooding
from overweave.routing.registry import RoutingProtocol


class Failing(Flooding):
    def route(self, batch, origin):
        return self.no_such_table.route(batch, origin)


PROTOCOL = RoutingProtocol(lambda broker, overlay, incarnation, options: Engine(Failing()))
"""
FAILURE = (
    "protocol 'failing' failed in route: AttributeError: 'Failing' object has no attribute 'no_such_table' (failing_one.py:9)"
)


@pytest.fixture
def failing(monkeypatch, tmp_path):
    """A directory with an installed protocol that fails when it routes."""
    site = install(tmp_path / "failing", "failing-routing", {"failing": "failing_one:PROTOCOL"}, {"failing_one.py": FAILING})
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("failing_one", None)


def test_a_protocol_that_fails_in_the_simulator_is_named_with_its_method(failing):
    with pytest.raises(OverweaveError) as failed:
        simulate(scenario_of(SCENARIO | {"routing": {"protocol": "failing"}}))
    assert str(failed.value) == FAILURE


def test_a_live_broker_whose_protocol_fails_exits(failing, tmp_path):
    (port,) = free_ports(1)
    (tmp_path / "network.toml").write_text(
        f'[network]\nrouting = "failing"\n[[broker]]\nid = "B1"\nlisten = "tcp://127.0.0.1:{port}"\n'
    )
    command = [sys.executable, "-m", "overweave", "broker", "--config", str(tmp_path / "network.toml"), "--id", "B1"]
    paths = os.pathsep.join([str(failing), os.environ.get("PYTHONPATH", "")])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=os.environ | {"PYTHONPATH": paths}) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            with contextlib.suppress(TimeoutError), ow.connect_blocking(f"tcp://127.0.0.1:{port}") as client:
                client.publish({"x": 1})
                client.flush(timeout_s=2)
            assert process.wait(10) == 1
            log, last = process.stderr.read().decode().splitlines()
        finally:
            process.kill()
    assert f' error B1 failed text="{FAILURE}"' in log
    assert last == f"overweave: broker B1: {FAILURE}"


def test_a_broker_whose_protocol_fails_is_unhealthy(failing):
    async def run():
        settings = network_settings(make_overlay("chain", brokers=1), routing="failing")
        async with running(settings) as nodes, asyncio.timeout(10):
            client = connect(settings["B1"].listen)
            await client.__aenter__()
            await client.publish({"x": 1})
            await until(lambda: nodes["B1"].health_problem() == f"broker B1: {FAILURE}")
            await client.close()

    asyncio.run(run())


def test_a_clash_with_the_default_protocol_leaves_the_others_usable(site, tmp_path):
    install(site, "bad-routing", {"filter": "fine_one:PROTOCOL"})
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    for name, status, text in (
        ("simple", 0, ""),
        (
            "filter",
            2,
            f"{tmp_path}/scenario.toml: routing.protocol: expected a name of its own, found the built-in 'filter' again",
        ),
    ):
        (tmp_path / "scenario.toml").write_text(
            f"duration_s = 1\n[overlay]\nshape = 'chain'\nbrokers = 2\n[routing]\nprotocol = '{name}'\n"
            "[workload]\npublishers = 1\nsubscriptions_per_publisher = 1\n"
        )
        command = [sys.executable, "-m", "overweave", "simulate", str(tmp_path / "scenario.toml")]
        # A process of its own: it imports the defaults with the clash on its path.
        run = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
        assert (run.returncode, text in run.stderr) == (status, True), run.stderr


def test_files_of_the_other_kind_and_misplaced_options_are_named():
    network = {"shape": "chain", "brokers": 3, "port": 7400}
    for make, document, text in (
        (scenario_of, {"network": network}, "expected a scenario, found a network file: use 'overweave up'"),
        (network_of, SCENARIO, "expected a network file, found a scenario: use 'overweave simulate'"),
        (
            network_of,
            {"network": network | {"routing": "covering", "root": "B2"}},
            "network.root: an option of 'covering', expected in [routing]",
        ),
    ):
        with pytest.raises(InvalidInput) as refused:
            make(document)
        assert str(refused.value) == text


def test_a_name_with_nothing_near_lists_all():
    with pytest.raises(InvalidInput, match=r"^protocol: unknown 'dbr', expected one of flooding, .*, merc \(see 'overweave prot"):
        protocol("dbr")


def test_options_without_a_default_are_refused():
    class Required(RoutingOptions, frozen=True, kw_only=True):
        attribute: str

    with pytest.raises(TypeError, match=r"^options: expected a default for each field, found none for attribute$"):
        RoutingProtocol(lambda *_: None, options=Required)
