"""The difference against brute force, and loads of every step against publications followed one by one."""

import random

import msgspec
import pytest
from fake_network import answer, stable
from test_coordinator import random_tree
from test_target import observed, plan_of

from overweave.contract.observation import Observation, ObservedClient
from overweave.errors import PlanningError
from overweave.overlay.graph import Overlay
from overweave.planning.plan import BrokerLoad
from overweave.reweave.difference import Peak, check_loads, difference_of
from overweave.reweave.target import Target, target_of


@pytest.mark.parametrize("seed", range(20))
def test_the_difference_is_what_differs(seed):
    draw = random.Random(seed)
    plan = plan_of(seed)
    observation = observed(plan, {client: draw.choice(list(plan.network.brokers)) for client in plan.clients})
    target = target_of(plan, observation)
    found = difference_of(target, observation, rate_hz=10.0)
    old = {frozenset(link) for link in observation.state.trees[0].links}
    new = {frozenset(link) for link in target.links}
    assert {frozenset(link) for link in found.links_opened} == new - old
    assert {frozenset(link) for link in found.links_closed} == old - new
    assert set(found.stopped) == set(observation.brokers) - set(target.brokers)
    places = {each.name: id for id, broker in observation.brokers.items() for each in broker.clients}
    for move in found.moves:
        assert places[move.client] == move.source != move.to
        places[move.client] = move.to
    assert places == {client: target.clients[client] for client in places}
    assert found.duration_s >= len(found.moves) / 10.0
    assert found.steps[0].step == "now" or plan.before is None


def test_the_prediction_of_each_step_follows_the_tree_and_the_places():
    """A model that counts clients: the leaf forwards until it is empty."""
    state = stable(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
    clients = {"a": "B1", "b": "B3", "c": "B3"}
    brokers = {
        id: answer(id, state, [ObservedClient(c, True, 1, 0) for c, at in clients.items() if at == id])
        for id in ("B1", "B2", "B3")
    }
    target = Target(change="X", brokers=("B1", "B2"), links=(("B1", "B2"),), clients={"a": "B2", "b": "B1", "c": "B1"})
    seen = []

    class Model:
        def load(self, brokers, links, places):
            seen.append((sorted(brokers), sorted(links), dict(places)))
            return {id: BrokerLoad(0.0, 0.0, 0.0, 0.4 * sum(at == id for at in places.values())) for id in brokers}

        def peaks(self, brokers, links, places, moves):
            places = dict(places)
            for done, move in enumerate(moves, start=1):
                places[move.client] = move.to
                load = self.load(brokers, links, places)
                yield Peak(done, *max(((id, load[id].output_utilisation) for id in brokers), key=lambda each: each[1]))

    found = difference_of(target, Observation(state, brokers), 0.25, Model())
    assert [(each.step, each.broker, round(each.utilisation, 1)) for each in found.steps] == [
        ("now", "B3", 0.8), ("new tree", "B3", 0.8), ("1 of 3 moves", "B1", 0.8),
        ("2 of 3 moves", "B1", 1.2), ("3 of 3 moves", "B1", 0.8),
        ("end", "B1", 0.8),
    ]  # fmt: skip
    assert seen[0][1] == [("B1", "B2"), ("B2", "B3")]
    assert seen[1][1] == [("B1", "B2"), ("B1", "B3")]
    assert seen[-1][0] == ["B1", "B2"]
    with pytest.raises(PlanningError, match=r"step '2 of 3 moves': broker 'B1': .* predicted 120.0%"):
        check_loads(found)
    # In one step, the highest prefix counts: it is not at its end.
    found = difference_of(target, Observation(state, brokers), 10.0, Model())
    assert [each.step for each in found.steps] == ["now", "new tree", "2 of 3 moves", "end"]


def test_the_host_of_a_leaf_forwards_to_it_and_an_overload_at_the_end_is_rejected_by_name():
    state = stable(["B1", "B2"], [("B1", "B2")])
    brokers = {id: answer(id, state, [ObservedClient(id.lower(), True, 1, 0)]) for id in ("B1", "B2")}
    load = BrokerLoad(input_hz=10.0, output_bytes_per_s=900.0, input_utilisation=0.1, output_utilisation=0.9)
    target = Target(
        change="X", brokers=("B1",), links=(), clients={"b1": "B1", "b2": "B1"}, load={"B1": load},
        load_before={"B1": load, "B2": msgspec.structs.replace(load, output_utilisation=0.5)},
    )  # fmt: skip
    found = difference_of(target, Observation(state, brokers), 10.0)
    assert [(each.step, each.broker, each.utilisation) for each in found.steps] == [
        ("now", "B1", 0.9), ("while links and clients change (upper bound)", "B1", 1.8), ("end", "B1", 0.9),
    ]  # fmt: skip
    check_loads(found)  # a bound is no prediction
    heavy = msgspec.structs.replace(target, load={"B1": msgspec.structs.replace(load, output_utilisation=1.2)})
    with pytest.raises(PlanningError, match=r"step 'end': broker 'B1': .*, estimated 120.0%"):
        check_loads(difference_of(heavy, Observation(state, brokers), 10.0))


def test_random_trees_are_trees():
    for seed in range(20):
        brokers = [f"B{i}" for i in range(8)]
        links = random_tree(random.Random(seed), brokers)
        assert len(links) == 7
        assert Overlay(brokers, links).is_tree()
