"""All drivers pass the same shipped checks: live brokers and clients over TCP, and simulated ones."""

import asyncio

import pytest

from overweave.contract.effects import Reject
from overweave.contract.stimuli import FrameArrived
from overweave.contract.wire import Connect, Error
from overweave.drivers.effect_runner import EffectRunner
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.performers import EffectPerformers
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.attachment import ClientIdentity
from overweave.drivers.tcp.client_host import ClientHost
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS
from overweave.testing.drivers import CLIENT, NEIGHBOUR, OTHER, ScriptedCore, check_broker_driver, check_client_driver
from overweave.testing.live import network_settings, until

BROKER = "broker"
OVERLAY = Overlay([BROKER, NEIGHBOUR], [(BROKER, NEIGHBOUR)])


class Simulated:
    """A simulated broker or client with a scripted core; its peers are cores that only listen."""

    def __init__(self, overlay, own, peers, faults=None):
        self.network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, faults=faults)
        self.network.add_client(CLIENT, BROKER)
        self.network.scheduler.run(1.0)
        self._own, self.peers = own, peers
        self.core, self._received = ScriptedCore(), {id: [] for id in self.network.nodes}
        self._nodes = dict(self.network.nodes)
        for id, node in self._nodes.items():
            node.core.handle = self.core.handle if id == own else self._listener(id)

    def _listener(self, peer):
        def listen(stimulus, _):
            if isinstance(stimulus, FrameArrived):
                self._received[peer].append(stimulus.frame)
            return []

        return listen

    def poke(self, frame):
        self._nodes[self.peers[0]].channels[self._own].send(frame)

    def run(self, seconds):
        self.network.scheduler.run(self.network.scheduler.now_s + seconds)

    def received(self, peer):
        return self._received[peer]

    def is_connected(self, peer):
        return peer in self._nodes[self._own].channels


class SimulatedBroker(Simulated):
    """A broker of the simulator."""

    def __init__(self):
        super().__init__(OVERLAY, BROKER, (CLIENT, NEIGHBOUR), Faults(journal_sync_s=0.01))

    def incarnation(self):
        return self.network.incarnation(BROKER)


class SimulatedClient(Simulated):
    """A client of the simulator."""

    def __init__(self):
        super().__init__(Overlay([BROKER, OTHER], [(BROKER, OTHER)]), CLIENT, (BROKER,))

    def reject(self):
        self._nodes[BROKER].run([Reject(CLIENT, "not-allowed", "not here")])


class RawPeer:
    """One end of a TCP connection that says who it is and listens; the last of its connections counts."""

    def __init__(self, opening):
        self._opening, self.frames, self.connection, self._open = opening, [], None, set()

    @property
    def open(self):
        return self.connection in self._open

    def connected(self, connection):
        self.connection = connection
        self._open.add(connection)
        connection.mark_authenticated()
        connection.send(self._opening)

    def received(self, _, message):
        self.frames.append(message)

    def lost(self, connection):
        self._open.discard(connection)

    async def listen(self, url):
        """Accept connections at an address."""
        host, port, _ = parse_address(url)
        return await asyncio.get_running_loop().create_server(lambda: Connection(self), host, port)


class Live:
    """A live broker or client with a scripted core, in an event loop that runs when time passes."""

    def __init__(self, loop, **changes):
        self._loop, self.core, self._servers = loop, ScriptedCore(), []
        loop.run_until_complete(self._start(**changes))

    async def stop(self):
        await self._stop()
        for server in self._servers:
            server.close()
        for peer in self._raw.values():
            if peer.connection is not None:
                peer.connection.close()
        await asyncio.sleep(0.05)

    def poke(self, frame):
        self._raw[self.peers[0]].connection.send(frame)

    def run(self, seconds):
        self._loop.run_until_complete(asyncio.sleep(seconds + 0.2))

    def received(self, peer):
        return self._raw[peer].frames

    def is_connected(self, peer):
        return self._raw[peer].open


