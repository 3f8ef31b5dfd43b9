"""The target of a plan on an observed network: names, destinations, and the check of the network it was made for."""

import itertools
import random
from collections import Counter

import msgspec
import pytest
from fake_network import answer, stable

from overweave.cli.apply_text import difference_text
from overweave.contract.modules import Capacity
from overweave.contract.observation import Observation, ObservedClient
from overweave.errors import PlanningError
from overweave.planning.evidence import evidence_of
from overweave.planning.make import make_plan
from overweave.planning.planned_for import planned_for
from overweave.reweave import states
from overweave.reweave.coordinator import Done, StopBroker, next_step
from overweave.reweave.difference import difference_of
from overweave.reweave.situation import Situation
from overweave.reweave.target import Target, check_current, check_tree, destinations, target_of
from overweave.testing.planning import random_problem


def plan_of(seed, brokers=6):
    problem = random_problem(seed, brokers=brokers, clients=12, fill=0.3)
    plan = make_plan(problem, "cram-iou", seed=seed, evidence=evidence_of(problem))
    return msgspec.structs.replace(plan, network=planned_for(problem))


def observed(plan, places, brokers=None, capacity=None, links=None, change=""):
    brokers = brokers or list(plan.network.brokers)
    state = stable(brokers, links or list(itertools.pairwise(brokers)), change=change)
    found = {
        id: answer(
            id, state, [ObservedClient(c, True, 1, 0) for c, home in sorted(places.items()) if home == id], capacity=capacity
        )
        for id in brokers
    }
    return Observation(state, found)


@pytest.mark.parametrize("seed", range(12))
def test_names_are_those_with_the_fewest_moves(seed):
    """Against all permutations of the brokers with equal capacity."""
    draw = random.Random(seed)
    plan = plan_of(seed, brokers=5)
    wanted = {**plan.publishers, **plan.clients}
    ids = list(plan.network.brokers)
    observation = observed(plan, {client: draw.choice(ids) for client in wanted})
    places = {each.name: id for id, broker in observation.brokers.items() for each in broker.clients}
    target = target_of(plan, observation)

    def moves(names):
        return sum(names[id] != places[client] for client, id in wanted.items())

    least = min(
        moves(dict(zip(plan.brokers, some, strict=True)))
        for some in itertools.permutations(ids, len(plan.brokers))
        if all(plan.network.brokers[one] == plan.network.brokers[other] for one, other in zip(plan.brokers, some, strict=True))
    )
    assert sum(target.clients[client] != places[client] for client in wanted) == least
    assert Counter(Counter(target.clients.values()).values()) == Counter(Counter(wanted.values()).values())
    # A change in progress keeps its names, wherever clients are by now.
    state = states.prepared(observation.state, target, {})
    later = observed(plan, {client: draw.choice(ids) for client in wanted})
    assert target_of(plan, msgspec.structs.replace(later, state=state)) == target
    done = msgspec.structs.replace(
        state, version=state.version._replace(phase=states.Phase.TRIMMED), trees=state.trees[-1:], current=1
    )
    if not set(states.leaving(state, target)):
        assert target_of(plan, msgspec.structs.replace(later, state=done)) == target


def test_unknown_clients_stay_or_go_to_the_broker_with_most_room():
    plan = plan_of(1)
    gone = next(id for id in plan.network.brokers if id not in plan.brokers)
    kept = plan.brokers[0]
    observation = observed(plan, {"late": kept, "other": gone, **plan.clients})
    target = target_of(plan, observation)
    found = destinations(target, observation)
    assert found["late", kept] == kept
    assert found["other", gone] == max(target.brokers, key=target.headroom)
    # Many of them spread.
    many = observed(plan, {**{f"late{i}": gone for i in range(200)}, **plan.clients})
    if len(target.brokers) > 1:
        assert len({to for (client, _), to in destinations(target, many).items() if client.startswith("late")}) > 1


def with_guest(plan, observation):
    """The plan and the observation with a broker that is not in the tree; the plan does not use it."""
    capacity = next(iter(plan.network.brokers.values()))
    network = msgspec.structs.replace(plan.network, brokers={**plan.network.brokers, "G": capacity})
    guest = answer("G", observation.state, neighbours={observation.state.current: ("B1",)})
    return (
        msgspec.structs.replace(plan, network=network),
        msgspec.structs.replace(observation, brokers={**observation.brokers, "G": guest}),
    )


