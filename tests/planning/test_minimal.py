"""MINIMAL: similarity, load, rankings and allocation against the paper's formulas and algorithms, written out."""

import dumb_minimal
import numpy as np
import pytest
from dumb_minimal import Matrices, some_clients

from overweave.errors import DoesNotFit, GoalNotMet, PlanningError
from overweave.language.space import ContentSpace, NumberDomain
from overweave.language.syntax import parse_filter
from overweave.planning.box_design import TREES, design_boxes
from overweave.planning.box_similarity import BoxClients, BoxSimilarity
from overweave.planning.box_tables import box_clients
from overweave.planning.boxes import Boxes
from overweave.planning.minimal import MinimalOptions, Offer, allocate_clients
from overweave.planning.rank import RANKINGS
from overweave.planning.rank.pairs import pair_row

SEEDS = range(12)
NUMBERS = {"A": {"n": NumberDomain(1, 100)}, "B": {"n": NumberDomain(1, 300)}}


def placed(seed, clients, brokers=4):
    """Most clients somewhere, some nowhere."""
    return np.random.default_rng(seed).integers(-1, brokers, size=len(clients))


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_equations_1_to_5(seed):
    clients, _ = some_clients(seed, axes=1 + seed % 3).ordered()
    similarity, dumb = BoxSimilarity(clients), Matrices(clients)
    assert similarity.impact_hz == pytest.approx([dumb.load([c]) for c in range(len(clients))])
    home = placed(seed, clients)
    commonality = similarity.commonality(home, 4)
    for c in range(len(clients)):
        if c in dumb.publishes:
            assert similarity.interest(c) == pytest.approx(dumb.interest[c])
        alone = np.where(np.arange(len(home)) == c, -1, home)
        similar, local = similarity.at_brokers(c, alone, 4)
        for broker in range(4):
            members = np.flatnonzero(alone == broker).tolist()
            assert similar[broker] == pytest.approx(dumb.interest[c, members].sum() + dumb.common[c, members].sum())
            more = dumb.load([*members, c]) - dumb.load(members)
            assert similarity.impact_hz[c] - local[broker] == pytest.approx(more)
    for one in range(4):
        members = home == one
        expected = [dumb.common[members][:, home == other].sum() for other in range(4)]
        assert commonality(one) == pytest.approx(expected)


def keys_of(similarity, draw):
    """The random number of every pair, as the rankings draw them."""
    seed = int(draw.integers(1 << 62))
    subscribers = np.flatnonzero(similarity.subscribes)
    found = {}
    for p in np.flatnonzero(similarity.publishes).tolist():
        found.update(
            {(p, s): key for s, key in zip(subscribers.tolist(), pair_row(similarity, seed, p, subscribers)[1], strict=True)}
        )
    return found


