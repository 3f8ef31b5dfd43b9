"""Overlays for property-based tests, and the same graph for networkx."""

import networkx
from hypothesis import settings
from hypothesis import strategies as st

from overweave.overlay import Broker, Link, LinkKind, Overlay, Role

#: Whole overlays are slow to draw, and a few dozen differ enough.
quick = settings(max_examples=30)

names = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters="é<&>\"'"), min_size=1, max_size=6)
positive = st.floats(min_value=5e-324, max_value=1e300)
clusters = st.lists(names, unique=True, max_size=3)


@st.composite
def brokers(draw, id_):
    own = draw(clusters)
    return Broker(
        id_,
        output_bandwidth_bytes_per_s=draw(positive),
        matching_delay_base_s=draw(st.just(0.0) | positive),
        matching_delay_per_subscription_s=draw(st.just(0.0) | positive),
        capacity_hz=draw(st.none() | positive),
        url=draw(st.none() | names),
        cluster=own[0] if own else None,
        other_clusters=tuple(own[1:]),
        role=draw(st.none() | st.sampled_from(Role)),
    )


@st.composite
def overlays(draw, size_min=0, size_max=9, with_properties=False):
    ids = draw(st.lists(names, unique=True, min_size=size_min, max_size=size_max))
    pairs = [(one, other) for at, one in enumerate(ids) for other in ids[:at]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14)) if pairs else []
    if not with_properties:
        return Overlay(ids, chosen)
    delays = st.none() | st.just(0.0) | positive
    links = [Link(one, other, draw(st.sampled_from(LinkKind)), draw(delays)) for one, other in chosen]
    return Overlay([draw(brokers(id_)) for id_ in ids], links)


def oracle(overlay):
    graph = networkx.Graph()
    graph.add_nodes_from(overlay.ids)
    graph.add_edges_from(link.ends for link in overlay.links)
    return graph
