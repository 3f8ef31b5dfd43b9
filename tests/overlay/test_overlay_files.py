import json

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay_strategies import overlays, quick

from overweave.errors import OverlayError
from overweave.overlay import (
    FORMATS,
    Link,
    LinkKind,
    Overlay,
    file_format,
    from_graphml,
    from_json,
    make_overlay,
    to_graphml,
    to_json,
)

HEAD = '{"format": "overweave-overlay", "version": 1, '


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(overlay=overlays(with_properties=True))
def test_what_was_written_is_read_back_exactly(name, overlay):
    written = FORMATS[name].write(overlay)
    assert FORMATS[name].read(written) == overlay
    assert FORMATS[name].write(FORMATS[name].read(written)) == written


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.text() | st.text(alphabet='{}[]":,<>/graphml0 '))
def test_any_text_is_read_or_refused(name, text):
    with pytest.raises(OverlayError, match=r"(?i)json|graphml"):
        FORMATS[name].read(text)


@pytest.mark.parametrize("name", FORMATS)
@quick
@given(data=st.data())
def test_damaged_documents_are_read_or_refused(name, data):
    written = FORMATS[name].write(make_overlay("peer", clusters=2, edge_brokers_per_cluster=1))
    at = data.draw(st.integers(0, len(written) - 1))
    damaged = written[:at] + data.draw(st.text(max_size=2)) + written[at + data.draw(st.integers(0, 9)) :]
    try:
        FORMATS[name].read(damaged)
    except OverlayError as error:
        assert str(error)


@quick
@given(overlays(with_properties=True))
def test_networkx_reads_our_graphml(overlay):
    graph = networkx.parse_graphml(to_graphml(overlay))
    assert list(graph.nodes) == list(overlay.ids)
    assert {frozenset(pair) for pair in graph.edges} == {frozenset(link.ends) for link in overlay.links}
    for broker in overlay.brokers:
        assert graph.nodes[broker.id]["output_bandwidth_bytes_per_s"] == broker.output_bandwidth_bytes_per_s
        assert graph.nodes[broker.id].get("cluster") == broker.cluster
    for link in overlay.links:
        assert graph.edges[link.ends]["kind"] == link.kind.value


def test_graphml_of_networkx_is_read():
    graph = networkx.path_graph(["B1", "B2", "B3"])
    graph.nodes["B1"]["capacity_hz"] = 50
    graph.edges["B1", "B2"]["kind"] = "soft"
    overlay = from_graphml("\n".join(networkx.generate_graphml(graph)))
    assert overlay.ids == ("B1", "B2", "B3")
    assert overlay.broker("B1").capacity_hz == 50.0
    assert overlay.links == (Link("B1", "B2", LinkKind.SOFT), Link("B2", "B3"))


def test_defaults_of_graphml_keys_apply():
    key = "<key id='k' for='edge' attr.name='kind' attr.type='string'><default>soft</default></key>"
    nodes = "<node id='B1'/><node id='B2'/><node id='B3'/>"
    edges = "<edge source='B1' target='B2'/><edge source='B2' target='B3'><data key='k'>primary</data></edge>"
    overlay = from_graphml(f"<graphml>{key}<graph edgedefault='undirected'>{nodes}{edges}</graph></graphml>")
    assert [link.kind for link in overlay.links] == [LinkKind.SOFT, LinkKind.PRIMARY]


def test_json_needs_only_ids_and_ends():
    text = HEAD + '"brokers": [{"id": "B1"}, {"id": "B2"}], "links": [{"between": ["B2", "B1"]}]}'
    assert from_json(text) == make_overlay("chain", brokers=2)


