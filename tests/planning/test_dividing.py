"""Clustering in parts: components apart are as good as the whole, slices of a component are merged."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from overweave.errors import DoesNotFit
from overweave.planning import allocate
from overweave.planning.allocate.cram import clusters_of, cram
from overweave.planning.allocate.cram.accept import HeldAlone, Limits
from overweave.planning.allocate.cram.clustering import Clustering
from overweave.planning.allocate.cram.dividing import divided
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.cram.parts import cluster_part, run_here
from overweave.planning.canonical import canonical
from overweave.planning.closeness import CLOSENESS
from overweave.planning.closest_pairs import ANY_PAIR, SEARCHES
from overweave.planning.groups import Groups
from overweave.planning.model import make_model
from overweave.testing.planning import random_problem

KINDS = [
    {"publishers": 60, "clients": 60},
    {"publishers": 90, "clients": 80, "equal_brokers": True},
    {"publishers": 6, "clients": 40, "input_bound": True},
    {"publishers": 3, "clients": 50, "fill": 0.8},
]


def model_of(seed):
    return make_model(canonical(random_problem(seed, **KINDS[seed % len(KINDS)])))


def as_sets(clusters):
    return {frozenset(each) for each in clusters}


def whole(model, options):
    """One loop over all components, the closest pair of all next."""
    items = model.items.take(np.flatnonzero(model.items.fixed < 0))
    closeness = CLOSENESS[options.closeness]
    groups = Groups(model, items, identical=options.groups, one_component=closeness.pairs_strangers)
    accepts = HeldAlone(model.table, Limits.of(model, model.bins, model.items))
    Clustering(groups, accepts, closeness, SEARCHES[options.search], one_to_many=options.one_to_many).run()
    return [groups.items_of(unit) for unit in groups.clusters()]


def in_parts(model, options, part_groups, run=run_here):
    limits = Limits.of(model, model.bins, model.items)
    return divided(model.table, model.items, limits, msgspec.structs.replace(options, part_groups=part_groups), run)


@pytest.mark.parametrize("metric", CLOSENESS)
@pytest.mark.parametrize("groups", [True, False])
def test_parts_of_whole_components_make_the_clusters_of_the_whole(metric, groups):
    several = 0
    for seed in range(24):
        model, options = model_of(seed), CramOptions(closeness=metric, groups=groups)
        counted = []

        def run(parts, work, counted=counted):
            counted.append(len(parts))
            # Where and in which order parts are clustered makes no difference.
            return [cluster_part(part, work) for part in parts[::-1]][::-1]

        # A part takes a quarter of this from more than one component.
        found = in_parts(model, options, 100, run)
        assert as_sets(found) == as_sets(whole(model, options)), seed
        assert len(counted) == 1, "nothing had to be merged"
        several += counted[0] > 1
    assert several >= (8 if metric != "xor" else 0)


def test_half_a_pool_of_equal_brokers_clusters_as_if_all_were_packed(monkeypatch):
    """What looks at the cluster alone answers as the test that packs everything, if it looks at all pairs as that does."""
    monkeypatch.setattr(HeldAlone, "pair_max", ANY_PAIR)
    clustered = 0
    for seed in range(30):
        model = make_model(canonical(random_problem(seed, clients=60, brokers=16, publishers=10, fill=0.45, equal_brokers=True)))
        for metric in CLOSENESS:
            literal = clusters_of(model, model.items, model.bins, CramOptions(closeness=metric, rule="literal"))
            found = in_parts(model, CramOptions(closeness=metric), 100)
            assert as_sets(found) == as_sets(literal), (seed, metric)
            clustered += len(found) < len(model.items)
    assert clustered > 60


@pytest.mark.parametrize("metric", CLOSENESS)
def test_slices_place_everybody_once_and_are_merged(metric):
    merged = 0
    for seed in range(24):
        model, options = model_of(seed), CramOptions(closeness=metric)
        rounds = []

        def run(parts, work, rounds=rounds):
            rounds.append(max((len(part) for part in parts), default=0))
            return run_here(parts, work)

        found = in_parts(model, options, 6, run)
        assert sorted(item for cluster in found for item in cluster) == list(range(len(model.items))), seed
        assert max(rounds) <= 6
        limits = Limits.of(model, model.bins, model.items)
        held = HeldAlone(model.table, limits)
        for cluster in found:
            profile = model.table.unite([int(model.items.profile[i]) for i in cluster])
            output, entries = int(model.items.output[cluster].sum()), int(model.items.entries[cluster].sum())
            assert len(cluster) == 1 or held.passes([], profile, output, entries), seed
        merged += len(rounds) > 1
    assert merged >= 12


def test_slices_need_hardly_more_clusters_than_the_whole():
    cut, uncut = 0, 0
    for seed in range(24):
        model, options = model_of(seed), CramOptions()
        cut += len(in_parts(model, options, 8))
        uncut += len(whole(model, options))
    assert cut <= 1.15 * uncut


def test_many_groups_go_the_way_of_parts():
    used, compared = [], 0

    def run(parts, work):
        used.append(len(parts))
        return run_here(parts, work)

    for seed in range(12):
        model = model_of(seed)
        try:
            packed = allocate.ALLOCATORS["bin-packing"](model, model.items, model.bins, np.random.default_rng(0))
        except DoesNotFit:
            continue
        found = cram(CramOptions(whole_groups=10), run)(model, model.items, model.bins, np.random.default_rng(0))
        assert len(np.unique(found.bin)) <= len(np.unique(packed.bin))
        compared += 1
    assert compared >= 6
    assert len(used) >= compared


def test_another_try_with_other_brokers_clusters_no_second_time():
    model, used = model_of(1), []

    def run(parts, work):
        used.append(len(parts))
        return run_here(parts, work)

    allocate = cram(CramOptions(whole_groups=10), run)
    found = [
        allocate(model, model.items, model.bins.take(np.arange(first, len(model.bins))), np.random.default_rng(0))
        for first in (0, 1)
    ]
    assert found[0].clusters == found[1].clusters
    assert len(used) == 1
    with_less = replace(model.bins, room=model.bins.room * 3 // 4)
    allocate(model, model.items, with_less, np.random.default_rng(0))
    assert len(used) == 2
