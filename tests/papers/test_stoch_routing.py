"""STOCH 2 and 4.2: what routing says, message by message."""

import pytest

from overweave.language.messages import Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.routing.base import Engine
from overweave.routing.identity import HierarchicalIdentity
from overweave.routing.summaries import Covering, Identical
from overweave.testing.routing import ToyNetwork, check_routing

CHANNEL, PART = parse_filter("[class,eq,'F1']"), parse_filter("[class,eq,'F1'],[price,>,5]")


class Counting(ToyNetwork):
    """Counts what brokers say to each other."""

    said = 0

    def _arrive(self, broker, message, origin):
        self.said += origin is not None
        super()._arrive(broker, message, origin)

    def hear(self, broker, message):
        """How many messages between brokers a client's word causes."""
        before = self.said
        self.say(broker, message)
        self.rest()
        return self.said - before


def network(protocol, brokers=4):
    return Counting(make_overlay("chain", brokers=brokers), PROTOCOLS[protocol].make, seed=1)


def test_a_broker_toggles_with_the_first_and_the_last_subscription_alone():
    """Section 4.2: one message up each link when a sub-tree toggles, and none else, whoever of several leaves first."""
    identity = network("identity")
    assert identity.hear("B4", Subscribe("first", CHANNEL)) == 3
    assert identity.hear("B4", Subscribe("second", CHANNEL)) == 0
    assert identity.hear("B2", Subscribe("third", CHANNEL)) == 0
    assert identity.hear("B4", Unsubscribe("first")) == 0
    assert identity.hear("B4", Unsubscribe("second")) == 2
    assert identity.hear("B2", Unsubscribe("third")) == 1


@pytest.mark.parametrize(("protocol", "links"), [("hierarchical-simple", 2), ("simple", 3)])
def test_simple_routing_tells_everything(protocol, links):
    simple = network(protocol)
    assert [simple.hear("B3", Subscribe(id, CHANNEL)) for id in "ab"] == [links, links]
    assert [simple.hear("B3", Unsubscribe(id)) for id in "ab"] == [links, links]


def test_what_is_covered_is_told_only_while_nothing_covers_it():
    covering = network("covering", brokers=2)
    assert covering.hear("B2", Subscribe("part", PART)) == 1
    assert covering.hear("B2", Subscribe("all", CHANNEL)) == 2  # the wide one comes, the narrow one goes
    assert covering.sizes()["B1"]["subscriptions"] == 1
    assert covering.hear("B2", Unsubscribe("all")) == 2
    assert covering.hear("B2", Unsubscribe("part")) == 1


def test_an_id_may_come_again_elsewhere_with_another_filter():
    """Filters are aggregated under the id of the broker, so ids of clients mean nothing to others."""
    identity = network("identity")
    identity.hear("B4", Subscribe("s", CHANNEL))
    identity.hear("B4", Subscribe("other", CHANNEL))
    identity.hear("B4", Unsubscribe("s"))
    assert identity.hear("B3", Subscribe("s", PART)) == 2


class ForgetsUncovered(Covering):
    """Does not forward what a withdrawn filter covered."""

    def remove(self, filter):
        return super().remove(filter)._replace(forwarded=[])


class WithdrawsTooEarly(Identical):
    """Withdraws a filter with its first subscription."""

    def add(self, filter):
        change = super().add(filter)
        return change._replace(withdrawn=change.forwarded)


@pytest.mark.parametrize("summary", [ForgetsUncovered, WithdrawsTooEarly])
def test_a_broken_summary_is_caught(summary):
    chain = make_overlay("chain", brokers=5)

    def make(broker, overlay, _incarnation):
        place = overlay.position(broker)
        return Engine(HierarchicalIdentity(broker, summary, overlay.ids[place - 1] if place else None))

    with pytest.raises(AssertionError):
        for seed in range(30):
            check_routing(make, chain, seed)
