"""A convergecast reaches every broker once, and is there in time whoever does not answer."""

import numpy as np
import pytest

from overweave.broker.modules.gather import Gather
from overweave.contract.effects import SetTimer
from overweave.contract.modules import Module, Started
from overweave.contract.stimuli import TimerFired
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


class Asker(Module):
    """Asks at times of a schedule for the brokers behind it; each answers with its id and a number."""

    def __init__(self, broker, schedule=(), silent=False, **options):
        self.broker, self.schedule, self.silent = broker, schedule, silent
        self.outcomes = []
        self.gather = Gather(broker, dict[str, int], self.answer, lambda a, b: merged(a, b), self.gathered, **options)

    def answer(self, question):
        return {self.broker: len(question)}

    def gathered(self, outcome):
        self.outcomes.append((self.now_s, outcome))
        return ()

    def handle(self, stimulus, now_s):
        self.now_s = now_s
        if isinstance(stimulus, Started):
            for number, (at_s, _) in enumerate(self.schedule):
                yield SetTimer(f"ask {number}", at_s)
        if isinstance(stimulus, TimerFired) and stimulus.name.startswith("ask "):
            yield from self.gather.ask(b"why", now_s, **self.schedule[int(stimulus.name[4:])][1])
        elif not self.silent:
            yield from self.gather.handle(stimulus, now_s)


def merged(one, other):
    assert not one.keys() & other.keys(), "each broker once"
    return {**one, **other}


def run(overlay, schedules, silent=(), absent=(), protocol="filter", before=lambda _: None, until_s=20.0, **options):
    made = {}

    def modules(at):
        if at.broker in absent:
            return {}
        made[at.broker] = Asker(at.broker, schedules.get(at.broker, ()), at.broker in silent, **options)
        return {"asker": made[at.broker]}

    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, make_modules=modules)
    before(network)
    network.scheduler.run(until_s)
    assert all(asker.gather.open_count == 0 for asker in made.values())
    return made, network


def random_tree(seed, brokers):
    draw = np.random.default_rng(seed)
    ids = [f"B{i}" for i in range(1, brokers + 1)]
    return Overlay(ids, [(ids[i], ids[int(draw.integers(i))]) for i in range(1, brokers)])


def distances(overlay, start, without=()):
    """A dumb search: how far each broker is from the first, around some."""
    found, queue = {start: 0}, [start]
    for at in queue:
        for near in overlay.neighbours(at):
            if near not in found and near not in without:
                found[near] = found[at] + 1
                queue.append(near)
    return found


@pytest.mark.parametrize("brokers", range(1, 31))
def test_all_brokers_of_a_tree_answer_once(brokers):
    overlay = random_tree(brokers, brokers)
    start = overlay.ids[-1]
    made, network = run(overlay, {start: [(1.0, {})]})
    ((at_s, outcome),) = made[start].outcomes
    assert outcome.value == dict.fromkeys(overlay.ids, 3)
    assert (outcome.brokers, outcome.missing, outcome.is_complete) == (brokers, (), True)
    assert at_s < 1.1
    traffic = [each for id in overlay.ids for each in network.broker(id).statistics().module_traffic]
    assert sum(each.sent for each in traffic) == sum(each.received for each in traffic) == 2 * (brokers - 1)


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_each_broker_of_a_graph_is_counted_once(seed, urgent):
    overlay = make_overlay("random-graph", brokers=15, degree=4, seed=seed)
    made, _ = run(overlay, {"B1": [(1.0, {})], "B9": [(1.0, {})]}, protocol="destination", urgent=urgent)
    for broker in ("B1", "B9"):
        ((_, outcome),) = made[broker].outcomes
        assert outcome.value.keys() == set(overlay.ids)
        assert outcome.is_complete


@pytest.mark.parametrize("hops_max", [0, 1, 2, 3])
def test_a_request_ends_after_some_hops(hops_max):
    overlay = random_tree(4, 20)
    made, _ = run(overlay, {"B3": [(1.0, {"hops_max": hops_max})]})
    ((_, outcome),) = made["B3"].outcomes
    assert outcome.value.keys() == {id for id, hops in distances(overlay, "B3").items() if hops <= hops_max}
    assert outcome.is_complete


