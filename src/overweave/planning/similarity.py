"""How similar clients are, and what load they bring: what MINIMAL's algorithms ask for (MINIMAL 4), and nothing else.

MINIMAL 5.5 leaves both functions open. Here they are a port with two implementations: boxes of a content space
(`box_similarity`) and measured profiles (`profile_similarity`). There is no matrix of all pairs: rows are computed when they are
asked for. A client has advertisements, subscriptions or both.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from overweave.planning.problem import Reals, Whole

Flags = NDArray[np.bool_]
#: The similarity of one broker with every broker.
BrokerRow = Callable[[int], Reals]


class Similarity(Protocol):
    """Clients are numbers; ``home`` is the broker of each client, -1 for those without one."""

    @property
    def publishes(self) -> Flags:
        """Clients with advertisements."""
        ...

    @property
    def subscribes(self) -> Flags:
        """Clients with subscriptions."""
        ...

    @property
    def impact_hz(self) -> Reals:
        """The load impact of each client on a broker that has no other (4.3)."""
        ...

    def interest(self, publisher: int) -> Reals:
        """The interest between the advertisements of one client and the subscriptions of every client (eq 3, summed as in 4)."""
        ...

    def at_brokers(self, client: int, home: Whole, brokers: int) -> tuple[Reals, Reals]:
        """The similarity of a client with the subscribers of each broker (algorithm 2), and the load eq 5 would count twice."""
        ...

    def commonality(self, home: Whole, brokers: int) -> BrokerRow:
        """The commonality of a broker with every broker (eq 2)."""
        ...

    def zones(self, home: Whole, brokers: int) -> BrokerRow:
        """The symmetric similarity of a broker's zone of interest, the union of its subscriptions, with every broker's."""
        ...
