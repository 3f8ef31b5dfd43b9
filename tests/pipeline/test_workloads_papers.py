"""The workloads of STOCH, MINIMAL and MESH have the shape that the papers publish."""

from collections import Counter

import numpy as np
import pytest
from test_workloads import made

from overweave.language.relations import covers
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.index import Index
from overweave.pipeline.workloads.boxes import BoxesOptions, make_boxes


def index_of(subscriptions):
    index = Index()
    index.add_many((row.subscription, parse_filter(row.filter), row.broker) for row in subscriptions.itertuples())
    return index


#: MESH fig 8 (a), once more: subscriptions, matching subscriptions per publication.
PUBLISHED = {
    "DT1": (6_552, 0.08),
    "DT2": (19_472, 0.53),
    "DT3": (28_690, 0.09),
    "DT4": (900, 0.09),
    "DT5": (6_000, 0.54),
    "DT-C": (10_000, 0.04),
    "DT-FB": (120_000, 0.065),
}


@pytest.mark.parametrize("dataset", PUBLISHED)
def test_mesh_fig_8_a_publication_matches_the_published_share(dataset):
    tables = made("mesh", {"dataset": dataset, "publications": 2_000})
    count, share = PUBLISHED[dataset]
    assert len(tables["subscriptions"]) == count
    some = [parse_publication(text) for text in tables["publications"].publication]
    matched = index_of(tables["subscriptions"]).match_batch(some)
    assert np.mean([len(ids) for ids in matched]) / count == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize(("dataset", "deliveries"), [("DT1", 348_000), ("DT2", 1_034_000)])
def test_mesh_fig_9_a_publication_is_delivered_at_the_published_share_of_brokers(dataset, deliveries):
    tables = made("mesh", {"dataset": dataset, "publications": 4_000})
    some = [parse_publication(text) for text in tables["publications"].publication]
    hops = index_of(tables["subscriptions"]).next_hops_batch(some)
    assert np.mean([len(brokers) for brokers in hops]) == pytest.approx(deliveries / 36_000, rel=0.1)


def test_mesh_subscriptions_of_dt_c_cover_each_other():
    by_topic = {}
    for text in made("mesh", {"dataset": "DT-C", "subscriptions": 300})["subscriptions"]["filter"]:
        wanted = parse_filter(text)
        by_topic.setdefault(wanted.predicates[1].value, []).append(wanted)
    topic = max(by_topic.values(), key=len)
    assert len(topic) > 20
    assert all(covers(first, second) or covers(second, first) for first in topic for second in topic)


def test_stoch_classes_are_equally_likely_everywhere():
    tables = made("classes", {"subscriptions": 50_000, "publications": 50_000})
    assert len(tables["brokers"]) == len(tables["publishers"]) == 127
    assert tables["publishers"].rate_hz.sum() == pytest.approx(1000)
    for column in (tables["subscriptions"]["filter"], tables["publications"].publication):
        counts = Counter(column)
        assert len(counts) == 1000
        assert np.std(list(counts.values())) == pytest.approx(50**0.5, rel=0.15)
    assert min(Counter(tables["subscriptions"].broker).values()) > 300
    index = index_of(tables["subscriptions"][:1000])
    (ids,) = index.match_batch([parse_publication(tables["publications"].publication[0])])
    assert len(ids) < 10


@pytest.mark.parametrize(("boxes", "exponent", "width"), [("corners", 2, 1000 / 3), ("widths", 1, 250)])
def test_minimal_table_1(boxes, exponent, width):
    tables = made("boxes", {"publishers": 2000, "boxes": boxes})
    publishers, subscriptions = tables["publishers"], tables["subscriptions"]
    assert len(subscriptions) == 3 * 2000
    assert set(tables["brokers"].capacity_hz) == {1000.0}
    rates = Counter(publishers.rate_hz)
    expected = np.array([k**-exponent for k in range(1, 11)])
    assert [rates[k] / 2000 for k in range(1, 11)] == pytest.approx(expected / expected.sum(), abs=0.03)
    assert len(tables["publications"]) == 10 * publishers.rate_hz.sum()
    for text in (publishers.advertisement, subscriptions["filter"]):
        sides = np.array([[each.value for each in parse_filter(one).predicates[1:]] for one in text])
        assert sides.min() >= 0
        assert sides.max() <= 1000
        for low, high in ((0, 1), (2, 3)):
            assert (sides[:, low] <= sides[:, high]).all()
            assert (sides[:, high] - sides[:, low]).mean() == pytest.approx(width, rel=0.05)
            assert sides[:, [low, high]].mean() == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize("boxes", ["corners", "widths"])
def test_minimal_arrays_are_what_the_tables_say(boxes):
    tables, arrays = made("boxes", {"publishers": 30, "boxes": boxes}), make_boxes(BoxesOptions(publishers=30, boxes=boxes), 1)
    for text, sides in (
        (tables["publishers"].advertisement, arrays.advertisements),
        (tables["subscriptions"]["filter"], arrays.subscriptions),
    ):
        found = [[each.value for each in parse_filter(one).predicates[1:]] for one in text]
        assert sides.transpose(2, 0, 1).reshape(-1, 4).tolist() == found
    assert arrays.rates.tolist() == tables["publishers"].rate_hz.tolist()
    publications = tables["publications"]
    assert [f"P{each + 1}" for each in arrays.publisher.tolist()] == publications.publisher.tolist()
    assert arrays.sequence.tolist() == publications.sequence.tolist()
    points = [parse_publication(text) for text in publications.publication]
    assert arrays.points.T.tolist() == [[each["x"], each["y"]] for each in points]
