"""When a plan is replaced: not by chance, soon after the traffic changed, and only if that pays or has to be."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from rounds import BITS, Quotes

from overweave.errors import DoesNotFit
from overweave.planning.evidence_change import DEVIATIONS, deliveries_deviation, evidence_change, observe
from overweave.planning.kept_plan import anchored, kept, moves_between
from overweave.planning.make import make_plan
from overweave.planning.replan import Current, Thresholds, replan
from overweave.planning.validation import validate_plan
from overweave.testing.planning import random_problem


class Maker:
    """Makes plans, and counts them."""

    def __init__(self):
        self.count = 0

    def __call__(self, problem):
        self.count += 1
        return make_plan(problem)


def with_goals(problem, **goals):
    return replace(problem, goals=msgspec.structs.replace(problem.goals, **goals))


@pytest.mark.parametrize("exchanges", [0, 1, 3])
def test_nothing_happens_in_100_rounds_of_the_same_traffic_and_two_rounds_after_it_changed_something_does(exchanges):
    quotes, make, current = Quotes(7, exchanges=exchanges), Maker(), None
    rounds = []
    for _ in range(101):
        problem = quotes.problem()
        decision, current = replan(current, problem, Thresholds(), make)
        rounds.append(decision)
    assert [each.action for each in rounds] == ["first"] + 100 * ["kept"]
    assert make.count == 1
    assert max(each.change for each in rounds[1:]) < 0.05
    assert len({observe(quotes.problem()).ones.tobytes() for _ in range(3)}) == 3  # bits differ although the traffic does not
    quotes.turn()
    before, problem = current.plan, quotes.problem()
    decision, current = replan(current, problem, Thresholds(), make)
    if decision.action == "kept":
        problem = quotes.problem()
        decision, current = replan(current, problem, Thresholds(), make)
    assert decision.action == "replaced"
    assert decision.change > 0.1
    validate_plan(current.plan, problem)
    assert (decision.moves, decision.standing.brokers) == (moves_between(before, current.plan)[0], len(current.plan.brokers))
    assert decision.pending_brokers == 16 - len(current.plan.brokers)
    for _ in range(10):
        decision, current = replan(current, quotes.problem(), Thresholds(), make)
        assert decision.action == "kept"


def dumb_change(before, now):
    """The same by dictionaries, a pair and a publication at a time."""

    def told(problem):
        pairs, totals = {}, {}
        for u, client in enumerate(problem.units.ids):
            for row in problem.units.rows[problem.units.row_start[u] : problem.units.row_start[u + 1]].tolist():
                p = int(problem.vectors.publisher[row])
                id, bit = problem.publishers.ids[p], problem.publishers.rate_hz[p] / problem.publishers.window[p]
                word = sum(int(word) << (64 * i) for i, word in enumerate(problem.vectors.words[row]))
                pairs[client, id] = (word.bit_count(), word.bit_count(), bit)
                totals.setdefault(id, []).append(word)
        sums = {}
        for id, words in totals.items():
            p = problem.publishers.ids.index(id)
            wanted = [sum(word >> bit & 1 for word in words) for bit in range(64 * problem.vectors.words.shape[1])]
            bit = problem.publishers.rate_hz[p] / problem.publishers.window[p]
            sums[id] = (sum(wanted), sum(each * each for each in wanted), bit)
        rates = dict(zip(problem.publishers.ids, problem.publishers.rate_hz / problem.publishers.window, strict=True))
        return pairs, sums, rates

    (pairs, sums, rates), (pairs_now, sums_now, rates_now) = told(before), told(now)
    found = []
    for old, new in ((pairs, pairs_now), (sums, sums_now)):
        up = down = 0.0
        for key in old.keys() | new.keys():
            id = key if isinstance(key, str) else key[1]
            a, b = old.get(key, (0, 0, rates.get(id, 0.0))), new.get(key, (0, 0, rates_now.get(id, 0.0)))
            difference = b[0] * b[2] - a[0] * a[2]
            beyond = abs(difference) - DEVIATIONS * ((a[1] + 1) * a[2] ** 2 + (b[1] + 1) * b[2] ** 2) ** 0.5
            up += max(beyond, 0) if difference > 0 else 0
            down += max(beyond, 0) if difference < 0 else 0
        most = max(sum(count * bit for count, _, bit in each.values()) for each in (old, new))
        found.append(max(up, down) / most)
    return max(found)


def test_change_is_what_pair_by_pair_counting_says():
    seen = []
    for seed in range(20):
        kind = {"clients": 12, "brokers": 4, "publishers": 3, "bits": 128}
        before, now = random_problem(seed, **kind), random_problem(seed + 1, **kind)
        seen.append(evidence_change(observe(before), observe(now)))
        assert seen[-1] == pytest.approx(dumb_change(before, now), rel=1e-9), seed
        assert evidence_change(observe(before), observe(before)) == 0
    assert max(seen) > 0.2


def test_the_deviation_of_a_broker_is_that_of_its_rounds():
    quotes = Quotes(3, exchanges=1)
    some = np.arange(40)
    output, told = [], []
    for _ in range(150):
        problem = quotes.problem()
        # What bits say; the chance of a rate, which is that of so many publications, comes on top.
        output.append(problem.units.output_bytes_per_s[some].sum() / problem.publishers.bytes_per_s[0])
        told.append(deliveries_deviation(problem, some))
    both = (np.var(output) / np.mean(output) ** 2 + 1 / BITS) ** 0.5
    assert both == pytest.approx(np.mean(told), rel=0.1)


def test_a_plan_is_kept_for_a_gain_that_does_not_pay_and_replaced_for_one_that_does():
    quotes = Quotes(5, exchanges=3)
    first = make_plan(quotes.problem())
    problem = quotes.problem()
    # A plan that is worse than it has to be: two more brokers, each with a client.
    idle = [id for id in problem.pool.ids if id not in first.brokers][:2]
    clients = {**first.clients, "c000": idle[0], "c001": idle[1]}
    load = {**first.load, **dict.fromkeys(idle, next(iter(first.load.values())))}
    links = (*first.links, *((first.brokers[0], id) for id in idle))
    brokers = tuple(id for id in problem.pool.ids if id in {*first.brokers, *idle})
    worse = msgspec.structs.replace(first, clients=clients, load=load, links=links, brokers=brokers)
    few, dear = Thresholds(gain=0.05, move_price=0.1), Thresholds(gain=0.05, move_price=1.0)
    decision, current = replan(Current(worse), problem, few, make_plan)
    assert decision.action == "replaced"
    assert decision.saving > decision.needed == few.needed(moves_between(worse, current.plan)[1])
    decision, current = replan(Current(worse), problem, dear, make_plan)
    assert (decision.action, current.plan) == ("kept", worse)
    assert 0 < decision.saving < decision.needed
    assert "does not pay" in decision.reason
    # What was thought over is not thought over again as long as nothing changes.
    make = Maker()
    decision, _ = replan(current, quotes.problem(), dear, make)
    assert (decision.action, make.count) == ("kept", 0)


def test_what_cannot_stay_is_replaced_at_any_price():
    quotes, never = Quotes(5, exchanges=3), Thresholds(change=9, gain=9)
    problem = quotes.problem()
    _, current = replan(None, problem, never, make_plan)
    gone = current.plan.brokers[0]
    others = np.array([i for i, id in enumerate(problem.pool.ids) if id != gone])
    without = replace(problem, pool=problem.pool.take(others), today=None)
    excluded = with_goals(problem, exclude=(gone,))
    slower = replace(problem, pool=replace(problem.pool, bandwidth_bytes_per_s=problem.pool.bandwidth_bytes_per_s * 0.6))
    for other, why in ((without, "not on offer"), (excluded, "exclude"), (slower, "is used to")):
        decision, now = replan(current, other, never, make_plan)
        assert decision.action == "replaced"
        assert why in decision.reason
        validate_plan(now.plan, other)


def test_a_plan_without_an_alternative_is_kept_and_said_so():
    quotes = Quotes(5, exchanges=3)
    _, current = replan(None, quotes.problem(), Thresholds(), make_plan)
    quotes.turn()

    def nothing(problem):
        raise DoesNotFit(None, "no room")

    decision, now = replan(current, quotes.problem(), Thresholds(), nothing)
    assert (decision.action, now.plan) == ("kept", current.plan)
    assert "no room" in decision.reason
    with pytest.raises(DoesNotFit):
        replan(None, quotes.problem(), Thresholds(), nothing)


def test_who_comes_has_a_place_and_who_goes_has_none():
    quotes = Quotes(2, exchanges=3)
    plan = make_plan(quotes.problem())
    quotes.ids[0], quotes.ids[1] = "new-1", "new-2"
    quotes.at[0] = plan.brokers[-1]
    quotes.at[1] = next(f"B{i}" for i in range(1, 17) if f"B{i}" not in plan.brokers)
    problem = quotes.problem()
    now = kept(plan, problem)
    assert now.clients.keys() == set(problem.units.ids)
    assert now.clients["new-1"] == plan.brokers[-1]
    assert now.clients["new-2"] in plan.brokers
    assert all(now.clients[id] == plan.clients[id] for id in now.clients.keys() & plan.clients.keys())
    today = anchored(problem, plan).today
    assert problem.pool.ids[today.units[2]] == plan.clients["c002"]
    assert problem.pool.ids[today.units[1]] == quotes.at[1]
