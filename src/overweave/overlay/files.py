"""Overlays as text: JSON here, GraphML in `overweave.overlay.graphml`, both found by name in `FORMATS`.

Reading what was written gives an equal overlay, kinds of links and properties of brokers included. The JSON document::

    {"format": "overweave-overlay", "version": 1,
     "brokers": [{"id": "B1", "output_bandwidth_bytes_per_s": 1000000.0, "cluster": "C1", …}, …],
     "links": [{"between": ["B1", "B2"], "kind": "soft", "delay_s": 0.001}, …]}

A broker needs its ``id`` and may have any field of `Broker`; a link needs ``between``. What is left out has its default; an
unknown key is an error. Nothing here opens a file: whoever does adds its name to the error.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from overweave.errors import OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.graphml import from_graphml, to_graphml
from overweave.overlay.parts import Broker, Link, LinkKind

_FORMAT = "overweave-overlay"
_VERSION = 1


class _LinkRow(msgspec.Struct, omit_defaults=True):
    between: tuple[str, str]
    kind: LinkKind = LinkKind.PRIMARY
    delay_s: float | None = None


class _Document(msgspec.Struct):
    format: str
    version: int
    brokers: list[Broker]
    links: list[_LinkRow]


def to_json(overlay: Overlay) -> str:
    """The overlay as a JSON document.

    >>> text = to_json(Overlay(["B1", "B2"], [("B1", "B2")]))
    >>> from_json(text) == Overlay(["B1", "B2"], [("B1", "B2")])
    True
    """
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "brokers": [_without_nothing(broker) for broker in overlay.brokers],
        "links": [_LinkRow(link.ends, link.kind, link.delay_s) for link in overlay.links],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def from_json(text: str | bytes) -> Overlay:
    """The overlay that a JSON document describes.

    >>> from_json('{"format": "overweave-overlay", "version": 1, "brokers": [{"id": "B1", "capcity_hz": 5}], "links": []}')
    Traceback (most recent call last):
    overweave.errors.OverlayError: JSON: $.brokers[0]: unknown key 'capcity_hz', the nearest known one is 'capacity_hz'
    """
    try:
        tree = msgspec.json.decode(text)
        _check_keys(tree)
        document = msgspec.convert(tree, _Document)
    except msgspec.ValidationError as error:
        raise OverlayError(f"JSON: {_expectation(error)}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise OverlayError(f"JSON: expected a document, got one that cannot be read: {error}") from None
    if (document.format, document.version) != (_FORMAT, _VERSION):
        found = f"{document.format!r} version {document.version}"
        raise OverlayError(f"JSON: $.format: expected {_FORMAT!r} version {_VERSION}, got {found}")
    links = []
    for number, row in enumerate(document.links):
        try:
            links.append(Link(*row.between, row.kind, row.delay_s))
        except OverlayError as error:
            raise OverlayError(f"JSON: $.links[{number}]: {error}") from None
    return Overlay(document.brokers, links)


class Format(NamedTuple):
    """How overlays are read from and written to text."""

    read: Callable[[str], Overlay]
    write: Callable[[Overlay], str]


#: By name, which is also the suffix of the file.
FORMATS: Mapping[str, Format] = {"json": Format(from_json, to_json), "graphml": Format(from_graphml, to_graphml)}


def file_format(name: str) -> Format:
    """The format of this name, with or without the dot of a suffix.

    >>> file_format(".graphml") is FORMATS["graphml"]
    True
    """
    found = FORMATS.get(name.removeprefix(".").lower())
    if found is None:
        raise OverlayError(f"unknown overlay format {name!r}, {nearest(name, FORMATS)}")
    return found


def _without_nothing(broker: Broker) -> dict[str, object]:
    return {name: value for name, value in dataclasses.asdict(broker).items() if value is not None and value != ()}


def _check_keys(tree: object) -> None:
    """Unknown keys, before the types: a misspelt name explains a missing one better than the missing one does."""
    if not isinstance(tree, dict):
        return
    _known(tree, _Document.__struct_fields__, "$")
    for section, fields in (
        ("brokers", [field.name for field in dataclasses.fields(Broker)]),
        ("links", _LinkRow.__struct_fields__),
    ):
        rows = tree.get(section)
        for number, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, dict):
                _known(row, fields, f"$.{section}[{number}]")


def _known(row: Mapping[str, object], fields: Iterable[str], where: str) -> None:
    for key in row:
        if key not in fields:
            raise OverlayError(f"JSON: {where}: unknown key {key!r}, {nearest(key, fields)}")


def _expectation(error: msgspec.ValidationError) -> str:
    """Msgspec has "what - at `where`"; ours has the place first."""
    what, _, where = str(error).rpartition(" - at ")
    what, where = (what, where.strip("`")) if what else (where, "$")
    return f"{where}: {what.replace('Expected', 'expected', 1).replace('`', '')}"
