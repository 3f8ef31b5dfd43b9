"""Overlays as GraphML, for other graph tools; brokers are nodes with their ids, links are undirected edges.

Every property of `Broker` and `Link` is an attribute of its own name; what is left out has its default. ``other_clusters`` is a
list in the manner of XML Schema, its items parted by blanks. We read and write with the standard library: rustworkx 0.18 writes
numbers with 32 bits even under keys of type double and drops edges with unknown ends without a word.
"""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement

from overweave.errors import OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
#: Attributes of nodes and edges with their GraphML types.
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "node": {
        "output_bandwidth_bytes_per_s": "double",
        "matching_delay_base_s": "double",
        "matching_delay_per_subscription_s": "double",
        "capacity_hz": "double",
        "url": "string",
        "cluster": "string",
        "other_clusters": "string",
        "role": "string",
    },
    "edge": {"kind": "string", "delay_s": "double"},
}


def to_graphml(overlay: Overlay) -> str:
    """The overlay as a GraphML document.

    >>> from_graphml(to_graphml(Overlay(["B1", "B2"], [("B1", "B2")])))
    Overlay(2 brokers B1…B2, 1 primary link)
    """
    root = Element("graphml", xmlns=_NAMESPACE)
    for domain, fields in _FIELDS.items():
        for name, kind in fields.items():
            SubElement(root, "key", {"id": name, "for": domain, "attr.name": name, "attr.type": kind})
    graph = SubElement(root, "graph", edgedefault="undirected")
    for broker in overlay.brokers:
        _write_data(SubElement(graph, "node", id=broker.id), broker, "node")
    for link in overlay.links:
        _write_data(SubElement(graph, "edge", source=link.first, target=link.second), link, "edge")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def from_graphml(text: str) -> Overlay:
    """The overlay that a GraphML document describes.

    >>> from_graphml("<graphml><graph edgedefault='directed'/></graphml>")
    Traceback (most recent call last):
    overweave.errors.OverlayError: GraphML: graph: expected edgedefault 'undirected', got 'directed'
    """
    root = _parsed(text)
    try:
        graphs = list(_children(root, "graph"))
        if len(graphs) != 1:
            raise OverlayError(f"expected one graph, got {len(graphs)}")
        if graphs[0].get("edgedefault") != "undirected":
            raise OverlayError(f"graph: expected edgedefault 'undirected', got {graphs[0].get('edgedefault')!r}")
        nodes, edges = _declared(root, "node"), _declared(root, "edge")
        brokers = [_broker(node, nodes) for node in _children(graphs[0], "node")]
        links = [_link(edge, f"edge {number}", edges) for number, edge in enumerate(_children(graphs[0], "edge"), 1)]
        return Overlay(brokers, links)
    except OverlayError as error:
        raise OverlayError(f"GraphML: {error}") from None


def _parsed(text: str) -> Element:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        (line, column), reason = error.position, error.msg.partition(": line")[0]
        raise OverlayError(f"GraphML: line {line}, column {column + 1}: expected well-formed XML, got {reason}") from None
    except (UnicodeError, LookupError) as error:
        raise OverlayError(f"GraphML: expected text in a known encoding, got {error}") from None
    if _local(root) != "graphml":
        raise OverlayError(f"GraphML: expected the element 'graphml', got {_local(root)!r}")
    return root


class _Keys(NamedTuple):
    """What the document declares about the attributes of nodes, or of edges."""

    domain: str
    #: From the key's id to the attribute's name.
    names: Mapping[str, str]
    #: By the attribute's name.
    defaults: Mapping[str, str]


def _declared(root: Element, domain: str) -> _Keys:
    keys = [key for key in _children(root, "key") if key.get("for", "all") in (domain, "all")]
    names = {_attribute(key, "id", "key"): _attribute(key, "attr.name", "key") for key in keys}
    defaults = {names[key.attrib["id"]]: default.text or "" for key in keys for default in _children(key, "default")}
    return _Keys(domain, names, defaults)


def _broker(node: Element, keys: _Keys) -> Broker:
    broker_id = _attribute(node, "id", "node")
    return Broker(broker_id, **_read_data(node, f"node {broker_id!r}", keys))


def _link(edge: Element, where: str, keys: _Keys) -> Link:
    if edge.get("directed", "false") != "false":
        raise OverlayError(f"{where}: expected an undirected edge")
    source, target = _attribute(edge, "source", where), _attribute(edge, "target", where)
    return Link(source, target, **_read_data(edge, where, keys))


def _write_data(element: Element, part: Broker | Link, domain: str) -> None:
    values = dataclasses.asdict(part)
    for name in _FIELDS[domain]:
        value = values[name]
        if value is not None and value != ():
            text = " ".join(value) if isinstance(value, tuple) else repr(value) if isinstance(value, float) else str(value)
            SubElement(element, "data", key=name).text = text


def _read_data(element: Element, where: str, keys: _Keys) -> dict[str, Any]:
    """The attributes of a node or edge by name, including defaults of keys."""
    texts = dict(keys.defaults)
    for data in _children(element, "data"):
        key = _attribute(data, "key", f"{where}: data")
        if key not in keys.names:
            raise OverlayError(f"{where}: expected data with a declared key, got {key!r}, {nearest(key, keys.names)}")
        texts[keys.names[key]] = data.text or ""
    return {name: _value(name, text, _FIELDS[keys.domain], where) for name, text in texts.items()}


def _value(name: str, text: str, fields: Mapping[str, str], where: str) -> float | str | tuple[str, ...]:
    if name not in fields:
        raise OverlayError(f"{where}: unknown attribute {name!r}, {nearest(name, fields)}")
    if name == "other_clusters":
        return tuple(text.split())
    if fields[name] == "string":
        return text
    try:
        return float(text)
    except ValueError:
        raise OverlayError(f"{where}: {name}: expected a number, got {text!r}") from None


def _attribute(element: Element, name: str, where: str) -> str:
    value = element.get(name)
    if value is None:
        raise OverlayError(f"{where}: expected the attribute {name!r}")
    return value


def _children(element: Element, name: str) -> Iterator[Element]:
    return (child for child in element if _local(child) == name)


def _local(element: Element) -> str:
    """The name without its namespace: many tools leave the namespace out."""
    return element.tag.rpartition("}")[2]
