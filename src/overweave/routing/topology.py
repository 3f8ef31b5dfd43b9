"""The multicasting layer of destination-based routing: link states, and the next hop to every broker (DEST III-B, C).

Every broker floods the state of its own links, and a later state replaces an earlier one, so that all converge to the same
topology table (TRT). A link exists if both its ends announce it. From the table each broker computes the shortest paths (SPRT).
Among several neighbours all brokers choose the first by name: the paths of a message form a tree, and no broker gets it twice.
"""

from collections import deque

from overweave.batches.destinations import NextHops
from overweave.routing.messages import LinkState

#: The states of a link: up, down, or not tried yet.
UP, DOWN, PENDING = "up", "down", "pending"


class Topology:
    """The topology table of one broker.

    >>> near, far = Topology("B1", 0), LinkState("B2", 1, incarnation=1, version=1, up=("B1",))
    >>> near.add("B2")
    >>> near.set("B2", UP), near.accept(far)
    (True, True)
    >>> near.next_hops.by_neighbour, near.complete
    ((('B2', 2),), True)
    """

    def __init__(self, broker: str, number: int, incarnation: int = 1) -> None:
        self.broker, self.number = broker, number
        self._incarnation, self._version = incarnation, 1
        self._links: dict[str, str] = {}
        self._states: dict[str, LinkState] = {}
        #: The adjacency by links that neither end announces as down.
        self._adjacent: dict[str, set[str]] = {broker: set()}
        #: Derived values, computed on demand.
        self._shortest_paths: _ShortestPaths | None = None
        self._members: dict[str, int] | None = None
        self._complete: bool | None = None

    def __len__(self) -> int:
        return len(self._states)

    # ---- own links

    def add(self, neighbour: str) -> None:
        """Add a pending link."""
        self._links[neighbour] = PENDING
        self._changed()

    def remove(self, neighbour: str) -> None:
        """Remove a link."""
        del self._links[neighbour]
        self._changed()

    def set(self, neighbour: str, state: str) -> bool:
        """Set the state of a link; whether it has changed."""
        if self._links[neighbour] == state:
            return False
        self._links[neighbour] = state
        self._changed()
        return True

    def up(self) -> list[str]:
        """The neighbours whose link is up."""
        return [neighbour for neighbour, state in self._links.items() if state == UP]

    def has_pending_links(self) -> bool:
        """Whether some links are pending."""
        return PENDING in self._links.values()

    def is_neighbour(self, peer: str) -> bool:
        """Whether there is a link to a peer."""
        return peer in self._links

    def own_state(self) -> LinkState:
        """The state of this broker's own links."""
        up = tuple(sorted(neighbour for neighbour, state in self._links.items() if state == UP))
        pending = tuple(sorted(neighbour for neighbour, state in self._links.items() if state == PENDING))
        return LinkState(self.broker, self.number, self._incarnation, self._version, up, pending)

    # ---- link states of other brokers

    def accept(self, state: LinkState) -> bool:
        """Accept a link state of another broker; whether it is new, and to be flooded."""
        if state.id == self.broker:
            return False
        known = self._states.get(state.id)
        if known is not None and (known.incarnation, known.version) >= (state.incarnation, state.version):
            return False
        self._states[state.id] = state
        self._update(state.id, known is None or known.incarnation != state.incarnation)
        return True

    def other_states(self) -> list[LinkState]:
        """The link states of other brokers."""
        return list(self._states.values())

    def states(self) -> list[LinkState]:
        """All link states."""
        return [self.own_state(), *self.other_states()]

    def number_of(self, broker: str) -> int | None:
        """The number of a broker in destination lists."""
        if broker == self.broker:
            return self.number
        state = self._states.get(broker)
        return None if state is None else state.number

    # ---- derived values

    @property
    def next_hops(self) -> NextHops:
        """The next hops to all reachable brokers."""
        return self._paths().next_hops

    @property
    def distances(self) -> dict[str, int]:
        """The distances in hops to all reachable brokers, this one included."""
        return self._paths().distances

    def adjacency(self) -> dict[str, list[str]]:
        """The reachable brokers, each with its neighbours."""
        states = self._all()
        return {id: [next for next in states[id].up if next in states and id in states[next].up] for id in self.distances}

    @property
    def members(self) -> dict[str, int]:
        """The incarnations of the other brokers that are reachable, now or once pending links are up."""
        if self._members is None:
            connected = _connected(self.broker, self._adjacent) - {self.broker}
            self._members = {id: self._states[id].incarnation for id in sorted(connected)}
        return self._members

    @property
    def complete(self) -> bool:
        """Whether all reachable link states are known: none has a pending link or an unknown neighbour."""
        if self._complete is None:
            states = self._all()
            self._complete = all(_is_settled(states[id], states) for id in (self.broker, *self.members))
        return self._complete

    def validate(self) -> None:
        """Check the invariants."""
        for broker, joined in self._adjacent.items():
            assert joined == {next for next in self._open(broker) if broker in self._open(next)}, broker
            assert all(broker in self._adjacent[next] for next in joined), broker
        if self._members is not None:
            assert set(self._members) == _connected(self.broker, self._adjacent) - {self.broker}

    def _changed(self) -> None:
        self._version += 1
        self._update(self.broker, False)

    def _update(self, broker: str, is_new: bool) -> None:
        """Update the adjacency after the links of a broker have changed."""
        self._shortest_paths = self._complete = None
        before, now = self._adjacent.get(broker, set()), {next for next in self._open(broker) if broker in self._open(next)}
        for gone in before - now:
            self._adjacent[gone].discard(broker)
        for new in now - before:
            self._adjacent[new].add(broker)
        self._adjacent[broker] = now
        if is_new or before != now:
            self._members = None

    def _open(self, broker: str) -> list[str]:
        """The neighbours of a broker by links that it does not announce as down."""
        if broker == self.broker:
            return [neighbour for neighbour, state in self._links.items() if state != DOWN]
        state = self._states.get(broker)
        return [] if state is None else [*state.up, *state.pending]

    def _all(self) -> dict[str, LinkState]:
        return {**self._states, self.broker: self.own_state()}

    def _paths(self) -> "_ShortestPaths":
        if self._shortest_paths is None:
            self._shortest_paths = _ShortestPaths(self.broker, self._all())
        return self._shortest_paths


class _ShortestPaths:
    """The shortest paths from one broker."""

    def __init__(self, broker: str, states: dict[str, LinkState]) -> None:
        self.distances = {broker: 0}
        reach: dict[str, int] = {}
        first: dict[str, str] = {}
        queue = deque([broker])
        while queue:
            at = queue.popleft()
            for next in states[at].up:
                state = states.get(next)
                if next in self.distances or state is None or at not in state.up:
                    continue
                self.distances[next] = self.distances[at] + 1
                first[next] = first.get(at, next)
                reach[first[next]] = reach.get(first[next], 0) | 1 << state.number
                queue.append(next)
        self.next_hops = NextHops(reach.items())


def _connected(broker: str, joined: dict[str, set[str]]) -> set[str]:
    known, queue = {broker}, [broker]
    while queue:
        new = joined[queue.pop()] - known
        known |= new
        queue.extend(new)
    return known


def _is_settled(state: LinkState, states: dict[str, LinkState]) -> bool:
    """Whether both ends of a broker's links are known and agree, except for links that are down."""
    for next in (*state.up, *state.pending):
        other = states.get(next)
        if other is None:
            return False
        if state.id in other.pending or (state.id in other.up and next in state.pending):
            return False
    return True