@pytest.mark.parametrize("name", ["gli", "gi", "gig"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rankings_by_a_sort_of_all_pairs(name, seed):
    clients, _ = some_clients(seed, mixed=seed % 2 == 0).ordered()
    similarity, dumb = BoxSimilarity(clients), Matrices(clients)
    keys = keys_of(similarity, np.random.default_rng(seed))
    order = RANKINGS[name].clients(similarity, np.random.default_rng(seed)).tolist()
    expected = getattr(dumb_minimal, name)(dumb, keys)
    if name == "gli":  # sums in another order differ in their last bit
        assert dumb_values(dumb, order) == pytest.approx(dumb_values(dumb, expected))
    else:
        assert order == expected


def dumb_values(dumb, order):
    return [dumb.load([c]) for c in order]


def test_ties_of_interest_are_broken_at_random():
    """Everybody wants all of everything: no order but chance."""
    whole = np.zeros((6, 1)), np.ones((6, 1))
    clients = BoxClients(tuple("abcdefghijkl"), Boxes(*whole, np.arange(6)), np.ones(6), Boxes(*whole, 6 + np.arange(6)))
    similarity = BoxSimilarity(clients)
    for name in ("gi", "gig"):
        found = [RANKINGS[name].clients(similarity, np.random.default_rng(seed)).tolist() for seed in range(200)]
        first = np.bincount([order[0] for order in found], minlength=12)
        assert first[:6].min() > 15, "any publisher may be the first"
        assert first[6:].sum() == 0, "of a pair the publisher is first"
        assert len({order[1] for order in found}) == 6


@pytest.mark.parametrize("name", ["gli", "gi", "gig"])
@pytest.mark.parametrize("seed", SEEDS)
def test_allocation_is_algorithms_1_and_2(name, seed):
    clients, _ = some_clients(seed, mixed=seed % 2 == 0).ordered()
    similarity, dumb = BoxSimilarity(clients), Matrices(clients)
    lcf = (1.0, 0.75, 0.4)[seed % 3]
    largest = max(dumb.load([c]) for c in range(len(clients))) * 1.1 / lcf
    capacity = np.sort(np.random.default_rng(seed).choice([1.0, 1.5, 2.0], size=30) * largest)[::-1].copy()
    order = RANKINGS[name].clients(similarity, np.random.default_rng(seed)).tolist()
    expected = dumb_minimal.allocate(dumb, order, capacity, lcf)
    options = MinimalOptions(ranking=name, lcf=lcf)
    ids = [f"B{i}" for i in range(30)]
    found = allocate_clients(similarity, clients.ids, Offer.by_capacity(ids, capacity), options, np.random.default_rng(seed))
    members = [sorted(np.flatnonzero(found.home == i).tolist()) for i in range(len(found.broker))]
    assert members == [sorted(each) for each in expected]
    assert found.load_hz == pytest.approx([dumb.load(each) for each in members])
    assert (found.load_hz < lcf * capacity[found.broker]).all()


def test_the_baseline_takes_any_broker_with_room():
    """Four large subscribers that need a broker each, four small ones that each resemble one of them and fit anywhere."""
    left = 4 * np.arange(4.0)
    lo, hi = np.concatenate([left, left])[:, None], np.concatenate([left + 3, left + 1])[:, None]
    everything = Boxes(np.zeros((1, 1)), np.full((1, 1), 16.0), np.array([8]))
    clients = BoxClients(tuple("abcdefghP"), everything, np.array([16.0]), Boxes(lo, hi, np.arange(8)))
    arguments = {"lcf": 1.0, "capacity_hz": np.full(12, 4.5)}
    met, deployed = 0, set()
    for seed in range(300):
        design = design_boxes(clients, ranking="random", tree="random", seed=seed, **arguments)
        met += (design.home[:4] == design.home[4:8]).sum()
        deployed.add(design.brokers[0])
    assert len(deployed) == 12
    assert 0.1 < met / 1200 < 0.3
    design = design_boxes(clients, ranking="gli", **arguments)
    assert (design.home[:4] == design.home[4:8]).all(), "by similarity all of them meet"
    assert design.brokers[0] == "B1"


def permuted(clients, seed):
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(clients))
    place = np.argsort(order)
    ads, subs = draw.permutation(len(clients.advertisements)), draw.permutation(len(clients.subscriptions))
    ids = tuple(clients.ids[i] for i in order)
    return BoxClients(ids, clients.advertisements.take(ads, place), clients.rate_hz[ads], clients.subscriptions.take(subs, place))


def distinct(seed):
    """Clients that differ in content: equal ones may change places."""
    draw = np.random.default_rng(seed)
    lo = draw.random((60, 2))
    hi = lo + draw.random((60, 2))
    ads, subs = Boxes(lo[:15], hi[:15], np.arange(15)), Boxes(lo[15:], hi[15:], 15 + np.arange(45) % 35)
    return BoxClients(tuple(f"c{i}" for i in range(50)), ads, draw.integers(1, 11, size=15).astype(float), subs)


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("tree", TREES)
def test_a_design_is_a_function_of_the_workload(ranking, tree):
    for seed in range(4):
        clients = distinct(seed)
        arguments = {"ranking": ranking, "tree": tree, "seed": 3, "capacity_hz": 60.0}
        one, same, other = (design_boxes(each, **arguments) for each in (clients, clients, permuted(clients, seed)))
        assert one.home.tolist() == same.home.tolist()
        assert one.links.tolist() == same.links.tolist() == other.links.tolist()
        assert len(one.links) == len(one.brokers) - 1
        where = dict(zip(permuted(clients, seed).ids, other.home.tolist(), strict=True))
        assert [where[id] for id in clients.ids] == one.home.tolist()
        assert sorted(set(one.home.tolist())) == list(range(len(one.brokers)))


def test_clients_that_are_too_big():
    wide, narrow = np.array([[0.0], [0.0]]), np.array([[10.0], [1.0]])
    clients = BoxClients(
        ("P", "small", "big"), Boxes(wide[:1], narrow[:1], np.array([0])), np.array([10.0]), Boxes(wide, narrow, np.array([2, 1]))
    )
    with pytest.raises(DoesNotFit, match=r"client 'big': needs 10 messages/s, .* less than 9 .*LCF 0.75") as caught:
        design_boxes(clients, ranking="gli", capacity_hz=12.0, oversize="error")
    assert caught.value.id == "big"
    design = design_boxes(clients, ranking="gli", capacity_hz=12.0)
    alone = [np.flatnonzero(design.home == broker).tolist() for broker in range(len(design.brokers))]
    assert [0] in alone, "P is too big as well"
    assert [2] in alone
    with pytest.raises(DoesNotFit, match="all 2 brokers are in use"):
        design_boxes(clients, ranking="gli", capacity_hz=np.array([12.0, 12.0]))


def test_pins_come_first_and_admission_is_asked():
    clients, _ = some_clients(1).ordered()
    similarity, dumb = BoxSimilarity(clients), Matrices(clients)
    offer = Offer.by_capacity([f"B{i}" for i in range(20)], np.full(20, 300.0))
    fixed = np.full(len(clients), -1)
    fixed[[3, 7]] = 11
    refused = []

    def admit(client, broker):
        refused.append((client, broker)) if client % 5 == broker % 5 else None
        return client % 5 != broker % 5

    draw = np.random.default_rng(0)
    found = allocate_clients(similarity, clients.ids, offer, MinimalOptions(), draw, fixed=fixed, admit=admit)
    at = found.broker[found.home]
    assert at[3] == at[7] == 11 == found.broker[0]
    assert all(client % 5 != broker % 5 for client, broker in enumerate(at.tolist()))
    assert refused
    for i in range(len(found.broker)):
        assert found.load_hz[i] == pytest.approx(dumb.load(np.flatnonzero(found.home == i).tolist()))
    with pytest.raises(GoalNotMet, match="'B11' has no room"):
        allocate_clients(similarity, clients.ids, offer, MinimalOptions(), draw, fixed=fixed, admit=lambda *_: False)


def test_wrong_input_is_named():
    clients = some_clients(0)
    box = np.zeros((1, 2)), np.ones((1, 2))
    none = Boxes(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, np.int64))
    for text, wrong in {
        "subscription 0: client: expected one of 1": BoxClients(("a",), none, np.zeros(0), Boxes(*box, np.array([1]))),
        "subscription 0 of 'a': expected a finite box": BoxClients(("a",), none, np.zeros(0), Boxes(*box[::-1], np.array([0]))),
        "advertisements: rate_hz": BoxClients(("a",), Boxes(*box, np.array([0])), np.array([-1.0]), none),
    }.items():
        with pytest.raises(PlanningError, match=text):
            wrong.validate()
    with pytest.raises(PlanningError, match="ranking: expected one of gli, gi, gig, random, found 'x'"):
        design_boxes(clients, ranking="x")
    with pytest.raises(PlanningError, match="tree: expected one of"):
        design_boxes(clients, tree="x")