class LiveBroker(Live):
    """A broker over TCP; its neighbour dials it at first, and can be dialled."""

    peers = (CLIENT, NEIGHBOUR)

    async def _start(self, **changes):
        settings = network_settings(OVERLAY, **changes)
        self._node = BrokerNode(settings[BROKER])
        await self._node.start()
        self._raw = {CLIENT: RawPeer(Connect("client", CLIENT)), NEIGHBOUR: RawPeer(Connect("broker", NEIGHBOUR))}
        self._servers.append(await self._raw[NEIGHBOUR].listen(settings[NEIGHBOUR].listen))
        host, port, _ = parse_address(settings[BROKER].listen)
        for peer in self._raw.values():
            await self._loop.create_connection(lambda peer=peer: Connection(peer), host, port)
        await until(lambda: {CLIENT, NEIGHBOUR} <= self._node.peers.keys())
        self._node.core.handle = self.core.handle

    async def _stop(self):
        await self._node.stop()

    def incarnation(self):
        return self._node.core.incarnation


class NoHandler:
    """The application of a client that receives nothing."""

    def confirmed_filters(self, ids):
        return len(ids)

    def deliver(self, effect):
        pass

    def on_session_lost(self, ids, error):
        pass

    def notify(self):
        pass


class LiveClient(Live):
    """A client over TCP; it knows its first broker by an empty name until that has answered, and goes on to call it so."""

    peers = ("",)

    async def _start(self):
        urls = {id: f"tcp://127.0.0.1:{port}" for id, port in zip((BROKER, OTHER), free_ports(2), strict=True)}
        first = Connect("broker", BROKER, brokers=tuple(urls.items()))
        self._raw = {"": RawPeer(first), OTHER: RawPeer(Connect("broker", OTHER))}
        for peer, url in (("", urls[BROKER]), (OTHER, urls[OTHER])):
            self._servers.append(await self._raw[peer].listen(url))
        identity = ClientIdentity(CLIENT, None, "key", is_named=True)
        self._host = ClientHost(parse_address(urls[BROKER]), None, identity, NoHandler())
        await self._host.start()
        self._host._runner.cancel_timers()
        self._host.core.handle = self.core.handle
        self._host.core.name_broker = lambda peer, broker: None  # the scripted core attaches without it

    async def _stop(self):
        await self._host.close()

    def reject(self):
        self._raw[""].connection.send(Error("not-allowed", "not here"))


@pytest.fixture
def live():
    """Makes live drivers; all are stopped in the end."""
    loop, made = asyncio.new_event_loop(), []

    def make(kind, **changes):
        made.append(kind(loop, **changes))
        return made[-1]

    yield make
    for driver in made:
        loop.run_until_complete(driver.stop())
    loop.close()


def test_simulated_brokers():
    check_broker_driver(SimulatedBroker)


def test_simulated_clients():
    check_client_driver(SimulatedClient)


def test_live_brokers(live, tmp_path):
    states = (tmp_path / str(number) for number in range(100))
    check_broker_driver(lambda: live(LiveBroker, state=next(states)))


def test_live_clients(live):
    check_client_driver(lambda: live(LiveClient))


@pytest.mark.parametrize(("check", "kind"), [(check_broker_driver, SimulatedBroker), (check_client_driver, SimulatedClient)])
def test_a_driver_that_forgets_to_replace_a_timer_is_found(monkeypatch, check, kind):
    def keep_both(self, effect):
        self._timers[f"{effect.name}{len(self._timers)}"] = self._schedule(effect.at_s, self._fire, effect.name)

    monkeypatch.setattr(EffectRunner, "_set_timer", keep_both)
    with pytest.raises(AssertionError):
        check(kind)


@pytest.mark.parametrize(
    ("check", "kind", "forgotten"),
    [
        (check_broker_driver, SimulatedBroker, "_close_link"),
        (check_broker_driver, SimulatedBroker, "_open_link"),
        (check_broker_driver, SimulatedBroker, "_restart"),
        (check_client_driver, SimulatedClient, "_attach"),
        (check_client_driver, SimulatedClient, "_detach"),
    ],
)
def test_a_driver_that_does_not_perform_an_effect_is_found(monkeypatch, check, kind, forgotten):
    monkeypatch.setattr(EffectPerformers, forgotten, lambda self, node, effect: None)
    with pytest.raises(AssertionError):
        check(kind)


def test_a_driver_that_does_not_know_an_effect_is_found_at_the_start():
    with pytest.raises(TypeError, match="differing in int"):
        EffectRunner([int], {}, None, None, {})
