"""The overlay: brokers and links as one immutable value.

Brokers keep their given order; the index of a broker is its *position* and breaks every tie in this package. Links are sorted
by the positions of their ends, so overlays with equal brokers (in order) and links are equal. Two brokers have at most one link.

Neighbours, connectivity and paths include every link, candidate links too; ``overlay.only(LinkKind.PRIMARY)`` is the primary
network alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import rustworkx

from overweave.errors import OverlayError
from overweave.overlay.lookup import Lookup, missing, sorted_links
from overweave.overlay.parts import Broker, Link, LinkKind, link_ends


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
        edges = [link if isinstance(link, Link) else Link(*link) for link in links]
        object.__setattr__(self, "links", sorted_links(self.ids, edges))

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
        """The index of the broker in `brokers`.

        >>> Overlay(["B1", "B2"]).position("B2")
        1
        """
        try:
            return self.lookup.positions[broker_id]
        except KeyError:
            raise OverlayError(missing(broker_id, self.ids)) from None

    def link(self, one: str, other: str) -> Link:
        """The link between two brokers, in any order.

        >>> Overlay(["B1", "B2"], [("B1", "B2")]).link("B2", "B1").ends
        ('B1', 'B2')
        """
        try:
            return self.lookup.links[link_ends(one, other)]
        except KeyError:
            self.position(one), self.position(other)
            raise OverlayError(f"link {one!r}-{other!r}: expected a link of the overlay") from None

    def has_link(self, one: str, other: str) -> bool:
        """Whether the two brokers have a link of any kind.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.has_link("B2", "B1"), chain.has_link("B1", "B3")
        (True, False)
        """
        self.position(one), self.position(other)
        return link_ends(one, other) in self.lookup.links

    def neighbours(self, broker_id: str) -> tuple[str, ...]:
        """The neighbours of the broker, in order of position.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.neighbours("B2")
        ('B1', 'B3')
        """
        return self.lookup.neighbours[self.position(broker_id)]

    def degree(self, broker_id: str) -> int:
        """The number of neighbours of the broker.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.degree("B1"), chain.degree("B2")
        (1, 2)
        """
        return len(self.neighbours(broker_id))

    def members(self, cluster: str) -> tuple[str, ...]:
        """The brokers of the cluster, including edge brokers of MERC.

        >>> Overlay([Broker("B1", cluster="C1"), Broker("B2", cluster="C2", other_clusters=("C1",))]).members("C1")
        ('B1', 'B2')
        """
        return tuple(broker.id for broker in self.brokers if cluster in broker.clusters)

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """The clusters of the brokers, in order of first appearance.

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
        """The overlay with one more broker, at the last position.

        >>> Overlay(["B1"]).with_broker("B2").ids
        ('B1', 'B2')
        """
        return Overlay((*self.brokers, broker), self.links)

    def without_broker(self, broker_id: str) -> "Overlay":
        """The overlay without the broker and its links.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.without_broker("B3")
        Overlay(2 brokers B1…B2, 1 primary link)
        """
        self.position(broker_id)
        brokers = (broker for broker in self.brokers if broker.id != broker_id)
        return Overlay(brokers, (link for link in self.links if broker_id not in link.ends))

    def replace_broker(self, broker: Broker) -> "Overlay":
        """The overlay with other properties of a broker; its id, position and links stay.

        >>> Overlay(["B1", "B2"]).replace_broker(Broker("B1", capacity_hz=50)).broker("B1").capacity_hz
        50.0
        """
        self.position(broker.id)
        return Overlay((broker if old.id == broker.id else old for old in self.brokers), self.links)

    def with_link(self, link: Link | tuple[str, str]) -> "Overlay":
        """The overlay with one more link.

        >>> Overlay(["B1", "B2"]).with_link(("B1", "B2"))
        Overlay(2 brokers B1…B2, 1 primary link)
        """
        return Overlay(self.brokers, (*self.links, link))

    def without_link(self, one: str, other: str) -> "Overlay":
        """The overlay without the link between the two brokers.

        >>> chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
        >>> chain.without_link("B3", "B2")
        Overlay(3 brokers B1…B3, 1 primary link)
        """
        gone = self.link(one, other)
        return Overlay(self.brokers, (link for link in self.links if link is not gone))

    def replace_link(self, link: Link) -> "Overlay":
        """The overlay with another kind or delay of a link, for example after a promotion.

        >>> Overlay(["B1", "B2"], [Link("B1", "B2", LinkKind.CANDIDATE)]).replace_link(Link("B1", "B2", LinkKind.SOFT))
        Overlay(2 brokers B1…B2, 1 soft link)
        """
        return self.without_link(*link.ends).with_link(link)

    def is_connected(self) -> bool:
        """Whether every broker reaches every other one; true without brokers.

        >>> Overlay(["B1", "B2"]).is_connected(), Overlay(["B1", "B2"], [("B1", "B2")]).is_connected()
        (False, True)
        """
        return not self.brokers or rustworkx.is_connected(self.lookup.graph)

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
        return broker_id in self.lookup.positions

    def __hash__(self) -> int:
        return self.lookup.hash_with(self.brokers)

    def __reduce__(self) -> tuple[type["Overlay"], tuple[tuple[Broker, ...], tuple[Link, ...]]]:
        # The lookup tables are cheaper to compute than to send.
        return Overlay, (self.brokers, self.links)

    def __repr__(self) -> str:
        span = f" {self.ids[0]}…{self.ids[-1]}" if len(self) > 1 else f" {self.ids[0]}" if self.ids else ""
        counts = [(sum(link.kind is kind for link in self.links), f"{kind.value} link") for kind in LinkKind]
        parts = [_counted(len(self), "broker") + span, *(_counted(*count) for count in counts if count[0])]
        return f"Overlay({', '.join(parts)})"

    @cached_property
    def lookup(self) -> Lookup:
        """The tables for path algorithms of this package."""
        return Lookup(self.ids, self.links)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
