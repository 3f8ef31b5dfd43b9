"""MINIMAL on measured profiles: rows against sets of bits, the same rankings, and plans that forwarding does not overload."""

from dataclasses import replace

import dumb_minimal
import msgspec
import numpy as np
import pytest
from test_make import permuted
from test_minimal import dumb_values, keys_of

from overweave.errors import DoesNotFit, PlanningError
from overweave.language.syntax import parse_filter
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.box_design import design_boxes
from overweave.planning.box_tables import box_clients, with_boxes
from overweave.planning.canonical import canonical
from overweave.planning.make import make_plan
from overweave.planning.model import make_model
from overweave.planning.model_similarity import homes, similarity_of
from overweave.planning.options import Options
from overweave.planning.problem import Goals, Pool, Publishers
from overweave.planning.profiles import Profiles, assemble
from overweave.planning.rank import RANKINGS
from overweave.testing.planning import random_problem

MINIMAL = [name for name in ALGORITHMS if name.startswith("minimal-")]


class BitMatrices(dumb_minimal.Matrices):
    """Equations 1 to 5 with sets of publications instead of boxes."""

    def __init__(self, model):
        problem = model.problem
        units, vectors, publishers = problem.units, problem.vectors, problem.publishers
        free = np.flatnonzero(model.host < 0).tolist()
        self.count = len(model.items) + len(free)
        side = {p: len(model.items) + i for i, p in enumerate(free)} | {
            p: int(host) for p, host in enumerate(model.host.tolist()) if host >= 0
        }
        self.publishes = set(side.values())
        self.subscribes = {i for i in range(len(units)) if units.filters[i]}
        self.rate = np.zeros(self.count)
        self.interest, self.flow, self.common = np.zeros((3, self.count, self.count))
        got = [set() for _ in range(self.count)]
        for p in range(len(publishers)):
            self.rate[side[p]] += publishers.rate_hz[p]
        for u in range(len(units)):
            for k in range(units.row_start[u], units.row_start[u + 1]):
                row = units.rows[k]
                p = int(vectors.publisher[row])
                share = units.row_deliveries[k] / publishers.window[p]
                self.interest[side[p], u] += share
                self.flow[side[p], u] += share * publishers.rate_hz[p]
                bits = np.unpackbits(vectors.words[row].astype("<u8").view(np.uint8), bitorder="little")
                got[u] |= {(p, bit) for bit in np.flatnonzero(bits).tolist()}
        worth = publishers.rate_hz / publishers.window
        self.got, self.volume = got, [sum(worth[p] for p, _ in each) for each in got]
        for x in range(self.count):
            for y in range(self.count):
                both = sum(worth[p] for p, _ in got[x] & got[y])
                self.common[x, y] = both**2 / (self.volume[x] * self.volume[y]) if both else 0.0


def some_model(seed):
    kinds = ({}, {"publishing": True}, {"publishing": True, "bits": 130}, {"publishers": 7})
    return make_model(canonical(random_problem(seed, clients=12, **kinds[seed % 4])))


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_equations_1_to_5_on_bits(seed):
    model = some_model(seed)
    similarity, dumb = similarity_of(model), BitMatrices(model)
    count, brokers = dumb.count, 4
    assert similarity.impact_hz == pytest.approx([dumb.load([c]) for c in range(count)])
    home = np.random.default_rng(seed).integers(-1, brokers, size=count)
    commonality, zones = similarity.commonality(home, brokers), similarity.zones(home, brokers)
    for c in range(count):
        if c in dumb.publishes:
            assert similarity.interest(c) == pytest.approx(dumb.interest[c])
        alone = np.where(np.arange(count) == c, -1, home)
        similar, local = similarity.at_brokers(c, alone, brokers)
        for broker in range(brokers):
            members = np.flatnonzero(alone == broker).tolist()
            assert similar[broker] == pytest.approx(dumb.interest[c, members].sum() + dumb.common[c, members].sum())
            more = dumb.load([*members, c]) - dumb.load(members)
            assert similarity.impact_hz[c] - local[broker] == pytest.approx(more)
    worth = model.problem.publishers.rate_hz / model.problem.publishers.window
    got = [set().union(*(dumb.got[c] for c in np.flatnonzero(home == broker))) for broker in range(brokers)]
    area = [sum(worth[p] for p, _ in each) for each in got]
    for one in range(brokers):
        for other in range(brokers):
            assert commonality(one)[other] == pytest.approx(dumb.common[home == one][:, home == other].sum())
            both = sum(worth[p] for p, _ in got[one] & got[other])
            assert zones(one)[other] == pytest.approx(both**2 / (area[one] * area[other]) if both else 0.0)