def test_json_is_what_the_schema_says():
    document = json.loads(to_json(Overlay(["B1", "B2"], [Link("B2", "B1", LinkKind.SOFT, 0.5)])))
    assert document["brokers"][0] == {
        "id": "B1",
        "output_bandwidth_bytes_per_s": 1e6,
        "matching_delay_base_s": 1e-5,
        "matching_delay_per_subscription_s": 1e-7,
    }
    assert document["links"] == [{"between": ["B1", "B2"], "kind": "soft", "delay_s": 0.5}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "JSON: expected a document, got one that cannot be read"),
        ("[]", "JSON: $: expected object, got array"),
        (
            '{"format": "x", "version": 1, "brokers": [], "links": []}',
            "$.format: expected 'overweave-overlay' version 1, got 'x'",
        ),
        (HEAD + '"brokers": []}', "missing required field links"),
        (HEAD + '"brokers": [], "lnks": []}', "JSON: $: unknown key 'lnks', the nearest known one is 'links'"),
        (
            HEAD + '"brokers": [{"id": "B1", "ulr": "x"}], "links": []}',
            "$.brokers[0]: unknown key 'ulr', the nearest known one is 'url'",
        ),
        (
            HEAD + '"brokers": [{"id": "B1"}], "links": [{"betwen": []}]}',
            "$.links[0]: unknown key 'betwen', the nearest known one is",
        ),
        (
            HEAD + '"brokers": [{"id": "B1", "capacity_hz": "5"}], "links": []}',
            "$.brokers[0].capacity_hz: expected float | null, got str",
        ),
        (
            HEAD + '"brokers": [{"id": "B1", "capacity_hz": -5}], "links": []}',
            "capacity_hz: expected a finite number above 0, got -5.0",
        ),
        (HEAD + '"brokers": [{"id": "B1"}, {"id": "B1"}], "links": []}', "broker 'B1': expected every id once"),
        (
            HEAD + '"brokers": [{"id": "B1"}], "links": [{"between": ["B1", "B1"]}]}',
            "$.links[0]: link 'B1'-'B1': expected two different",
        ),
        (
            HEAD + '"brokers": [{"id": "B1"}], "links": [{"between": ["B1", "B2"]}]}',
            "link 'B1'-'B2': broker 'B2' is not in the overlay",
        ),
        (
            HEAD + '"brokers": [{"id": "B1"}], "links": [{"between": ["B1"]}]}',
            "$.links[0].between: expected array of length 2, got 1",
        ),
    ],
)
def test_bad_json_says_where_and_what_was_expected(text, expected):
    with pytest.raises(OverlayError) as raised:
        from_json(text)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<graphml><graph>", "GraphML: line 1, column 17: expected well-formed XML"),
        ("<html/>", "GraphML: expected the element 'graphml', got 'html'"),
        ("<graphml/>", "GraphML: expected one graph, got 0"),
        ("<graphml><graph edgedefault='undirected'><node/></graph></graphml>", "GraphML: node: expected the attribute 'id'"),
        (
            "<graphml><graph edgedefault='undirected'><node id='B1'/><edge source='B1' target='B2'/></graph></graphml>",
            "GraphML: link 'B1'-'B2': broker 'B2' is not in the overlay",
        ),
        (
            "<graphml><graph edgedefault='undirected'><edge source='B1' target='B2' directed='true'/></graph></graphml>",
            "GraphML: edge 1: expected an undirected edge",
        ),
        (
            "<graphml><key id='k' for='node' attr.name='capcity_hz'/><graph edgedefault='undirected'>"
            "<node id='B1'><data key='k'>5</data></node></graph></graphml>",
            "GraphML: node 'B1': unknown attribute 'capcity_hz', the nearest known one is 'capacity_hz'",
        ),
        (
            "<graphml><key id='k' for='node' attr.name='capacity_hz'/><graph edgedefault='undirected'>"
            "<node id='B1'><data key='k'>five</data></node></graph></graphml>",
            "GraphML: node 'B1': capacity_hz: expected a number, got 'five'",
        ),
        (
            "<graphml><key id='k' for='node' attr.name='url'/><graph edgedefault='undirected'>"
            "<node id='B1'><data key='q'>5</data></node></graph></graphml>",
            "GraphML: node 'B1': expected data with a declared key, got 'q'",
        ),
    ],
)
def test_bad_graphml_says_where_and_what_was_expected(body, expected):
    with pytest.raises(OverlayError) as raised:
        from_graphml(body)
    assert expected in str(raised.value)


def test_formats_are_found_by_suffix():
    assert file_format(".JSON") is FORMATS["json"]
    with pytest.raises(OverlayError, match=r"unknown overlay format '.grphml', the nearest known one is 'graphml'"):
        file_format(".grphml")