def test_a_request_goes_to_chosen_neighbours_only():
    overlay = make_overlay("star", brokers=5)
    hub = max(overlay.ids, key=lambda broker: len(overlay.neighbours(broker)))
    near = overlay.neighbours(hub)[:2]
    made, _ = run(overlay, {hub: [(1.0, {"neighbours": near})]})
    assert made[hub].outcomes[0][1].value.keys() == {hub, *near}


def test_every_broker_may_select_where_a_request_goes():
    chain = make_overlay("chain", brokers=5)
    made, _ = run(chain, {"B1": [(1.0, {})]}, select=lambda _, neighbours: [each for each in neighbours if each != "B4"])
    assert made["B1"].outcomes[0][1].value.keys() == {"B1", "B2", "B3"}


@pytest.mark.parametrize("how", ["dead", "silent", "absent"])
@pytest.mark.parametrize("seed", range(5))
def test_a_partial_answer_is_there_in_time(seed, how):
    overlay = random_tree(seed, 20)
    start, lost = "B1", f"B{2 + seed}"
    reached = distances(overlay, start, without=(lost,))
    (parent,) = (near for near in overlay.neighbours(lost) if near in reached)
    schedule = {start: [(1.0, {"deadline_s": 3.0})]}
    if how == "dead":
        made, _ = run(overlay, schedule, before=lambda network: network.scheduler.at(0.5, lambda _: network.crash(lost)))
    else:
        made, _ = run(overlay, schedule, **{how: (lost,)})
    ((at_s, outcome),) = made[start].outcomes
    assert outcome.value.keys() == reached.keys()
    assert outcome.missing == (lost,)
    assert not outcome.is_complete
    assert 1.0 < at_s <= 4.0, parent


def test_brokers_out_of_reach_of_the_deadline_are_missing():
    made, _ = run(make_overlay("chain", brokers=10), {"B1": [(1.0, {"deadline_s": 0.45, "hop_s": 0.1})]})
    ((at_s, outcome),) = made["B1"].outcomes
    assert outcome.value.keys() == {"B1", "B2", "B3", "B4", "B5"}
    assert outcome.missing == ("B6",)
    assert at_s <= 1.45


def test_concurrent_requests_do_not_disturb_each_other():
    overlay = random_tree(7, 25)
    made, _ = run(overlay, {id: [(1.0, {}), (1.0, {}), (1.001, {"hops_max": 1})] for id in overlay.ids})
    for id in overlay.ids:
        first, second, near = (outcome for _, outcome in sorted(made[id].outcomes, key=lambda each: each[1].id.number))
        assert first.value.keys() == second.value.keys() == set(overlay.ids)
        assert near.value.keys() == {id, *overlay.neighbours(id)}
        assert first.id != second.id


def test_a_neighbour_that_leaves_is_not_waited_for():
    """B2 has lost its link to a broker that would never answer."""
    overlay = make_overlay("chain", brokers=3)

    def before(network):
        network.scheduler.at(2.0, lambda _: network.close_link(("B2", "B3")))

    made, _ = run(overlay, {"B1": [(1.0, {"deadline_s": 10.0})]}, silent=("B3",), before=before)
    ((at_s, outcome),) = made["B1"].outcomes
    assert outcome.value.keys() == {"B1", "B2"}
    assert outcome.missing == ("B3",)
    assert at_s < 3.0


def test_answers_arrive_despite_lost_frames():
    overlay = random_tree(3, 10)
    made = {}

    def modules(at):
        made[at.broker] = Asker(at.broker, [(1.0, {"deadline_s": 20.0, "hop_s": 0.5})] if at.broker == "B1" else ())
        return {"asker": made[at.broker]}

    faults = Faults(loss=0.2, duplication=0.2)
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, faults=faults, make_modules=modules)
    network.scheduler.run(30.0)
    assert made["B1"].outcomes[0][1].value.keys() == set(overlay.ids)


def test_a_level_needs_time():
    asker = Asker("B1")
    with pytest.raises(InvalidInput, match="hop_s"):
        list(asker.gather.ask(b"", 0.0, deadline_s=1.0, hop_s=2.0))