@pytest.mark.parametrize("name", ["gli", "gi", "gig"])
@pytest.mark.parametrize("seed", range(6))
def test_the_same_rankings_on_profiles(name, seed):
    model = some_model(seed)
    similarity, dumb = similarity_of(model), BitMatrices(model)
    order = RANKINGS[name].clients(similarity, np.random.default_rng(seed)).tolist()
    expected = getattr(dumb_minimal, name)(dumb, keys_of(similarity, np.random.default_rng(seed)))
    assert sorted(order) == list(range(dumb.count))
    if name == "gli":
        assert dumb_values(dumb, order) == pytest.approx(dumb_values(dumb, expected))
    else:
        assert order == expected


@pytest.mark.parametrize("name", MINIMAL)
def test_plans_are_functions_of_the_problem(name):
    solved = 0
    for seed in range(6):
        problem = random_problem(seed, clients=30, fill=0.15, brokers=20, publishing=seed % 2 == 0)
        try:
            plan = make_plan(problem, name, seed=3)
        except DoesNotFit:
            continue
        solved += 1
        assert make_plan(problem, name, seed=3).encode() == plan.encode()
        other = make_plan(permuted(problem, seed), name, seed=3)
        assert len(other.brokers) == len(plan.brokers), seed
    assert solved >= 4


def test_publishers_are_placed_by_the_ranking():
    """Each publisher is where somebody wants it, with room for all: nothing travels further than it must."""
    problem = random_problem(2, clients=30, fill=0.1, brokers=20, publishers=6)
    gig, root = make_plan(problem, "minimal-gig", Options(lcf=0.6)), make_plan(problem, "minimal-random", Options(lcf=0.6))
    assert len(set(gig.publishers.values())) > 1
    assert gig.totals.input_hz_mean * len(gig.brokers) < root.totals.input_hz_mean * len(root.brokers)


