"""The conformance checks of planning: properties that every allocator, builder and placement has, on random problems."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from overweave.errors import DoesNotFit, GoalNotMet
from overweave.planning.allocate.base import Allocator
from overweave.planning.build.base import Builder
from overweave.planning.canonical import canonical
from overweave.planning.filling import Filling
from overweave.planning.flows import flows_of
from overweave.planning.load import predict
from overweave.planning.model import Model, make_model
from overweave.planning.place.base import Placement
from overweave.planning.problem import Goals, Pool, Problem, Publishers
from overweave.planning.profiles import Profiles, assemble, packed


def random_problem(
    seed: int,
    *,
    clients: int = 20,
    brokers: int = 8,
    publishers: int = 4,
    bits: int = 64,
    fill: float = 0.5,
    publishing: bool = False,
    input_bound: bool = False,
    headroom: float = 0.0,
    with_today: bool = False,
    equal_brokers: bool = False,
) -> Problem:
    """A small problem with everything in it: unequal brokers, several publishers per filter, empty and equal vectors.

    About ``fill`` of the pool's bandwidth is needed for deliveries. With ``publishing`` some clients publish too, with
    ``input_bound`` input runs out before output does.
    """
    draw = np.random.default_rng(seed)
    templates = _vectors(draw, publishers, bits)
    subscription, publisher, chosen = [], [], []
    owners = (
        [f"c{draw.integers(clients) + 1}" for _ in range(2 * clients)]
        if draw.random() < 0.5
        else [f"c{i + 1}" for i in range(clients)]
    )
    for s in range(len(owners)):
        for p in draw.permutation(publishers)[: draw.choice([0, 1, 1, 1, 2, 3])].tolist():
            subscription.append(s)
            publisher.append(p)
            chosen.append(templates[p][draw.integers(len(templates[p]))])
    rate = draw.choice([1.0, 2.5, 10.0], size=publishers)
    made = Publishers(
        tuple(f"P{i + 1}" for i in range(publishers)),
        rate,
        rate * draw.choice([100.0, 220.0], size=publishers),
        np.full(publishers, bits),
        np.full(publishers, -1),
    )
    words = packed(np.array(chosen, np.uint8).reshape(len(chosen), bits))
    profiles = Profiles(np.array(subscription, np.int64), np.array(publisher, np.int64), words)
    ids = [f"s{i + 1}" for i in range(len(owners))]
    sides = [owners[draw.integers(len(owners))] if publishing and draw.random() < 0.5 else None for _ in range(publishers)]
    at = [f"B{draw.integers(brokers) + 1}" for _ in range(len(owners))] if with_today else None
    publishers_at = [f"B{draw.integers(brokers) + 1}" for _ in range(publishers)] if with_today else None
    delivered = float((np.bitwise_count(words).sum(axis=1) / bits * made.bytes_per_s[profiles.publisher]).sum())
    share = np.ones(brokers) if equal_brokers else draw.choice([1.0, 0.5, 0.25], size=brokers)
    bandwidth = np.maximum(share * delivered / fill / share.sum(), 1.0)
    base = draw.choice([1e-5, 1.0 / (0.7 * rate.sum())], size=brokers) if input_bound else np.full(brokers, 1e-5)
    pool = Pool(tuple(f"B{i + 1}" for i in range(brokers)), bandwidth, base, np.full(brokers, 1e-7), np.full(brokers, np.inf))
    links = tuple((f"B{i + 1}", f"B{i // 2 + 1}") for i in range(1, brokers)) if with_today else ()
    return assemble(
        _with_room(pool, made, profiles, owners, sides, headroom), made, profiles, ids, owners,
        clients_at=at, publishers_at=publishers_at, publishing=sides, links=links, goals=Goals(headroom=headroom),
    )  # fmt: skip


def check_allocator(allocate: Allocator, *, aware: bool = True, seeds: Sequence[int] = range(30)) -> None:
    """Raise AssertionError unless an allocator places every item once, pinned ones as pinned, and keeps what it promises.

    If it is ``aware`` it keeps both capacities, is no worse than one item per broker, and fails only by `DoesNotFit` (or
    `GoalNotMet` for pins). The same input and draw give the same answer; more bandwidth of all never makes it fail.
    """
    placed = 0
    for seed in seeds:
        problem = _some_problem(seed)
        model = make_model(canonical(problem))
        try:
            found = allocate(model, model.items, model.bins, np.random.default_rng(seed))
        except (DoesNotFit, GoalNotMet):
            assert aware, f"seed {seed}: only what looks at capacity can fail"
            continue
        placed += 1
        again = allocate(model, model.items, model.bins, np.random.default_rng(seed))
        assert found.bin.tolist() == again.bin.tolist(), f"seed {seed}: the same input, another answer"
        assert len(found.bin) == len(model.items), f"seed {seed}: every item once"
        assert ((found.bin >= 0) & (found.bin < len(model.bins))).all(), f"seed {seed}: every item in a bin"
        pinned = model.items.fixed >= 0
        assert (model.bins.broker[found.bin[pinned]] == model.items.fixed[pinned]).all(), f"seed {seed}: pins"
        if aware:
            _check_capacity(model, found.bin, seed)
            assert len(np.unique(found.bin)) <= len(model.items), f"seed {seed}: no worse than one each"
            assert 0 <= found.clusters <= len(model.items), f"seed {seed}: clusters"
    assert placed >= len(seeds) // 2, f"expected most problems to be solved, found {placed} of {len(seeds)}"


def check_builder(build: Builder, allocate: Allocator, *, aware: bool = True, seeds: Sequence[int] = range(20)) -> None:
    """Raise AssertionError unless a builder makes trees with every item and every hosting publisher in place.

    If it is ``aware``, no broker has more output than it may have with the free publishers at the root.
    """
    for seed in seeds:
        model = make_model(canonical(_some_problem(seed)))
        try:
            design = build(model, allocate, np.random.default_rng(seed))
        except (DoesNotFit, GoalNotMet):
            continue
        tree, problem = design.tree, model.problem
        assert tree.parent[0] == -1, "the root has no parent"
        assert (tree.parent[1:] < np.arange(1, len(tree))).all(), "parents come first"
        assert (tree.parent[1:] >= 0).all(), "there is one root"
        assert len(set(tree.broker.tolist())) == len(tree), "every broker once"
        assert len(design.item) == len(model.items), "every item once"
        assert ((design.item >= 0) & (design.item < len(tree))).all(), "every item has a node"
        for p, host in enumerate(model.host.tolist()):
            assert host < 0 or design.publisher[p] == design.item[host], "a publishing side is with its client"
        if aware:
            homes = np.maximum(design.publisher, 0)
            load = predict(problem, tree, design.item[: len(problem.units)], homes)
            assert (load.output_utilisation < 1 - problem.goals.headroom + 1e-9).all(), f"seed {seed}: too much output"


def check_placement(place: Placement, build: Builder, allocate: Allocator, *, seeds: Sequence[int] = range(20)) -> None:
    """Raise AssertionError unless a placement gives every publisher a node and leaves publishing sides with their clients."""
    for seed in seeds:
        model = make_model(canonical(_some_problem(seed)))
        try:
            design = build(model, allocate, np.random.default_rng(seed))
        except (DoesNotFit, GoalNotMet):
            continue
        flows = flows_of(model.problem, design.tree, design.item[: len(model.problem.units)])
        homes = place(model, design, flows, np.random.default_rng(seed))
        assert homes.tolist() == place(model, design, flows, np.random.default_rng(seed)).tolist(), "the same again"
        assert ((homes >= 0) & (homes < len(design.tree))).all(), "every publisher has a node"
        for p, host in enumerate(model.host.tolist()):
            assert host < 0 or homes[p] == design.item[host], "a publishing side is with its client"


def _some_problem(seed: int) -> Problem:
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"publishing": True},
        {"input_bound": True},
        {"headroom": 0.2, "equal_brokers": True},
        {"clients": 60},
    )
    problem = random_problem(seed, **kinds[seed % len(kinds)])
    if seed % 3 == 2:
        draw = np.random.default_rng(seed)
        pins = {
            problem.units.ids[0]: f"B{draw.integers(len(problem.pool)) + 1}",
            "P1": f"B{draw.integers(len(problem.pool)) + 1}",
        }
        side = problem.publishers.unit[0]
        if side >= 0:
            pins.pop("P1")
        goals = msgspec.structs.replace(problem.goals, pins=pins)
        problem = Problem(problem.pool, problem.publishers, problem.vectors, problem.units, problem.today, goals)
    return problem


def _check_capacity(model: Model, bins: np.ndarray[tuple[int], np.dtype[np.int64]], seed: int) -> None:
    filling = Filling(model, model.bins, model.items)
    for item, bin in enumerate(bins.tolist()):
        fits = filling.put(int(model.items.profile[item]), int(model.items.output[item]), int(model.items.entries[item]), bin)
        assert fits, f"seed {seed}: bin {bin} has too much"


def _vectors(draw: np.random.Generator, publishers: int, bits: int) -> list[list[np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """Per publisher some vectors to choose from: nested ones, as of one inequality, and others; all, nothing, and equal ones."""
    found = []
    for _ in range(publishers):
        value = draw.random(bits)
        nested = [value < limit for limit in draw.random(4)]
        others = [draw.random(bits) < draw.random() for _ in range(3)]
        found.append([*nested, *others, np.ones(bits, np.bool_), np.zeros(bits, np.bool_)])
    return found


def _with_room(
    pool: Pool, publishers: Publishers, profiles: Profiles, owners: Sequence[str], sides: Sequence[str | None], headroom: float
) -> Pool:
    """The pool with as much more bandwidth as its largest broker needs for the largest client."""
    own: dict[str, float] = dict.fromkeys(owners, 0.0)
    share = np.bitwise_count(profiles.words).sum(axis=1) / publishers.window[profiles.publisher]
    for s, load in zip(
        profiles.subscription.tolist(), (share * publishers.bytes_per_s[profiles.publisher]).tolist(), strict=True
    ):
        own[owners[s]] += load
    for p, side in enumerate(sides):
        if side is not None:
            own[side] = own.get(side, 0.0) + float(publishers.bytes_per_s[p])
    factor = max(1.0, 1.3 * max(own.values(), default=0.0) / (float(pool.bandwidth_bytes_per_s.max()) * (1 - headroom)))
    return Pool(pool.ids, pool.bandwidth_bytes_per_s * factor, pool.base_s, pool.slope_s, pool.capacity_hz)
