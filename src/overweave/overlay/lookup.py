"""Lookup tables of an overlay: positions, links by their ends, neighbours, and the graph for path algorithms."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

import rustworkx

from overweave.errors import OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.parts import Link

_Item = TypeVar("_Item", bound=Hashable)


class Lookup:
    """The tables of one overlay; each is computed on first use."""

    def __init__(self, ids: tuple[str, ...], links: tuple[Link, ...]) -> None:
        self._ids = ids
        self._links = links
        self._hash: int | None = None

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each broker."""
        return MappingProxyType({id: position for position, id in enumerate(self._ids)})

    @cached_property
    def links(self) -> Mapping[tuple[str, str], Link]:
        """The links by their ends."""
        return MappingProxyType({link.ends: link for link in self._links})

    @cached_property
    def neighbours(self) -> tuple[tuple[str, ...], ...]:
        """The neighbours by position, sorted: rustworkx lists them in order of insertion."""
        ids, graph = self._ids, self.graph
        return tuple(tuple(ids[index] for index in sorted(graph.neighbors(position))) for position in range(len(ids)))

    @cached_property
    def graph(self) -> "rustworkx.PyGraph[str, Link]":
        """The graph; the index of a node is the position of the broker."""
        graph: rustworkx.PyGraph[str, Link] = rustworkx.PyGraph()
        graph.add_nodes_from(self._ids)
        position = self.positions
        graph.add_edges_from([(position[link.first], position[link.second], link) for link in self._links])
        return graph

    def hash_with(self, brokers: tuple[Hashable, ...]) -> int:
        """The hash of the overlay with these brokers, computed once."""
        if self._hash is None:
            self._hash = hash((brokers, self._links))
        return self._hash


def sorted_links(ids: Sequence[str], links: Sequence[Link]) -> tuple[Link, ...]:
    """The links in order of the positions of their ends; unknown or repeated ids and repeated pairs are errors."""
    positions = {id: position for position, id in enumerate(ids)}
    if len(positions) < len(ids):
        raise OverlayError(f"broker {_repeated(ids)!r}: expected every id once")
    for link in links:
        for end in link.ends:
            if end not in positions:
                raise OverlayError(f"link {link.first!r}-{link.second!r}: {missing(end, ids)}")
    pairs = [link.ends for link in links]
    if len(set(pairs)) < len(pairs):
        first, second = _repeated(pairs)
        raise OverlayError(f"link {first!r}-{second!r}: expected every pair of brokers once")
    return tuple(sorted(links, key=lambda link: sorted((positions[link.first], positions[link.second]))))


def missing(broker_id: str, ids: Iterable[str]) -> str:
    """The text of an error about an unknown broker."""
    return f"broker {broker_id!r} is not in the overlay, {nearest(str(broker_id), tuple(ids))}"


def _repeated(items: Iterable[_Item]) -> _Item:
    return Counter(items).most_common(1)[0][0]
