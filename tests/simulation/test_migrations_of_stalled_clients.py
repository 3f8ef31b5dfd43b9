"""Clients that stall around an order to move: their publishers wait, and nothing that is settled gets lost."""

import numpy as np
import pytest

from overweave.broker.client.received import ReceivedPublications
from overweave.broker.slow_consumers import SlowConsumerPolicy
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

WINDOW, RATE_HZ, STEP_S = 64, 3000, 0.004


class Stall:
    """A publisher that fills its window, and a subscriber at a slow broker that stops reading for a while."""

    def __init__(self, protocol, **limits):
        session = SessionConfig(window=WINDOW, acknowledge_delay_s=0.005)
        heartbeat_s = 0.5 if protocol == "destination" else None
        self.network = SimulatedNetwork(
            make_overlay("chain", brokers=5),
            PROTOCOLS[protocol].make,
            costs=Costs(link_delay_s=0.01),
            own_costs={"B3": Costs(link_delay_s=0.01, output_bandwidth_bytes_per_s=5e4)},
            config=BrokerConfig(session, stall_timeout_s=0.1, heartbeat_s=heartbeat_s, **limits),
        )
        self.network.add_client("p", "B1")
        self.network.add_client("s", "B3")
        self.network.say("p", Advertise("p/a", parse_filter("[x,>=,0],[k,>=,0]")))
        self.network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
        self.network.run_until_quiescent()
        self.published = 0

    def run(self, for_s, publishing=True):
        end_s = self.network.scheduler.now_s + for_s
        while self.network.scheduler.now_s < end_s:
            for _ in range(round(RATE_HZ * STEP_S) if publishing else 0):
                if self.network.client("p").unsettled_rows() < WINDOW:
                    self.network.publish("p", parse_publication(f"[x,{self.published}],[k,{self.published % 2}]"))
                    self.published += 1
            self.network.scheduler.run(self.network.scheduler.now_s + STEP_S)

    def stall_and_move(self, first, gap_s, stalled_s=1.0):
        """Stall and order in turn, and resume; the token of the order and the number of publications meanwhile."""
        self.run(0.2)
        if first == "stall":
            self.network.nodes["s"].pause_reading()
            self.run(gap_s)
        order = self.network.client_processes.migrate("s", "B2")
        if first == "order":
            self.run(gap_s)
            self.network.nodes["s"].pause_reading()
        before = self.published
        self.run(stalled_s)
        meanwhile = self.published - before
        if "s" in self.network.nodes:
            self.network.nodes["s"].resume_reading()
        self.run(1.0)
        self.run(30.0, publishing=False)
        return order.token, meanwhile

    def delivered(self):
        return sorted(key[1] for key in self.network.deliveries)


CASES = [(first, gap_s) for first in ("stall", "order") for gap_s in (0.0, 0.005, 0.02, 0.03, 0.045)]


@pytest.mark.parametrize("protocol", ["filter", "destination"])
@pytest.mark.parametrize(("first", "gap_s"), CASES)
def test_publishers_wait_for_a_client_that_stalls_around_an_order(protocol, first, gap_s):
    stall = Stall(protocol)
    token, meanwhile = stall.stall_and_move(first, gap_s)
    assert stall.delivered() == list(range(stall.published))
    assert stall.network.migrations[token] is None
    assert meanwhile < 2 * WINDOW


def only_the_window(received, batch):
    """Older publications count as seen."""
    new = batch.mark_seen(received._window)
    return np.arange(batch.count) if new is None else new


def lost_while_split(protocol):
    """How many are lost to a client with subscriptions at two brokers that stalls: both buffer for it."""
    stall = Stall(protocol)
    for number, other in enumerate((0, 1)):
        stall.network.say("s", Subscribe(f"s/{number + 2}", parse_filter(f"[x,>=,0],[k,=,{other}]")))
    stall.network.say("s", Unsubscribe("s/1"))
    stall.network.run_until_quiescent()
    order = stall.network.client_processes.migrate("s", "B2", subscriptions=("s/3",), publishing=False)
    stall.run(1.0)
    assert stall.network.migrations[order.token] is None
    assert len(stall.network.client("s").peers()) == 2
    stall.network.nodes["s"].pause_reading()
    stall.run(1.0)
    stall.network.nodes["s"].resume_reading()
    stall.run(1.0)
    stall.run(30.0, publishing=False)
    assert max(stall.network.deliveries.values()) == 1
    return stall.published - len(stall.delivered())


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_a_client_at_two_brokers_gets_what_both_have_buffered(protocol):
    assert lost_while_split(protocol) == 0


def test_with_a_dedup_window_alone_a_client_at_two_brokers_loses_publications(monkeypatch):
    monkeypatch.setattr(ReceivedPublications, "mark_received", only_the_window)
    assert lost_while_split("filter") > WINDOW


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_with_a_buffer_publications_are_lost(protocol, monkeypatch):
    monkeypatch.setattr(SlowConsumerPolicy, "begin_move", lambda *_: None)
    monkeypatch.setattr(ReceivedPublications, "mark_received", only_the_window)
    stall = Stall(protocol)
    stall.stall_and_move("stall", 0.0)
    assert len(stall.delivered()) < stall.published - WINDOW


def test_publishers_wait_no_longer_than_for_any_slow_client():
    stall = Stall("filter", slow_consumer_timeout_s=0.5)
    token, meanwhile = stall.stall_and_move("stall", 0.0, stalled_s=2.0)
    assert stall.network.migrations[token] == "'s' has left"
    assert [(each.peer, each.code) for each in stall.network.refusals] == [("s", "slow-consumer")]
    assert meanwhile > 1000


def test_a_client_is_buffered_for_again_when_it_has_moved():
    stall = Stall("filter")
    order = stall.network.client_processes.migrate("s", "B5")
    stall.run(1.0)
    assert stall.network.migrations[order.token] is None
    back = stall.network.client_processes.migrate("s", "B3")
    stall.run(1.0)
    assert stall.network.migrations[back.token] is None
    stall.network.nodes["s"].pause_reading()
    before = stall.published
    stall.run(1.0)
    assert stall.published - before > 5 * WINDOW
    assert stall.network.broker("B3")._sessions["s"].outbound.buffer.bytes > 0
    stall.network.nodes["s"].resume_reading()
    stall.run(30.0, publishing=False)
    assert stall.delivered() == list(range(stall.published))
