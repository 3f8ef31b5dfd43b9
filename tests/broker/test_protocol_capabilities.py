"""Protocols may set timers, get load measurements, and open and retire links."""

import contextlib

import pytest

from overweave.broker.core import BrokerCore
from overweave.broker.retirement import RETIRE
from overweave.contract.effects import CloseLink, OpenLink, RetireLink, SetTimer
from overweave.contract.overlay_state import first_state
from overweave.contract.stimuli import LoadMeasured, PeerConnected, TimerFired
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing import PROTOCOLS
from overweave.routing.base import Engine
from overweave.routing.flooding import Flooding
from overweave.routing.registry import RoutingProtocol


class Busy(Flooding):
    """Opens a soft link when its broker is busy, looks again later, and retires the link when its broker is not."""

    def __init__(self):
        super().__init__()
        self.kinds, self.looks = {}, 0

    def add_neighbour(self, neighbour, kind=LinkKind.PRIMARY):
        self.kinds[neighbour] = kind
        super().add_neighbour(neighbour, kind)

    def load(self, measured):
        if measured.queue_length > 10:
            return [OpenLink("B9", LinkKind.SOFT), SetTimer("look", 7.0)]
        return [RetireLink("B2")] if "B2" in self.kinds else []

    def timer(self, name):
        assert name == "look"
        self.looks += 1
        return [SetTimer("look", 9.0)] if self.looks == 1 else []


def core():
    routing = Busy()
    return routing, BrokerCore("B1", Engine(routing, load=routing.load, timers=routing.timer), ["B2"])


def effects_of(effects, kind):
    return [effect for effect in effects if isinstance(effect, kind)]


def test_a_protocol_opens_links_when_load_is_high_and_sets_timers():
    routing, broker = core()
    effects = broker.handle(LoadMeasured(1.0, 1.0, 0.0, 11), 1.0)
    assert effects_of(effects, OpenLink) == [OpenLink("B9", LinkKind.SOFT)]
    (timer,) = [effect for effect in effects_of(effects, SetTimer) if effect.at_s == 7.0]
    effects = broker.handle(TimerFired(timer.name), 7.0)
    assert (routing.looks, [effect.at_s for effect in effects_of(effects, SetTimer) if effect.name == timer.name]) == (1, [9.0])
    broker.handle(TimerFired(timer.name), 9.0)
    broker.handle(TimerFired(timer.name), 10.0)  # it was not set again
    assert routing.looks == 2


def test_the_kind_of_a_link_reaches_the_protocol():
    routing, broker = core()
    broker.handle(PeerConnected("B9", kind=LinkKind.SOFT), 1.0)
    assert routing.kinds == {"B2": LinkKind.PRIMARY, "B9": LinkKind.SOFT}


def test_a_protocol_retires_links():
    routing, broker = core()
    broker.handle(LoadMeasured(1.0, 1.0, 0.0, 0), 1.0)
    assert "B2" in broker._parts.retirement
    assert routing._neighbours == []
    broker.validate()


def test_a_link_that_does_not_drain_is_closed_at_its_deadline_whatever_the_rounding():
    for number in range(300):
        start_s = number * 0.7310585786300049
        _, broker = core()
        timers = {each.name: each.at_s for each in effects_of(broker.handle(LoadMeasured(1.0, 1.0, 0.0, 0), start_s), SetTimer)}
        effects = broker.handle(TimerFired(RETIRE), timers[RETIRE])
        assert effects_of(effects, CloseLink) == [CloseLink("B2")], start_s
        assert not [each for each in effects_of(effects, SetTimer) if each.name == RETIRE]


@pytest.mark.parametrize("capability", ["ticks", "timers", "load", "match_cost"])
def test_the_overlay_of_a_tree_protocol_with_capabilities_cannot_change(capability):
    """Its brokers have one table, so that both trees of a change together would be an overlay with cycles."""
    overlay = Overlay(["B1", "B2"], [("B1", "B2")])
    given = {capability: lambda *_: ()}
    for protocol, fits in ((RoutingProtocol(lambda *_: Engine(Flooding(), **given)), False), (PROTOCOLS["flooding"], True)):
        broker = BrokerCore("B1", protocol.make("B1", overlay), ["B2"])
        with contextlib.nullcontext() if fits else pytest.raises(InvalidInput, match="the overlay cannot change"):
            broker._parts.overlay.check_supported(first_state(overlay, epoch=1))