def test_clients_from_filters():
    publishers = [("P1", "[class,eq,'A'],[n,>=,0],[n,<=,99]", 10.0), ("c2", "[class,eq,'B'],[word,isPresent,'']", 4.0)]
    subscriptions = [
        ("c1", "[class,eq,'A'],[n,>=,50]"),
        ("c1", "[class,eq,'B'],[word,eq,'x']"),
        ("c2", "[class,eq,'A'],[n,<,25]"),
        ("c3", "[class,eq,'B'],[word,eq,'y']"),
        ("c4", "[word,str-prefix,'z']"),
    ]
    clients = box_clients(
        [(id, parse_filter(text), rate) for id, text, rate in publishers],
        [(id, parse_filter(text)) for id, text in subscriptions],
    )
    assert clients.ids == ("P1", "c2", "c1", "c3", "c4")
    # Half of P1's and a third of c2's; a quarter of P1's and its own; a third of c2's, twice (the words are x, y and z).
    assert BoxSimilarity(clients.ordered()[0]).impact_hz.sum() == pytest.approx(10 + (5 + 4 / 3) + (2.5 + 4) + 4 / 3 + 4 / 3)
    # An advertisement without a class publishes in both, by volume: 100 values of n are A's, 300 are B's.
    known = [
        ("c1", parse_filter("[class,eq,'A'],[n,>=,1],[n,<=,100]")),
        ("c2", parse_filter("[class,eq,'B'],[n,>=,1],[n,<=,300]")),
    ]
    anywhere = box_clients([("P", parse_filter("[n,>=,0]"), 4.0)], known, ContentSpace(NUMBERS))
    assert anywhere.rate_hz.tolist() == [1.0, 3.0]
    assert BoxSimilarity(anywhere.ordered()[0]).impact_hz.sum() == pytest.approx(4 + 1 + 3)
    with pytest.raises(PlanningError, match="publisher 'P': advertisement: expected some values"):
        box_clients([("P", parse_filter("[class,eq,'A'],[n,>,5],[n,<,3]"), 1.0)], [])
