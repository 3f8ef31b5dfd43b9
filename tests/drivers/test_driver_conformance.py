"""All drivers pass the same shipped check: live brokers over TCP, and the simulator."""

import asyncio

import pytest

from overweave.contract.stimuli import FrameArrived
from overweave.contract.wire import Connect
from overweave.drivers.effect_runner import EffectRunner
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.node import BrokerNode
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS
from overweave.testing.drivers import CLIENT, NEIGHBOUR, ScriptedCore, check_driver
from overweave.testing.live import network_settings, until

BROKER = "broker"
OVERLAY = Overlay([BROKER, NEIGHBOUR], [(BROKER, NEIGHBOUR)])


class Simulated:
    """The simulator; peers are cores that only listen."""

    def __init__(self):
        self._network = SimulatedNetwork(OVERLAY, PROTOCOLS["filter"].make)
        self._network.add_client(CLIENT, BROKER)
        self._network.scheduler.run(1.0)
        self.core, self._received = ScriptedCore(), {NEIGHBOUR: [], CLIENT: []}
        self._nodes = dict(self._network.nodes)
        self._nodes[BROKER].core.handle = self.core.handle
        for peer in (NEIGHBOUR, CLIENT):
            self._nodes[peer].core.handle = self._listener(peer)

    def _listener(self, peer):
        def listen(stimulus, _):
            if isinstance(stimulus, FrameArrived):
                self._received[peer].append(stimulus.frame)
            return []

        return listen

    def poke(self, frame):
        self._nodes[CLIENT].channels[BROKER].send(frame)

    def run(self, seconds):
        self._network.scheduler.run(self._network.scheduler.now_s + seconds)

    def received(self, peer):
        return self._received[peer]

    def is_connected(self, peer):
        return peer in self._nodes[BROKER].channels


class RawPeer:
    """One end of a TCP connection that says who it is and listens."""

    def __init__(self, opening):
        self._opening, self.frames, self.open = opening, [], False

    def connected(self, connection):
        self.connection, self.open = connection, True
        connection.mark_authenticated()
        connection.send(self._opening)

    def received(self, _, message):
        self.frames.append(message)

    def lost(self, _):
        self.open = False


class Live:
    """A live broker, in an event loop that runs when time passes."""

    def __init__(self, loop):
        self._loop, self.core = loop, ScriptedCore()
        loop.run_until_complete(self._start())

    async def _start(self):
        self.node = BrokerNode(network_settings(OVERLAY)[BROKER])
        await self.node.start()
        self._peers = {CLIENT: RawPeer(Connect("client", CLIENT)), NEIGHBOUR: RawPeer(Connect("broker", NEIGHBOUR))}
        host, port, _ = parse_address(self.node.settings.listen)
        for peer in self._peers.values():
            await self._loop.create_connection(lambda peer=peer: Connection(peer), host, port)
        await until(lambda: {CLIENT, NEIGHBOUR} <= self.node.peers.keys())
        self.node.core.handle = self.core.handle

    async def stop(self):
        await self.node.stop()
        for peer in self._peers.values():
            peer.connection.close()
        await asyncio.sleep(0.05)

    def poke(self, frame):
        self._peers[CLIENT].connection.send(frame)

    def run(self, seconds):
        self._loop.run_until_complete(asyncio.sleep(seconds + 0.2))

    def received(self, peer):
        return self._peers[peer].frames

    def is_connected(self, peer):
        return self._peers[peer].open


def test_the_simulator():
    check_driver(Simulated)


def test_live_brokers():
    loop, made = asyncio.new_event_loop(), []

    def make():
        made.append(Live(loop))
        return made[-1]

    try:
        check_driver(make)
    finally:
        for driver in made:
            loop.run_until_complete(driver.stop())
        loop.close()


def test_a_driver_that_forgets_to_replace_a_timer_is_found(monkeypatch):
    def keep_both(self, effect):
        self._timers[f"{effect.name}{len(self._timers)}"] = self._schedule(effect.at_s, self._fire, effect.name)

    monkeypatch.setattr(EffectRunner, "_set_timer", keep_both)
    with pytest.raises(AssertionError):
        check_driver(Simulated)


def test_a_driver_that_does_not_know_an_effect_is_found_at_the_start():
    with pytest.raises(TypeError, match="differing in int"):
        EffectRunner([int], {}, None, None, {})
