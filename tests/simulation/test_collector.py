"""Observations of all brokers cost one request and one answer for each link, and say what the brokers know."""

import msgspec
import numpy as np
import pytest

from overweave.broker.modules.gather import PART_BYTES, Gather
from overweave.contract.modules import Capacity, NeighbourMessage, Started
from overweave.contract.observation import CHANGE, COLLECTOR, OBSERVE, Observation, ObservedClient
from overweave.contract.overlay_state import EpochTree, Member, OverlayVersion, Phase, first_state
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.testing import observations
from overweave.testing.observations import observe

FILTER = parse_filter("[x,>,0]")


def simulated(overlay, protocol="filter", **options):
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, **options)
    network.scheduler.run(1.0)
    return network


def random_tree(seed, brokers):
    draw = np.random.default_rng(seed)
    ids = [f"B{i}" for i in range(1, brokers + 1)]
    return Overlay(ids, [(ids[i], ids[int(draw.integers(i))]) for i in range(1, brokers)])


def answer(network, broker, kind, body=b""):
    token = network.ask(broker, COLLECTOR, kind, body)
    network.scheduler.run(network.scheduler.now_s + 6.0)
    *parts, last = network.answers[token]
    assert not last.more
    assert all(part.more and part.error is None for part in parts)
    return last.error if last.error is not None else b"".join(part.body for part in (*parts, last))


def observed(network, broker):
    return msgspec.msgpack.decode(answer(network, broker, OBSERVE), type=Observation)


def messages(network):
    traffic = [
        each for id in network.overlay.ids for each in network.broker(id).statistics().module_traffic if each.module == COLLECTOR
    ]
    assert sum(each.sent for each in traffic) == sum(each.received for each in traffic)
    return sum(each.sent for each in traffic)


@pytest.mark.parametrize("brokers", [1, 2, 7, 100])
def test_one_observation_of_a_tree_is_a_request_and_an_answer_for_each_link(brokers):
    network = simulated(random_tree(brokers, brokers))
    found = observed(network, network.overlay.ids[-1])
    assert found.brokers.keys() == set(network.overlay.ids)
    assert found.missing == ()
    assert messages(network) == 2 * (brokers - 1)


def test_brokers_of_a_general_graph_are_observed_once():
    network = simulated(make_overlay("random-graph", brokers=15, degree=4, seed=3), "destination")
    assert observed(network, "B1").brokers.keys() == set(network.overlay.ids)


def test_an_observation_says_what_a_broker_knows():
    costs = {"B2": Costs(output_bandwidth_bytes_per_s=1e6, matching_delay_base_s=1e-3)}
    network = simulated(make_overlay("chain", brokers=3), own_costs=costs)
    for client in ("reader", "gone", "idle"):
        network.add_client(client, "B2")
    network.say("reader", Advertise("reader/a", FILTER))
    network.say("reader", Subscribe("reader/1", FILTER))
    network.say("reader", Subscribe("reader/2", FILTER))
    network.say("gone", Subscribe("gone/1", FILTER))
    network.scheduler.run(2.0)
    network.say("reader", Unsubscribe("reader/2"))
    network.client_processes.crash("gone", None)
    network.scheduler.run(3.0)
    found = observed(network, "B3")
    assert found.state == first_state(network.overlay)
    at = found.brokers["B2"]
    assert at.broker == "B2"
    assert at.capacity == Capacity(1e6, 1e-3, 0.0, None)
    assert at.overlay.neighbours == {0: ("B1", "B3")}
    assert at.clients == (
        ObservedClient("gone", False, 1, 0),
        ObservedClient("idle", True, 0, 0),
        ObservedClient("reader", True, 1, 1),
    )


def test_a_broker_that_does_not_answer_is_missing():
    network = simulated(make_overlay("chain", brokers=4))
    network.crash("B3")
    found = observed(network, "B1")
    assert found.brokers.keys() == {"B1", "B2"}
    assert found.missing == ("B3",)


def test_several_requests_at_once_have_answers_of_their_own():
    network = simulated(random_tree(4, 12))
    tokens = [network.ask(broker, COLLECTOR, OBSERVE) for broker in ("B1", "B1", "B7")]
    network.scheduler.run(5.0)
    for token in tokens:
        (answer,) = network.answers[token]
        assert msgspec.msgpack.decode(answer.body, type=Observation).brokers.keys() == set(network.overlay.ids)


def test_long_answers_travel_in_parts(monkeypatch):
    """A short limit, so that the answers of a few brokers are long."""
    monkeypatch.setattr("overweave.broker.modules.gather.PART_BYTES", 300)
    network = simulated(make_overlay("chain", brokers=4))
    token = network.ask("B1", COLLECTOR, OBSERVE)
    network.scheduler.run(3.0)
    parts = network.answers[token]
    assert len(parts) > 2
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert all(len(part.body) <= 300 for part in parts)
    assert observed(network, "B1").brokers.keys() == set(network.overlay.ids)
    assert messages(network) > 2 * 2 * 3


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_answer_without_a_part_counts_as_missing(lost):
    one, two = (
        Gather(broker, bytes, lambda _: bytes(3 * PART_BYTES), lambda a, b: a + b, lambda outcome: [outcome])
        for broker in ("B1", "B2")
    )
    for gather, other in ((one, "B2"), (two, "B1")):
        list(gather.handle(Started(neighbours=(other,)), 0.0))
    request = next(effect for effect in one.ask(b"", 0.0) if hasattr(effect, "neighbour"))
    replies = list(two.handle(_received(request, "B1"), 0.0))
    assert [reply.kind for reply in replies] == ["gather-part"] * 3 + ["gather-answer"]
    del replies[lost]
    (outcome,) = [each for reply in replies for each in one.handle(_received(reply, "B2"), 0.0)]
    assert (outcome.brokers, outcome.missing) == (1, ("B2",))