def test_a_fixed_lcf_leaves_room_for_its_share():
    problem = random_problem(4, clients=60, fill=0.1, brokers=40, publishers=6, equal_brokers=True)
    counts = [len(make_plan(problem, "minimal-gig", Options(lcf=lcf)).brokers) for lcf in (1.0, 0.75, 0.5)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    with pytest.raises(DoesNotFit, match=r"client '\w+': none of the \d+ brokers left has room"):
        make_plan(problem, "minimal-gig", Options(lcf=0.05))
    alone = make_plan(problem, "minimal-gig", Options(lcf=0.3, oversize="deploy"))
    assert len(alone.brokers) > counts[2]


def test_iteration_finds_room_for_forwarding():
    """MINIMAL 5.4: with all of every broker for its clients forwarding overloads some; in turn with the overlay it does not."""
    overloaded, in_turn = 0, 0
    for seed in range(6):
        problem = random_problem(seed, clients=60, fill=0.1, brokers=40, publishers=6)
        for name in ("minimal-gli", "minimal-gi", "minimal-gig"):
            overloaded += make_plan(problem, name, Options(lcf=1.0)).totals.overloaded
            plan = make_plan(problem, name)
            in_turn += plan.totals.overloaded
            assert max(max(each.input_utilisation, each.output_utilisation) for each in plan.load.values()) <= 1
    assert in_turn == 0 < overloaded


def test_pins_and_exclusions_hold():
    problem = random_problem(7, fill=0.1, brokers=20)
    pins = {problem.units.ids[0]: "B9", "P1": "B5"}
    goals = msgspec.structs.replace(problem.goals, pins=pins, exclude=("B1",))
    for name in MINIMAL:
        plan = make_plan(type(problem)(problem.pool, problem.publishers, problem.vectors, problem.units, None, goals), name)
        assert {id: {**plan.clients, **plan.publishers}[id] for id in pins} == pins
        assert "B1" not in plan.brokers


def test_homes_are_those_of_items_and_free_publishers():
    model = some_model(1)
    hosted = model.host >= 0
    found = homes(model, np.zeros(len(model.items), np.int64), np.where(hosted, 5, 1))
    assert found.tolist() == [0] * len(model.items) + [1] * int((~hosted).sum())


def test_plans_by_boxes_are_those_of_the_boxes():
    """Filters as boxes instead of profiles: with room for messages alone, places are those of the design of boxes."""
    draw = np.random.default_rng(3)
    sides = np.sort(draw.integers(0, 100, size=(40, 2)), axis=1).tolist()
    texts = [f"[class,eq,'A'],[x,>=,{lo}],[x,<=,{hi}]" for lo, hi in sides]
    ads, subs = dict(zip("PQRSTUVW", map(parse_filter, texts[:8]), strict=True)), list(map(parse_filter, texts[8:]))
    rate = draw.integers(1, 11, size=8).astype(float)
    publishers = Publishers(tuple(ads), rate, rate, np.full(8, 64), np.full(8, -1))
    pool = replace(Pool.equal(32, 1e9), capacity_hz=np.full(32, 40.0))
    ids = [f"s{i}" for i in range(32)]
    nothing = Profiles(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.uint64))
    plain = assemble(pool, publishers, nothing, ids, goals=Goals(headroom=0.0))
    problem = with_boxes(plain, ads, dict(zip(ids, subs, strict=True)))
    clients = box_clients(
        [(id, each, float(rate[i])) for i, (id, each) in enumerate(ads.items())], list(zip(ids, subs, strict=True))
    )
    options = Options(lcf=0.75, oversize="deploy", similarity="boxes", relabel=False)
    plan = make_plan(problem, "minimal-gli", options)
    design = design_boxes(clients, ranking="gli", capacity_hz=40.0)
    at = {**plan.clients, **plan.publishers}
    assert len(plan.brokers) == len(design.brokers) > 5
    groups = [{id for id in clients.ids if at[id] == broker} for broker in plan.brokers]
    assert sorted(map(sorted, groups)) == sorted(
        sorted(id for id, home in zip(clients.ids, design.home.tolist(), strict=True) if home == i)
        for i in range(len(design.brokers))
    )
    other = make_plan(permuted_with_boxes(problem), "minimal-gli", options)
    assert {**other.clients, **other.publishers} == at
    with pytest.raises(PlanningError, match="similarity: expected advertisements and filters"):
        make_plan(plain, "minimal-gli", options)
    with pytest.raises(PlanningError, match="subscription 's3': expected a filter"):
        with_boxes(plain, ads, {id: each for id, each in zip(ids, subs, strict=True) if id != "s3"})


def permuted_with_boxes(problem):
    units, publishers = problem.units, problem.publishers
    order = np.arange(len(units))[::-1]
    turned = replace(
        problem,
        units=replace(
            units, ids=units.ids[::-1], output_bytes_per_s=units.output_bytes_per_s[order], filters=units.filters[order],
            subscription_unit=order[units.subscription_unit],
        ),
    )  # fmt: skip
    return replace(turned, boxes=problem.boxes.renumbered(np.arange(len(publishers)), order))
