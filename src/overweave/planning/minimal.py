"""Client-broker allocation of MINIMAL 5.1 (algorithms 1 and 2): brokers are deployed one by one, as clients need them.

Clients come in the order of a ranking. Each goes to the deployed broker that is most similar to it and has room, which means
``load + impact < LCF x capacity``; if none has, the next broker is deployed. The impact of a client at a broker leaves out what
eq 5 would count twice: traffic between a publisher and a subscriber of the same broker. Among equally similar brokers the one
deployed first is taken.

Departures: a client for which no broker on offer is large enough is an error that names it, unless ``oversize`` is ``deploy``;
then it gets a broker of its own, as the text has it. Brokers are popped by capacity, descending, or in the order that the
caller gives (`broker_cost`); one that cannot hold the client at hand is left on the stack for others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from overweave.errors import DoesNotFit, GoalNotMet
from overweave.planning.broker_cost import deployment_order
from overweave.planning.problem import Reals, Whole
from overweave.planning.rank import RANKINGS
from overweave.planning.similarity import Similarity

#: The load compensation factor of MINIMAL table 1: a quarter of each broker is for forwarding.
LCF = 0.75
Oversize = Literal["deploy", "error"]
#: Whether a broker has room for a client in other respects; called only to place the client.
Admission = Callable[[int, int], bool]


class MinimalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How clients are allocated."""

    #: A name in `RANKINGS`.
    ranking: str = "gig"
    #: The share of a broker's capacity that is for its own clients (5.4).
    lcf: float = LCF
    #: What becomes of a client that no empty broker has room for.
    oversize: Oversize = "error"
    #: Where brokers cost differently: deploy those first that have most capacity for their cost, not the largest.
    by_cost: bool = True


@dataclass(frozen=True, eq=False)
class Offer:
    """Brokers on offer, by position: how many messages per second each can process, and the order in which they are deployed."""

    ids: Sequence[str]
    capacity_hz: Reals
    order: Whole
    #: None: all cost the same.
    cost: Reals | None = None

    @classmethod
    def by_capacity(cls, ids: Sequence[str], capacity_hz: Reals, cost: Reals | None = None) -> "Offer":
        """The brokers, the one with the greatest capacity first (algorithm 1, line 6), or with the greatest for its cost."""
        return cls(ids, capacity_hz, deployment_order(capacity_hz, np.ones(len(ids)) if cost is None else cost), cost)


@dataclass(frozen=True, eq=False)
class Deployment:
    """Deployed brokers by their position on offer, and for each client the number of its broker among these."""

    broker: Whole
    home: Whole
    #: The load of each deployed broker without that of forwarding (eq 5).
    load_hz: Reals


def allocate_clients(
    similarity: Similarity,
    ids: Sequence[str],
    offer: Offer,
    options: MinimalOptions,
    draw: np.random.Generator,
    *,
    fixed: Whole | None = None,
    admit: Admission | None = None,
) -> Deployment:
    """A broker for every client; ``fixed`` has the position on offer of pinned clients, which come first, -1 for the others.

    Complexity: a row of similarity per client, so O(C^2) time and O(C + B) memory.
    """
    ranking = RANKINGS[options.ranking]
    if ranking.random_brokers:
        offer = Offer(offer.ids, offer.capacity_hz, draw.permutation(offer.order))  # and nobody looks at cost
    score = _at_random(draw) if ranking.random_brokers else _most_similar
    state = _Deploying(similarity, ids, offer, options, score, admit or _always)
    pinned = np.full(len(ids), -1, np.int64) if fixed is None else fixed
    for client in np.flatnonzero(pinned >= 0).tolist():
        state.pin(client, int(pinned[client]))
    for client in ranking.clients(similarity, draw).tolist():
        if pinned[client] < 0:
            state.place(client)
    if offer.cost is not None:
        state.replace_by_cheaper(offer.cost, pinned)
    return Deployment(np.array(state.deployed, np.int64), state.home, np.array(state.load_hz[: len(state.deployed)]))


def _always(client: int, broker: int) -> bool:  # noqa: ARG001
    return True


def _most_similar(similarity: Reals) -> Reals:
    return similarity


def _at_random(draw: np.random.Generator) -> Callable[[Reals], Reals]:
    def score(similarity: Reals) -> Reals:
        return draw.random(len(similarity))

    return score


