"""The multicasting layer of destination-based routing: who is linked to whom, and the next hop to everybody (DEST III-B, C).

Every broker floods the state of its own links, and a later state replaces an earlier one, so that all come to know the same
overlay (the topology table, TRT). A link is there when both its ends say so. From that each broker finds for itself over
which neighbour every other is nearest (the shortest paths, SPRT). Among several neighbours the first by name is taken, by all
brokers: so the ways of a message are a tree, and nobody gets it twice.
"""

from collections import deque

from overweave.batches.destinations import NextHops
from overweave.routing.messages import LinkState

#: A link works (UP), does not (DOWN), or has not been tried for long enough (PENDING).
UP, DOWN, PENDING = "up", "down", "pending"


class Topology:
    """What one broker knows of the overlay.

    >>> near, far = Topology("B1", 0), LinkState("B2", 1, incarnation=1, version=1, up=("B1",))
    >>> near.add("B2")
    >>> near.set("B2", UP), near.accept(far)
    (True, True)
    >>> near.next_hops.by_neighbour, near.complete
    ((('B2', 2),), True)
    """

    def __init__(self, broker: str, number: int) -> None:
        self.broker, self.number = broker, number
        self._incarnation, self._version = 1, 1
        self._links: dict[str, str] = {}
        self._states: dict[str, LinkState] = {}
        #: Who is joined to whom by links of which no end says that they do not work.
        self._joined: dict[str, set[str]] = {broker: set()}
        #: What follows from it, when it was last asked for.
        self._reached: _ShortestPaths | None = None
        self._members: dict[str, int] | None = None
        self._whole: bool | None = None

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, incarnation: int) -> None:
        """Which life of the broker this is."""
        self._incarnation = incarnation

    # ---- its own links

    def add(self, neighbour: str) -> None:
        """There is a link that has not been tried."""
        self._links[neighbour] = PENDING
        self._changed()

    def remove(self, neighbour: str) -> None:
        """There is no such link any more."""
        del self._links[neighbour]
        self._changed()

    def set(self, neighbour: str, state: str) -> bool:
        """A link works or does not; whether that is news."""
        if self._links[neighbour] == state:
            return False
        self._links[neighbour] = state
        self._changed()
        return True

    def up(self) -> list[str]:
        """The neighbours whose link works."""
        return [neighbour for neighbour, state in self._links.items() if state == UP]

    def has_pending_links(self) -> bool:
        """Whether some links have not been tried."""
        return PENDING in self._links.values()

    def is_neighbour(self, peer: str) -> bool:
        """Whether there is a link to a peer."""
        return peer in self._links

    def own_state(self) -> LinkState:
        """The state of this broker's own links."""
        up = tuple(sorted(neighbour for neighbour, state in self._links.items() if state == UP))
        pending = tuple(sorted(neighbour for neighbour, state in self._links.items() if state == PENDING))
        return LinkState(self.broker, self.number, self._incarnation, self._version, up, pending)

    # ---- what others say

    def accept(self, state: LinkState) -> bool:
        """Take in what another broker says of its links; whether it is news, to be told on."""
        if state.id == self.broker:
            return False
        known = self._states.get(state.id)
        if known is not None and (known.incarnation, known.version) >= (state.incarnation, state.version):
            return False
        self._states[state.id] = state
        self._find_anew(state.id, known is None or known.incarnation != state.incarnation)
        return True

    def other_states(self) -> list[LinkState]:
        """All that others say of their links."""
        return list(self._states.values())

    def states(self) -> list[LinkState]:
        """All that is known."""
        return [self.own_state(), *self.other_states()]

    def number_of(self, broker: str) -> int | None:
        """What stands for a broker in destination lists."""
        if broker == self.broker:
            return self.number
        state = self._states.get(broker)
        return None if state is None else state.number

    # ---- what follows from it

    @property
    def next_hops(self) -> NextHops:
        """The next hops to all who can be reached."""
        return self._reach().ways

    @property
    def distances(self) -> dict[str, int]:
        """How far it is to all who can be reached, this broker included."""
        return self._reach().distances

    def adjacency(self) -> dict[str, list[str]]:
        """All who can be reached, each with those it has a link to that works."""
        states = self._all()
        return {id: [next for next in states[id].up if next in states and id in states[next].up] for id in self.distances}

    @property
    def members(self) -> dict[str, int]:
        """The others who can be reached, now or as soon as links that were not tried work, with their incarnations."""
        if self._members is None:
            connected = _connected(self.broker, self._joined) - {self.broker}
            self._members = {id: self._states[id].incarnation for id in sorted(connected)}
        return self._members

    @property
    def complete(self) -> bool:
        """Whether all that can be reached is known: no link of theirs is untried, no neighbour of theirs unheard of."""
        if self._whole is None:
            states = self._all()
            self._whole = all(_is_settled(states[id], states) for id in (self.broker, *self.members))
        return self._whole

    def validate(self) -> None:
        """Check what must always hold."""
        for broker, joined in self._joined.items():
            assert joined == {next for next in self._open(broker) if broker in self._open(next)}, broker
            assert all(broker in self._joined[next] for next in joined), broker
        if self._members is not None:
            assert set(self._members) == _connected(self.broker, self._joined) - {self.broker}

    def _changed(self) -> None:
        self._version += 1
        self._find_anew(self.broker, False)

    def _find_anew(self, broker: str, is_new: bool) -> None:
        """The links of a broker have changed."""
        self._reached = self._whole = None
        before, now = self._joined.get(broker, set()), {next for next in self._open(broker) if broker in self._open(next)}
        for gone in before - now:
            self._joined[gone].discard(broker)
        for new in now - before:
            self._joined[new].add(broker)
        self._joined[broker] = now
        if is_new or before != now:
            self._members = None

    def _open(self, broker: str) -> list[str]:
        """The neighbours of a broker at links that work or were not tried, as it says."""
        if broker == self.broker:
            return [neighbour for neighbour, state in self._links.items() if state != DOWN]
        state = self._states.get(broker)
        return [] if state is None else [*state.up, *state.pending]

    def _all(self) -> dict[str, LinkState]:
        return {**self._states, self.broker: self.own_state()}

    def _reach(self) -> "_ShortestPaths":
        if self._reached is None:
            self._reached = _ShortestPaths(self.broker, self._all())
        return self._reached


class _ShortestPaths:
    """Who can be reached from one broker, and how."""

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
        self.ways = NextHops(reach.items())


def _connected(broker: str, joined: dict[str, set[str]]) -> set[str]:
    known, queue = {broker}, [broker]
    while queue:
        new = joined[queue.pop()] - known
        known |= new
        queue.extend(new)
    return known


def _is_settled(state: LinkState, states: dict[str, LinkState]) -> bool:
    """Whether the other ends of a broker's links are known, and both ends agree, but for those that say it does not work."""
    for next in (*state.up, *state.pending):
        other = states.get(next)
        if other is None:
            return False
        if state.id in other.pending or (state.id in other.up and next in state.pending):
            return False
    return True
