import pickle
from dataclasses import replace

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay_strategies import oracle, overlays, quick

from overweave.errors import OverlayError
from overweave.overlay import Broker, Link, LinkKind, Overlay, Role


@quick
@given(overlays(with_properties=True), st.randoms(use_true_random=False))
def test_order_and_direction_of_links_do_not_matter(overlay, shuffle):
    links = [Link(*reversed(link.ends), link.kind, link.delay_s) for link in overlay.links]
    shuffle.shuffle(links)
    same = Overlay(overlay.brokers, links)
    assert same == overlay
    assert hash(same) == hash(overlay)
    assert same.links == overlay.links


@quick
@given(overlays())
def test_neighbours_degree_and_connectivity_agree_with_networkx(overlay):
    graph = oracle(overlay)
    for broker in overlay.ids:
        expected = sorted(graph.neighbors(broker), key=overlay.position)
        assert list(overlay.neighbours(broker)) == expected
        assert overlay.degree(broker) == graph.degree(broker)
        assert all(overlay.has_link(broker, other) == graph.has_edge(broker, other) for other in overlay.ids)
    if overlay.ids:
        assert overlay.is_connected() == networkx.is_connected(graph)
        assert overlay.is_tree() == networkx.is_tree(graph)


def test_no_brokers_is_connected_but_no_tree():
    assert Overlay([]).is_connected()
    assert not Overlay([]).is_tree()


@quick
@given(overlays(size_min=1, with_properties=True), st.data())
def test_changes_undo_each_other(overlay, data):
    added = overlay.with_broker("another-broker")
    assert added.ids == (*overlay.ids, "another-broker")
    assert added.without_broker("another-broker") == overlay
    if overlay.links:
        link = data.draw(st.sampled_from(overlay.links))
        without = overlay.without_link(*link.ends)
        assert not without.has_link(*link.ends)
        assert without.with_link(link) == overlay
        other_s = 7.0 if link.delay_s != 7.0 else 8.0
        changed = overlay.replace_link(replace(link, delay_s=other_s))
        assert changed.link(*link.ends).delay_s == other_s
        assert changed.replace_link(link) == overlay
        assert changed != overlay


@quick
@given(overlays(size_min=1), st.data())
def test_a_broker_leaves_with_its_links(overlay, data):
    gone = data.draw(st.sampled_from(overlay.ids))
    rest = overlay.without_broker(gone)
    assert rest.ids == tuple(broker for broker in overlay.ids if broker != gone)
    assert set(rest.links) == {link for link in overlay.links if gone not in link.ends}


@quick
@given(overlays(with_properties=True))
def test_only_keeps_the_kinds_asked_for(overlay):
    parts = [overlay.only(kind) for kind in LinkKind]
    assert all(link.kind is kind for kind, part in zip(LinkKind, parts, strict=True) for link in part.links)
    assert {link for part in parts for link in part.links} == set(overlay.links)
    assert overlay.only(*LinkKind) == overlay


@quick
@given(overlays(with_properties=True))
def test_pickling_keeps_the_value(overlay):
    overlay.is_connected()
    assert pickle.loads(pickle.dumps(overlay)) == overlay


def test_values_cannot_be_changed():
    overlay = Overlay(["B1"])
    with pytest.raises(AttributeError):
        overlay.brokers = ()
    with pytest.raises(AttributeError):
        overlay.brokers[0].url = "x"


def test_brokers_are_part_of_equality():
    fast = Overlay([Broker("B1", capacity_hz=5)])
    assert fast != Overlay(["B1"])
    assert Overlay(["B1"]).replace_broker(Broker("B1", capacity_hz=5)) == fast
    assert Overlay(["B1", "B2"]) != Overlay(["B2", "B1"])


def test_members_include_edge_brokers_of_other_clusters():
    overlay = Overlay(
        [Broker("B1", cluster="C1"), Broker("B2", cluster="C1", other_clusters=("C2",)), Broker("B3", cluster="C2")]
    )
    assert overlay.clusters == ("C1", "C2")
    assert overlay.members("C2") == ("B2", "B3")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Overlay(["B1", "B2", "B1"]), "broker 'B1': expected every id once"),
        (lambda: Overlay(["B1"], [("B1", "B1")]), "link 'B1'-'B1': expected two different brokers"),
        (lambda: Overlay(["B1"], [("B1", "B7")]), "link 'B1'-'B7': broker 'B7' is not in the overlay"),
        (lambda: Overlay(["B1", "B2"], [("B1", "B2"), ("B2", "B1")]), "link 'B1'-'B2': expected every pair of brokers once"),
        (lambda: Overlay(["B1", "B2"]).link("B1", "B2"), "link 'B1'-'B2': expected a link of the overlay"),
        (lambda: Overlay(["B1", "B2"]).without_link("B1", "B2"), "expected a link of the overlay"),
        (lambda: Overlay(["B1"]).with_broker("B1"), "broker 'B1': expected every id once"),
        (lambda: Overlay(["B1"]).without_broker("B9"), "broker 'B9' is not in the overlay, the nearest known one is 'B1'"),
        (lambda: Overlay(["B1"]).has_link("B1", "B9"), "broker 'B9' is not in the overlay"),
        (lambda: Overlay(["B1"]).neighbours("B9"), "broker 'B9' is not in the overlay"),
        (lambda: Overlay(["B1"]).replace_broker(Broker("B9")), "broker 'B9' is not in the overlay"),
        (lambda: Broker(""), "broker id: expected printable text without blanks"),
        (lambda: Broker("B1", url="a b"), "broker 'B1': url: expected printable text"),
        (lambda: Broker("B1", capacity_hz=0), "broker 'B1': capacity_hz: expected a finite number above 0, got 0"),
        (lambda: Broker("B1", matching_delay_base_s=-1), "matching_delay_base_s: expected a finite number of at least 0"),
        (lambda: Broker("B1", output_bandwidth_bytes_per_s=float("inf")), "output_bandwidth_bytes_per_s: expected a finite"),
        (lambda: Broker("B1", output_bandwidth_bytes_per_s=10**400), "output_bandwidth_bytes_per_s: expected a finite"),
        (lambda: Broker("B1", other_clusters=("C1",)), "other_clusters: expected clusters besides its cluster"),
        (lambda: Broker("B1", cluster="C1", other_clusters=("C1",)), "other_clusters: expected clusters besides its cluster"),
        (
            lambda: Broker("B1", role="egde"),
            "role: expected one of cluster_head, edge, got 'egde'; the nearest known one is 'edge'",
        ),
        (lambda: Link("B1", "B2", "sofd"), "kind: expected one of primary, soft, candidate, got 'sofd'"),
        (lambda: Link("B1", "B2", delay_s=float("nan")), "link 'B1'-'B2': delay_s: expected a finite number"),
    ],
)
def test_refusals_name_what_is_wrong(make, text):
    with pytest.raises(OverlayError) as raised:
        make()
    assert text in str(raised.value)


def test_names_of_kinds_and_roles_are_accepted_as_text():
    assert Link("B1", "B2", "soft").kind is LinkKind.SOFT
    assert Broker("B1", role="edge").role is Role.EDGE


def test_repr_says_how_many_of_what():
    assert repr(Overlay([])) == "Overlay(0 brokers)"
    assert repr(Overlay(["B1"])) == "Overlay(1 broker B1)"
    assert repr(Overlay(["B1", "B2"], [Link("B1", "B2", LinkKind.CANDIDATE)])) == "Overlay(2 brokers B1…B2, 1 candidate link)"
