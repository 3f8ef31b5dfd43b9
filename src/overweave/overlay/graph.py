"""The overlay: which brokers there are and which links join them, as one immutable value.

Brokers keep the order in which they were given; that order is a broker's *position*, and every tie in this
package is broken by it. Links have no order of their own and are kept sorted by the positions of their ends, so
two overlays are equal when their brokers (in order) and links are. Between two brokers there is at most one link, of one kind.

Neighbours, connectivity and paths regard every link of the overlay, candidate links too: ask ``overlay.only(LinkKind.PRIMARY)``
for the primary network alone.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

import rustworkx

from overweave.errors import OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.parts import Broker, Link, LinkKind, link_ends

_Item = TypeVar("_Item", bound=Hashable)


@dataclass(frozen=True, init=False, repr=False)
class Overlay:
    """Brokers and links; a plain id stands for a broker with default properties, a pair of ids for a primary link.

    >>> overlay = Overlay(["B1", "B2", "B3"], [("B1", "B2"), Link("B3", "B2", LinkKind.SOFT)])
    >>> overlay.neighbours("B2"), overlay.only(LinkKind.PRIMARY).neighbours("B2")
    (('B1', 'B3'), ('B1',))
    >>> overlay
    Overlay(3 brokers B1…B3, 1 primary link, 1 soft link)
    >>> Overlay(["B1"], [("B1", "B2")])
    Traceback (most recent call last):
    overweave.errors.OverlayError: link 'B1'-'B2': broker 'B2' is not in the overlay, the nearest known one is 'B1'
    """

    brokers: tuple[Broker, ...]
    links: tuple[Link, ...]

    def __init__(self, brokers: Iterable[Broker | str], links: Iterable[Link | tuple[str, str]] = ()) -> None:
        values = tuple(broker if isinstance(broker, Broker) else Broker(broker) for broker in brokers)
        object.__setattr__(self, "brokers", values)
        if len(self._positions) < len(values):
            raise OverlayError(f"broker {_repeated(self.ids)!r}: expected every id once")
        edges = [link if isinstance(link, Link) else Link(*link) for link in links]
        for link in edges:
            for end in link.ends:
                if end not in self._positions:
                    raise OverlayError(f"link {link.first!r}-{link.second!r}: {self._missing(end)}")
        object.__setattr__(self, "links", tuple(sorted(edges, key=self._order)))
        if len(self._links) < len(edges):
            first, second = _repeated([link.ends for link in edges])
            raise OverlayError(f"link {first!r}-{second!r}: expected every pair of brokers once")

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of the brokers, in order of position.

        >>> Overlay(["B2", "B1"]).ids
        ('B2', 'B1')
        """
        return tuple(broker.id for broker in self.brokers)

    def broker(self, broker_id: str) -> Broker:
        """The broker with this id.

        >>> Overlay([Broker("B1", capacity_hz=50)]).broker("B1").capacity_hz
        50.0
        """
        return self.brokers[self.position(broker_id)]

    def position(self, broker_id: str) -> int:
        """Where the broker stands in `brokers`, from 0.

        >>> Overlay(["B1", "B2"]).position("B2")
        1
        """
        try:
            return self._positions[broker_id]
        except KeyError:
            raise OverlayError(self._missing(broker_id)) from None

    def link(self, one: str, other: str) -> Link:
        """The link between two brokers, whichever way they are named.

        >>> Overlay(["B1", "B2"], [("B1", "B2")]).link("B2", "B1").ends
        ('B1', 'B2')
        """
        try:
            return self._links[link_ends(one, other)]
        except KeyError:
            self.position(one), self.position(other)
            raise OverlayError(f"link {one!r}-{other!r}: expected a link of the overlay") from None

    def has_link(self, one: str, other: str) -> bool:
        """Whether the two brokers are joined by a link of any kind.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.has_link("B2", "B1"), chain.has_link("B1", "B3")
        (True, False)
        """
        self.position(one), self.position(other)
        return link_ends(one, other) in self._links

    def neighbours(self, broker_id: str) -> tuple[str, ...]:
        """The brokers that a link joins to this one, in order of position.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.neighbours("B2")
        ('B1', 'B3')
        """
        return self._neighbours[self.position(broker_id)]

    def degree(self, broker_id: str) -> int:
        """How many neighbours the broker has.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.degree("B1"), chain.degree("B2")
        (1, 2)
        """
        return len(self.neighbours(broker_id))

    def members(self, cluster: str) -> tuple[str, ...]:
        """The brokers that belong to the cluster, edge brokers of MERC included.

        >>> Overlay([Broker("B1", cluster="C1"), Broker("B2", cluster="C2", other_clusters=("C1",))]).members("C1")
        ('B1', 'B2')
        """
        return tuple(broker.id for broker in self.brokers if cluster in broker.clusters)

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that brokers belong to, in the order in which they first appear.

        >>> Overlay([Broker("B1", cluster="C2"), Broker("B2", cluster="C1"), Broker("B3", cluster="C2")]).clusters
        ('C2', 'C1')
        """
        return tuple(dict.fromkeys(cluster for broker in self.brokers for cluster in broker.clusters))

    def only(self, *kinds: LinkKind) -> "Overlay":
        """The same brokers with the links of these kinds alone.

        >>> Overlay(["B1", "B2", "B3"], [("B1", "B2"), Link("B2", "B3", LinkKind.SOFT)]).only(LinkKind.SOFT)
        Overlay(3 brokers B1…B3, 1 soft link)
        """
        return Overlay(self.brokers, (link for link in self.links if link.kind in kinds))

    def with_broker(self, broker: Broker | str) -> "Overlay":
        """One more broker, at the last position.

        >>> Overlay(["B1"]).with_broker("B2").ids
        ('B1', 'B2')
        """
        return Overlay((*self.brokers, broker), self.links)

    def without_broker(self, broker_id: str) -> "Overlay":
        """The broker is gone, and its links with it.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.without_broker("B3")
        Overlay(2 brokers B1…B2, 1 primary link)
        """
        self.position(broker_id)
        brokers = (broker for broker in self.brokers if broker.id != broker_id)
        return Overlay(brokers, (link for link in self.links if broker_id not in link.ends))

    def replace_broker(self, broker: Broker) -> "Overlay":
        """Other properties for a broker that keeps its id, position and links.

        >>> Overlay(["B1", "B2"]).replace_broker(Broker("B1", capacity_hz=50)).broker("B1").capacity_hz
        50.0
        """
        self.position(broker.id)
        return Overlay((broker if old.id == broker.id else old for old in self.brokers), self.links)

    def with_link(self, link: Link | tuple[str, str]) -> "Overlay":
        """One more link.

        >>> Overlay(["B1", "B2"]).with_link(("B1", "B2"))
        Overlay(2 brokers B1…B2, 1 primary link)
        """
        return Overlay(self.brokers, (*self.links, link))

    def without_link(self, one: str, other: str) -> "Overlay":
        """The link between the two brokers is gone.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.without_link("B3", "B2")
        Overlay(3 brokers B1…B3, 1 primary link)
        """
        gone = self.link(one, other)
        return Overlay(self.brokers, (link for link in self.links if link is not gone))

    def replace_link(self, link: Link) -> "Overlay":
        """Another kind or delay for the link between the same two brokers: a promotion, say.

        >>> Overlay(["B1", "B2"], [Link("B1", "B2", LinkKind.CANDIDATE)]).replace_link(Link("B1", "B2", LinkKind.SOFT))
        Overlay(2 brokers B1…B2, 1 soft link)
        """
        return self.without_link(*link.ends).with_link(link)

    def is_connected(self) -> bool:
        """Whether every broker reaches every other one; an overlay without brokers does.

        >>> Overlay(["B1", "B2"]).is_connected(), Overlay(["B1", "B2"], [("B1", "B2")]).is_connected()
        (False, True)
        """
        return not self.brokers or rustworkx.is_connected(self._graph)

    def is_tree(self) -> bool:
        """Whether there is exactly one path between any two brokers.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.is_tree(), chain.with_link(("B1", "B3")).is_tree()
        (True, False)
        """
        return len(self.links) == len(self.brokers) - 1 and self.is_connected()

    def __len__(self) -> int:
        return len(self.brokers)

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._positions

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type["Overlay"], tuple[tuple[Broker, ...], tuple[Link, ...]]]:
        # What is cached is cheaper to compute again than to send.
        return Overlay, (self.brokers, self.links)

    def __repr__(self) -> str:
        span = f" {self.ids[0]}…{self.ids[-1]}" if len(self) > 1 else f" {self.ids[0]}" if self.ids else ""
        counts = [(sum(link.kind is kind for link in self.links), f"{kind.value} link") for kind in LinkKind]
        parts = [_counted(len(self), "broker") + span, *(_counted(*count) for count in counts if count[0])]
        return f"Overlay({', '.join(parts)})"

    @cached_property
    def _hash(self) -> int:
        return hash((self.brokers, self.links))

    @cached_property
    def _positions(self) -> Mapping[str, int]:
        return MappingProxyType({broker_id: position for position, broker_id in enumerate(self.ids)})

    @cached_property
    def _links(self) -> Mapping[tuple[str, str], Link]:
        return MappingProxyType({link.ends: link for link in self.links})

    @cached_property
    def _neighbours(self) -> tuple[tuple[str, ...], ...]:
        """By position; rustworkx lists neighbours in the order of insertion, which is nobody's business."""
        ids, graph = self.ids, self._graph
        return tuple(tuple(ids[index] for index in sorted(graph.neighbors(position))) for position in range(len(ids)))

    @cached_property
    def _graph(self) -> rustworkx.PyGraph[str, Link]:
        """For this package only: a node's index is the broker's position."""
        graph: rustworkx.PyGraph[str, Link] = rustworkx.PyGraph()
        graph.add_nodes_from(self.ids)
        position = self._positions
        graph.add_edges_from([(position[link.first], position[link.second], link) for link in self.links])
        return graph

    def _order(self, link: Link) -> tuple[int, int]:
        one, other = self._positions[link.first], self._positions[link.second]
        return (one, other) if one < other else (other, one)

    def _missing(self, broker_id: str) -> str:
        return f"broker {broker_id!r} is not in the overlay, {nearest(str(broker_id), self.ids)}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _repeated(items: Iterable[_Item]) -> _Item:
    return Counter(items).most_common(1)[0][0]