def test_a_guest_is_neither_stopped_nor_listed():
    plan = plan_of(1)
    plan, observation = with_guest(plan, observed(plan, {}))
    target = target_of(plan, observation)
    assert "G" not in target.before
    assert "G" not in difference_of(target, observation, 50.0).stopped
    # The tree is that of the plan already: the guest is all that could be stopped.
    state = stable(target.brokers, target.links)
    found = {id: answer(id, state) for id in (*target.brokers, "G")}
    done = Situation(observation=Observation(state, found), running=frozenset(found), file_is_current=True)
    assert next_step(target_of(plan, done.observation), done) == Done()
    assert next_step(msgspec.structs.replace(target, before=(*target.before, "G")), done) == StopBroker("G")


def test_a_broker_that_has_left_and_still_runs_is_listed_and_stopped():
    plan = plan_of(1)
    gone = next(id for id in plan.network.brokers if id not in plan.brokers)
    target = target_of(plan, observed(plan, {}))
    state = stable(target.brokers, target.links, change=target.change)
    found = Observation(state, {id: answer(id, state) for id in (*target.brokers, gone)})
    target = target_of(plan, found)
    difference = difference_of(target, found, 50.0)
    assert difference.stopped == (gone,)
    assert not difference.is_empty
    assert f"{len(target.brokers)} now, {len(target.brokers)} afterwards, 1 stop ({gone})" in difference_text(
        difference, found, 50.0
    )
    running = frozenset(found.brokers)
    assert next_step(target, Situation(observation=found, running=running, file_is_current=True)) == StopBroker(gone)


def test_a_guest_that_the_plan_uses_is_counted():
    plan = plan_of(1)
    _, observation = with_guest(plan, observed(plan, {}))
    ids = tuple(plan.network.brokers)
    target = Target(change="X", brokers=(*ids, "G"), links=(*itertools.pairwise(ids), ("B1", "G")), clients={})
    found = difference_of(target, observation, 50.0)
    assert (found.started, found.stopped) == ((), ())
    assert "6 now, 7 afterwards\n" in difference_text(found, observation, 50.0)


def test_differences_from_the_network_of_the_plan_are_named():
    plan = plan_of(2)
    ids = list(plan.network.brokers)
    links = list(plan.network.links) or None
    check_current(plan, observed(plan, {}, links=links), ())
    with pytest.raises(PlanningError, match="made for another network: broker 'X' is new"):
        check_current(plan, observed(plan, {}, brokers=[*ids, "X"]), ())
    with pytest.raises(PlanningError, match=f"broker '{ids[-1]}' is not in it"):
        check_current(plan, observed(plan, {}, brokers=ids[:-1]), ())
    check_current(plan, observed(plan, {}, brokers=ids[:-1]), available=ids[-1:])
    with pytest.raises(PlanningError, match=r"output_bandwidth_bytes_per_s was .* and is 5"):
        check_current(plan, observed(plan, {}, capacity=Capacity(output_bandwidth_bytes_per_s=5.0)), ())
    with pytest.raises(PlanningError, match="plan again"):
        check_current(msgspec.structs.replace(plan, network=None), observed(plan, {}), ())
    linked = msgspec.structs.replace(plan, network=msgspec.structs.replace(plan.network, links=((ids[0], ids[2]),)))
    with pytest.raises(PlanningError, match=f"link {ids[0]}-{ids[2]} is not in it"):
        check_current(linked, observed(plan, {}), ())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"links": (("B1", "B2"), ("B2", "B3"), ("B1", "B3"))}, "plan: links: expected a tree"),
        ({"links": (("B1", "B2"),)}, "plan: links: expected a tree"),
        ({"links": (("B1", "B9"), ("B2", "B3"))}, "plan: links: link 'B1'-'B9'"),
        ({"links": (("B1", "B1"), ("B2", "B3"))}, "plan: links: "),
        ({"brokers": ("B1", "B2", "B3", "B3")}, "plan: links: "),
        ({"brokers": (), "links": (), "clients": {}, "publishers": {}}, "plan: links: expected a tree"),
        ({"clients": {"c": "B9"}}, "plan: clients: broker 'B9': expected one of the plan's brokers"),
    ],
)
def test_a_plan_that_was_edited_must_still_be_a_tree_with_all_clients(fields, error):
    plan = msgspec.structs.replace(
        plan_of(1), brokers=("B1", "B2", "B3"), links=(("B1", "B2"), ("B2", "B3")), clients={"c": "B1"}, publishers={"p": "B3"}
    )
    check_tree(plan)
    with pytest.raises(PlanningError) as raised:
        check_tree(msgspec.structs.replace(plan, **fields))
    assert str(raised.value).startswith(error)
