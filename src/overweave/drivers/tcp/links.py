"""Links of a live broker: its neighbours, their connections and diallers, and the links that are missing.

Links come and go: the core opens and closes them, and brokers that are no neighbours connect to exchange states of the overlay.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from overweave.contract.overlay_state import OverlayRecord, OverlayState
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.dialler import Dialler
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.outbound_handshake import HandshakeOwner
from overweave.drivers.tcp.security import Identity
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import Refused
from overweave.overlay.parts import LinkKind
from overweave.routing import PROTOCOLS

#: A connected neighbour without an established session for this long is reported: nothing passes to it.
UNESTABLISHED_S = 3.0


@dataclass(slots=True, eq=False)
class NeighbourLink:
    """The link to one neighbour."""

    kind: LinkKind = LinkKind.PRIMARY
    #: Whether the neighbour is a guest of this broker, or this one of it: guests dial.
    guest: bool = False
    contact: bool = False
    #: None: the neighbour dials, or this broker its contact by the URL where it joins.
    dialler: Dialler | None = None
    #: None: disconnected.
    connection: Connection | None = None
    #: Since when the connection has had no established session; None: it has one.
    unestablished_since_s: float | None = None
    #: The broker that dialled the connection.
    dialled_by: str = ""
    #: What the neighbour presented when it dialled last, to be checked again when the tokens change.
    identity: Identity | None = None


class Links:
    """The links of one broker, by neighbour."""

    def __init__(self, settings: BrokerSettings, log: Log) -> None:
        self._settings, self._log = settings, log
        self._links: dict[str, NeighbourLink] = {}
        self._owner: HandshakeOwner | None = None
        #: The neighbours in the trees of the overlay, and whether this broker is in one.
        self._members: Collection[str] = ()
        self.is_member = False

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The neighbours, connected or not."""
        return tuple(self._links)

    @property
    def kinds(self) -> dict[str, LinkKind]:
        """The kinds of the links, by neighbour."""
        return {neighbour: link.kind for neighbour, link in self._links.items()}

    def __contains__(self, neighbour: str) -> bool:
        return neighbour in self._links

    def get(self, neighbour: str) -> NeighbourLink | None:
        """The link to a neighbour."""
        return self._links.get(neighbour)

    @property
    def is_isolated(self) -> bool:
        """Whether no other broker is connected, but guests."""
        return all(link.connection is None or link.guest for link in self._links.values())

    @property
    def is_dialling(self) -> bool:
        """Whether a neighbour is dialled when it is disconnected."""
        return any(link.dialler is not None for link in self._links.values())

    @property
    def contact(self) -> NeighbourLink | None:
        """The link to the broker that this one has joined at."""
        return next((link for link in self._links.values() if link.contact), None)

    def identities(self) -> Iterator[tuple[str, Identity]]:
        """The connected neighbours that have presented an identity."""
        for neighbour, link in list(self._links.items()):
            if link.identity is not None and link.connection is not None:
                yield neighbour, link.identity

    # ---- links

    def start(self, owner: HandshakeOwner) -> None:
        """Dial the neighbours: of the links of the network file only those to brokers with earlier names, so that one end dials.

        Of other links both ends dial, because the other end may not know an address. Guests dial, not their contacts.
        """
        self._owner = owner
        for neighbour, link in self._links.items():
            if link.dialler is None and self._dials(neighbour, link):
                self._start_dialler(neighbour, link)

    def open(self, neighbour: str, kind: LinkKind) -> None:
        """Open a link to a broker; one that it has opened gets a dialler too."""
        link = self._links.setdefault(neighbour, NeighbourLink(kind))
        if link.dialler is None:
            self._start_dialler(neighbour, link)

    def add(self, neighbour: str, kind: LinkKind) -> None:
        """Accept a link that the other end opened, or that of a guest at its contact."""
        self._links.setdefault(neighbour, NeighbourLink(kind))

    def adopt(self, record: OverlayRecord) -> None:
        """The overlay has changed, or a guest has joined. A link that began as a guest's is dialled when it is in a tree."""
        self._members, self.is_member = _place_of(self._settings.id, record.state)
        for neighbour, link in self._links.items():
            link.guest, link.contact = neighbour in record.guests, neighbour == record.contact
            if link.dialler is not None:
                link.dialler.guest = link.contact
            elif (link.contact or neighbour in self._members) and self._dials(neighbour, link):
                self._start_dialler(neighbour, link)

    def remove(self, neighbour: str) -> None:
        """Remove a link and stop its dialler; the connection is the caller's."""
        link = self._links.pop(neighbour, None)
        if link is not None and link.dialler is not None:
            link.dialler.cancel()

    def reset(self, kinds: Mapping[str, LinkKind], record: OverlayRecord) -> None:
        """Replace all links by those of a new core, all disconnected."""
        self._members, self.is_member = _place_of(self._settings.id, record.state)
        fresh = {
            neighbour: NeighbourLink(kind, neighbour in record.guests, neighbour == record.contact)
            for neighbour, kind in kinds.items()
        }
        for neighbour, link in list(self._links.items()):
            new = fresh.get(neighbour)
            if new is None or (link.guest, link.contact) != (new.guest, new.contact):
                self.remove(neighbour)
        for neighbour, new in fresh.items():
            self._links.setdefault(neighbour, new).kind = new.kind
            self.on_disconnected(neighbour)

    async def close(self) -> None:
        """Stop all diallers."""
        tasks = [link.dialler.task for link in self._links.values() if link.dialler is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dials(self, neighbour: str, link: NeighbourLink) -> bool:
        """Whether this end of a link dials, by the name of the neighbour."""
        if link.guest or link.contact:
            return link.contact and (self.is_member or self._settings.join is None)
        own, overlay = self._settings.id, self._settings.overlay
        is_listed = own in overlay and neighbour in overlay and overlay.has_link(own, neighbour)
        return not is_listed or _rank(neighbour) < _rank(own)

    def _start_dialler(self, neighbour: str, link: NeighbourLink) -> None:
        assert self._owner is not None
        link.dialler = Dialler(
            self._owner, neighbour, self._log, link.kind, connected=link.connection is not None, guest=link.contact
        )

    # ---- connections

    def check_collision(self, neighbour: str, *, dialled_by: str) -> None:
        """Refuse a second connection to a neighbour when two brokers dial each other at the same time.

        Both must choose the same connection, or each would close the other's choice: it is that of the broker with the later name
        (as in BGP, RFC 4271 6.8). Of two connections that one broker dialled the newer counts.
        """
        link = self._links.get(neighbour)
        if link is None or link.connection is None or link.dialled_by == dialled_by:
            return
        is_earlier = _rank(dialled_by) < max(_rank(neighbour), _rank(self._settings.id))
        is_silent = time.monotonic() - link.connection.received_s > self._settings.ping_interval_s
        if is_earlier and not is_silent:
            raise Refused("duplicate-link", f"broker {self._settings.id} has a connection to {neighbour} already")

    def on_connected(self, neighbour: str, connection: Connection, dialled_by: str, identity: Identity | None) -> None:
        """Record the connection of a link."""
        link = self._links[neighbour]
        link.connection, link.dialled_by = connection, dialled_by
        link.unestablished_since_s = time.monotonic()
        if identity is not None:
            link.identity = identity
        if link.dialler is not None:
            link.dialler.on_connected()

    def on_disconnected(self, neighbour: str) -> None:
        """Record the loss of a connection, if the peer is a neighbour."""
        link = self._links.get(neighbour)
        if link is not None:
            link.connection = None
            if link.dialler is not None:
                link.dialler.on_disconnected()

    # ---- health

    @property
    def is_rerouted(self) -> bool:
        """Whether traffic is routed around missing links: the protocol does so, and some neighbour is connected."""
        is_connected = any(link.connection is not None for link in self._links.values())
        return PROTOCOLS[self._settings.routing].reroutes and is_connected

    def observe_sessions(self, established: Collection[str]) -> None:
        """Record the neighbours with an established session, to be called at regular intervals."""
        now_s = time.monotonic()
        for neighbour, link in self._links.items():
            if neighbour in established:
                link.unestablished_since_s = None
            elif link.unestablished_since_s is None:
                link.unestablished_since_s = now_s

    def unestablished(self) -> str | None:
        """The connected neighbours without a session for some seconds, for people; None if there are none."""
        until_s = time.monotonic() - UNESTABLISHED_S
        stuck = [
            neighbour
            for neighbour, link in self._links.items()
            if link.connection is not None and link.unestablished_since_s is not None and link.unestablished_since_s < until_s
        ]
        return f"no session with {', '.join(stuck)}, though connected" if stuck else None

    def missing(self) -> str | None:
        """The missing links with the last errors, for people; None if all neighbours are connected."""
        missing = [
            f"{neighbour} ({link.dialler.error})" if link.dialler is not None and link.dialler.error else neighbour
            for neighbour, link in self._links.items()
            if link.connection is None
        ]
        return "no link to " + ", ".join(missing) if missing else None


def _place_of(broker: str, state: OverlayState) -> tuple[set[str], bool]:
    """The neighbours of a broker in the trees of a state, and whether it is in one."""
    is_member = not state.is_joining and any(broker in tree.brokers for tree in state)
    return {each for tree in state for each in tree.neighbours(broker)}, is_member


def _rank(broker: str) -> tuple[int, str]:
    """The order of names, in which both ends of a link agree: short ones first."""
    return len(broker), broker
