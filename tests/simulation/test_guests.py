"""Guests that are started again at another contact: nothing waits for the former one, and registrations stay in force."""

import pytest

from overweave.broker.registry import OVERLAY_KEY
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.overlay_state import OverlayRecord
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

CHAIN = Overlay(["C1", "C2", "C3"], [("C1", "C2"), ("C2", "C3")])
ANY = parse_filter("[x,>=,0]")
#: The protocols on trees, and one that routes around missing links.
ALL = ["flooding", "simple", "hierarchical-simple", "identity", "covering-peer", "identity-advertised", "filter", "destination"]


class Network(SimulatedNetwork):
    """A chain of brokers and the guest G of the first one; each broker but the first has a client that publishes and receives."""

    def __init__(self, protocol: str) -> None:
        self.received: list[tuple[str, int, str]] = []
        config = BrokerConfig(SessionConfig(window=64))
        costs = Costs(link_delay_s=0.01)
        super().__init__(CHAIN, PROTOCOLS[protocol].make, 1, None, costs, config, on_delivery=self._on_delivery)
        self.join_broker("G", "C1")
        self.run(1.0)
        for broker, client in (("C2", "c2"), ("C3", "c3"), ("G", "g")):
            self.add_client(client, broker)
            self.say(client, Advertise(f"{client}/a", ANY))
            self.say(client, Subscribe(f"{client}/0", ANY))
        self.run(1.0)

    def _on_delivery(self, parts) -> None:
        for subscription, batch in parts:
            self.received += [(publisher, sequence, subscription) for publisher, _, sequence in batch.identities()]

    def run(self, for_s: float) -> None:
        """Let some time pass."""
        self.scheduler.run(self.scheduler.now_s + for_s)

    def start_again(self, contact: str, *, journal: bool) -> None:
        """Start the guest at a contact, with its journal or without, and let its client reconnect."""
        if not journal:
            self._journals._durable.pop("G", None)
            self.links.discard(("G", "C1"))  # nobody tells the former contact
            self._table._guests.discard(("G", "C1"))
            self.client("g").renew_epoch("G")
        self.join_broker("G", contact)
        self._table.connect(("G", "g"))
        self.run(5.0)

    def reached(self, publishers: tuple[str, ...] = ("c2", "c3", "g")) -> list[tuple[str, str]]:
        """What each publishes now: the publishers and the subscriptions that it reaches within some seconds."""
        self.received.clear()
        for client in publishers:
            self.publish(client, Publication({"x": 1}))
        self.run(5.0)
        return sorted((publisher, subscription) for publisher, _, subscription in self.received)


def expected(clients: tuple[str, ...]) -> list[tuple[str, str]]:
    """All publications reach all subscriptions, once."""
    return sorted((publisher, f"{client}/0") for publisher in clients for client in clients)


@pytest.mark.parametrize("protocol", ALL)
def test_publications_wait_for_no_former_contact_of_a_guest(protocol):
    """The contact is gone, and the guest has its journal, where that is its neighbour."""
    network = Network(protocol)
    assert network.reached() == expected(("c2", "c3", "g"))
    for broker in ("C1", "G"):
        network.crash(broker)
    network.run(1.0)
    network.start_again("C2", journal=True)
    guest = network.broker("G")
    assert (guest.overlay_record().contact, set(guest.neighbour_kinds())) == ("C2", {"C2"})
    assert not network.broker("C2")._context.sync.unsynced
    found = network.reached(("c2", "c3"))
    assert [each for each in found if each[1] != "g/0"] == expected(("c2", "c3"))
    for broker in network.running():
        network.broker(broker).validate()


@pytest.mark.parametrize("protocol", ["simple", "hierarchical-simple", "covering", "filter", "destination"])
def test_a_guest_of_a_guest_publishes_and_receives(protocol):
    network = Network(protocol)
    network.join_broker("H", "G")
    network.run(1.0)
    network.add_client("h", "H")
    network.say("h", Advertise("h/a", ANY))
    network.say("h", Subscribe("h/0", ANY))
    network.run(1.0)
    clients = ("c2", "c3", "g", "h")
    assert network.reached(clients) == expected(clients)
    assert network.broker("G").overlay_record().guests == ("H",)


@pytest.mark.parametrize("protocol", ["filter", "destination"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_guest_removes_its_own_guest_that_does_not_return_but_not_its_contact(protocol, restarted):
    network = Network(protocol)
    network.join_broker("H", "G")
    network.run(1.0)
    network.add_client("h", "H")
    network.say("h", Subscribe("h/0", ANY))
    network.run(1.0)
    network.crash("H")
    if restarted:
        network.crash("G", 0.5)
    network.crash("C1", 40.0)
    network.run(20.0)
    assert network.broker("G").overlay_record().guests == ("H",), "it may return"
    network.run(25.0)
    record = network.broker("G").overlay_record()
    assert (record.guests, record.contact) == ((), "C1")
    assert network.reached() == expected(("c2", "c3", "g"))
    network.run(10.0)
    assert not network.client("c3").unsettled_rows()
    for broker in network.running():
        network.broker(broker).validate()


def test_a_journal_of_an_earlier_version_has_the_contact_among_the_guests():
    network = Network("filter")
    network.join_broker("H", "G")
    network.run(1.0)
    for broker, guests in (("C1", ("G",)), ("G", ("C1", "H"))):
        record = network.broker(broker).overlay_record()
        network.crash(broker)
        network._journals._durable[broker][OVERLAY_KEY] = OverlayRecord(record.state, guests)
        network._supervisor.restart(broker)
        network.run(1.0)
        assert network.broker(broker).overlay_record() == record
    assert network.reached() == expected(("c2", "c3", "g"))