def _received(sent, of):
    return NeighbourMessage(of, sent.kind, sent.body)


def test_a_change_reaches_all_brokers():
    network = simulated(make_overlay("chain", brokers=3))
    state = msgspec.structs.replace(first_state(network.overlay), version=OverlayVersion(1, Phase.TRIMMED), change="a plan")
    assert answer(network, "B2", CHANGE, msgspec.msgpack.encode(state)) == b""
    found = observed(network, "B1")
    assert found.state == state
    assert {each.overlay.change for each in found.brokers.values()} == {"a plan"}


TRIANGLE = EpochTree(0, ("B1", "B2", "B3"), (("B1", "B2"), ("B2", "B3"), ("B1", "B3")))


def changed(**fields):
    state = first_state(make_overlay("chain", brokers=3))
    return msgspec.msgpack.encode(msgspec.structs.replace(state, version=OverlayVersion(2, Phase.PREPARED), **fields))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"nonsense", "change: expected a state of the overlay: "),
        (changed(members=(Member("B1"),)), "change: trees: broker 'B2' of epoch 0: expected one of the members"),
        (changed(current=7), "change: current: expected one of the open epochs, 0, got 7"),
        (changed(trees=()), "change: trees: expected one or two epochs in ascending order, got none"),
        (changed(trees=(EpochTree(0, ("B1", "B2"), ()),)), "change: trees: epoch 0: expected a connected overlay"),
        (changed(trees=(EpochTree(0, ("B1",), (("B1", "B9"),)),)), "change: trees: epoch 0: link 'B1'-'B9': "),
        (changed(trees=(TRIANGLE,)), "change: trees: epoch 0: expected an overlay without cycles"),
        (changed(members=(Member("B1"),) * 2), "change: members: expected each broker once"),
    ],
)
def test_a_change_must_describe_an_overlay(body, error):
    network = simulated(make_overlay("chain", brokers=3))
    assert answer(network, "B1", CHANGE, body).startswith(error)


def test_cycles_are_for_protocols_that_change_on_them():
    body = changed(trees=(TRIANGLE,))
    assert answer(simulated(make_overlay("chain", brokers=3), "destination"), "B1", CHANGE, body) == b""
    error = answer(simulated(make_overlay("chain", brokers=3), "filter-general"), "B1", CHANGE, body)
    assert error == "change: the overlay cannot change under filter-general"


def test_an_old_change_is_rejected():
    network = simulated(make_overlay("chain", brokers=3))
    present = msgspec.msgpack.encode(first_state(network.overlay))
    assert answer(network, "B1", CHANGE, present) == "change: version: expected one above 0.4, got 0.4"


def test_requests_of_an_unknown_kind_are_rejected():
    network = simulated(make_overlay("chain", brokers=2))
    assert "expected one of the module 'collector': observe, change" in answer(network, "B1", "repaint")


def test_the_command_that_counts_messages():
    found = observe(100)
    assert (found.observed, found.missing, found.messages, found.parts) == (100, 0, 198, 0)


@pytest.mark.parametrize(("changes", "status"), [({}, 0), ({"messages": 79}, 1), ({"observed": 39}, 1), ({"parts": 1}, 1)])
def test_the_command_fails_on_any_other_number_of_messages(changes, status, monkeypatch):
    found = msgspec.structs.replace(observe(40), **changes)
    monkeypatch.setattr(observations, "observe", lambda _: found)
    assert observations.main(["--brokers", "40"]) == status


def test_an_observation_during_a_change_travels_in_the_tree_of_the_asked_broker():
    """Two trees are open: 2(n - 1) messages all the same, whichever of them is current."""
    network = simulated(make_overlay("chain", brokers=6))
    ids, first = network.overlay.ids, first_state(network.overlay)
    star = EpochTree(1, ids, tuple((ids[0], id) for id in ids[1:]))
    states = [
        msgspec.structs.replace(first, version=OverlayVersion(1, phase), trees=trees, current=current)
        for phase, trees, current in [
            (Phase.PREPARED, (*first.trees, star), 0),
            (Phase.USED, (*first.trees, star), 1),
            (Phase.CLOSED, (star,), 1),
        ]
    ]
    for state in states:
        assert answer(network, "B3", CHANGE, msgspec.msgpack.encode(state)) == b""
        before = messages(network)
        found = observed(network, "B5")
        assert (found.state, found.brokers.keys(), found.missing) == (state, set(ids), ())
        assert messages(network) - before == 2 * (len(ids) - 1)
        assert {each.overlay.current for each in found.brokers.values()} == {state.current}
    assert found.brokers["B1"].overlay.neighbours == {1: ids[1:]}