class _Deploying:
    """The deployed brokers and the places of clients."""

    def __init__(
        self,
        similarity: Similarity,
        ids: Sequence[str],
        offer: Offer,
        options: MinimalOptions,
        score: Callable[[Reals], Reals],
        admit: Admission,
    ) -> None:
        self._similarity, self._ids, self._offer, self._options = similarity, ids, offer, options
        self._score, self._admit = score, admit
        self._stack = offer.order.tolist()
        self.deployed: list[int] = []
        self.home: Whole = np.full(len(ids), -1, np.int64)
        self.load_hz: Reals = np.zeros(len(offer.ids))
        self._limit: Reals = np.zeros(len(offer.ids))

    def place(self, client: int) -> None:
        """Algorithm 2, and lines 13 to 18 of algorithm 1."""
        count, impact = len(self.deployed), float(self._similarity.impact_hz[client])
        similarity, local = self._similarity.at_brokers(client, self.home, count)
        load = self.load_hz[:count] + impact - local
        score = np.where(load < self._limit[:count], self._score(similarity), -np.inf)
        while count and score[best := int(np.argmax(score))] > -np.inf:
            if self._admit(client, self.deployed[best]):
                self._attach(client, best, float(load[best]))
                return
            score[best] = -np.inf
        self._attach(client, self._deploy(client, impact), impact)

    def pin(self, client: int, broker: int) -> None:
        """Attach a client to a given broker, whatever load eq 5 has for it."""
        if not self._admit(client, broker):
            raise GoalNotMet("pins", f"broker {self._offer.ids[broker]!r} has no room for all that is pinned to it")
        if broker not in self.deployed:
            self._push(broker)
        at = self.deployed.index(broker)
        _, local = self._similarity.at_brokers(client, self.home, len(self.deployed))
        self._attach(client, at, float(self.load_hz[at] + self._similarity.impact_hz[client] - local[at]))

    def replace_by_cheaper(self, cost: Reals, pinned: Whole) -> None:
        """Let brokers give way to cheaper ones that are not in use, the dearest first; those with pinned clients stay."""
        for at in sorted(range(len(self.deployed)), key=lambda at: (-cost[self.deployed[at]], at)):
            clients = np.flatnonzero(self.home == at).tolist()
            if (pinned[clients] >= 0).any() or self._limit[at] == -np.inf:
                continue
            for broker in sorted(self._stack, key=lambda broker: (cost[broker], broker)):
                if cost[broker] >= cost[self.deployed[at]]:
                    break
                limit = self._options.lcf * self._offer.capacity_hz[broker]
                if self.load_hz[at] < limit:
                    # One that has admitted some of the clients only is of no use to others either.
                    self._stack.remove(broker)
                    if all(self._admit(client, broker) for client in clients):
                        self.deployed[at], self._limit[at] = broker, limit
                        break

    def _deploy(self, client: int, impact: float) -> int:
        """The first broker on the stack with room for a client, deployed."""
        share = self._options.lcf
        for broker in self._stack:
            if impact < share * self._offer.capacity_hz[broker] and self._admit(client, broker):
                return self._push(broker)
        if self._stack and self._options.oversize == "deploy":
            at = self._push(self._stack[0])
            self._limit[at] = -np.inf  # nobody else
            return at
        raise self._does_not_fit(client, impact)

    def _push(self, broker: int) -> int:
        self._stack.remove(broker)
        self._limit[len(self.deployed)] = self._options.lcf * self._offer.capacity_hz[broker]
        self.deployed.append(broker)
        return len(self.deployed) - 1

    def _attach(self, client: int, at: int, load_hz: float) -> None:
        self.home[client] = at
        self.load_hz[at] = load_hz

    def _does_not_fit(self, client: int, impact: float) -> DoesNotFit:
        id, lcf = self._ids[client], self._options.lcf
        if not self._stack:
            return DoesNotFit(id, f"client {id!r}: all {len(self._offer.ids)} brokers are in use and none has room for it")
        largest = float(self._offer.capacity_hz[self._stack].max()) * lcf
        if impact < largest:
            return DoesNotFit(
                id, f"client {id!r}: none of the {len(self._stack)} brokers left has room for what it sends and receives"
            )
        return DoesNotFit(
            id,
            f"client {id!r}: needs {impact:.6g} messages/s,"
            f" the largest broker left has less than {largest:.6g} for its clients (LCF {lcf:g})",
        )
