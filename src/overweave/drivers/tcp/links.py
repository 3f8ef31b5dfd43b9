"""Links of a live broker: its neighbours, their connections and diallers, and the links that are missing."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from overweave.broker.modules import MODULES
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.dialler import Dialler
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.outbound_handshake import Caller
from overweave.drivers.tcp.security import Identity
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import Refused
from overweave.overlay.parts import LinkKind
from overweave.routing import PROTOCOLS


@dataclass(slots=True, eq=False)
class NeighbourLink:
    """The link to one neighbour."""

    kind: LinkKind = LinkKind.PRIMARY
    #: None: the neighbour dials.
    dialler: Dialler | None = None
    #: None: disconnected.
    connection: Connection | None = None
    #: The broker that dialled the connection.
    dialled_by: str = ""
    #: What the neighbour presented when it dialled last, to be checked again when the tokens change.
    identity: Identity | None = None


class Links:
    """The links of one broker, by neighbour."""

    def __init__(self, settings: BrokerSettings, log: Log) -> None:
        self._settings, self._log = settings, log
        overlay = settings.overlay
        self._planned = {each: overlay.link(settings.id, each).kind for each in overlay.neighbours(settings.id)}
        #: The brokers that may connect: the neighbours, or all brokers if the overlay organises itself.
        opens_links = any(MODULES[name].opens_links for name in settings.modules)
        self._allowed_brokers = overlay.ids if opens_links else tuple(self._planned)
        self._links = {neighbour: NeighbourLink(kind) for neighbour, kind in self._planned.items()}
        self._caller: Caller | None = None

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

    def allows(self, broker: str) -> bool:
        """Whether a broker may connect."""
        return broker in self._allowed_brokers

    def identities(self) -> Iterator[tuple[str, Identity]]:
        """The connected neighbours that have presented an identity."""
        for neighbour, link in list(self._links.items()):
            if link.identity is not None and link.connection is not None:
                yield neighbour, link.identity

    # ---- links

    def start(self, caller: Caller) -> None:
        """Dial the neighbours that come earlier in the overlay; the later ones dial this broker."""
        self._caller = caller
        ids = self._settings.overlay.ids
        for neighbour, link in self._links.items():
            if ids.index(neighbour) < ids.index(self._settings.id) and link.dialler is None:
                self._start_dialler(neighbour, link)

    def open(self, neighbour: str, kind: LinkKind) -> None:
        """Open a link to a broker that is no neighbour yet."""
        if neighbour not in self._links:
            link = self._links[neighbour] = NeighbourLink(kind)
            self._start_dialler(neighbour, link)

    def add(self, neighbour: str, kind: LinkKind) -> None:
        """Accept a link that the other end opened."""
        self._links.setdefault(neighbour, NeighbourLink(kind))

    def remove(self, neighbour: str) -> None:
        """Remove a link and stop its dialler; the connection is the caller's."""
        link = self._links.pop(neighbour, None)
        if link is not None and link.dialler is not None:
            link.dialler.cancel()

    def reset(self) -> None:
        """Return to the planned links, all disconnected."""
        for neighbour in [each for each in self._links if each not in self._planned]:
            self.remove(neighbour)
        for neighbour, kind in self._planned.items():
            self._links.setdefault(neighbour, NeighbourLink(kind))
            self.on_disconnected(neighbour)

    async def close(self) -> None:
        """Stop all diallers."""
        tasks = [link.dialler.task for link in self._links.values() if link.dialler is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_dialler(self, neighbour: str, link: NeighbourLink) -> None:
        assert self._caller is not None
        link.dialler = Dialler(self._caller, neighbour, self._log, link.kind, connected=link.connection is not None)

    # ---- connections

    def check_collision(self, neighbour: str, *, dialled_by: str) -> None:
        """Refuse a second connection to a neighbour when two brokers dial each other at the same time.

        Both must choose the same connection, or each would close the other's choice: it is that of the broker which comes later
        in the overlay (as in BGP, RFC 4271 6.8). Of two connections that one broker dialled the newer counts.
        """
        link = self._links.get(neighbour)
        if link is None or link.connection is None or link.dialled_by == dialled_by:
            return
        ids = self._settings.overlay.ids
        is_earlier = ids.index(dialled_by) < max(ids.index(neighbour), ids.index(self._settings.id))
        is_silent = time.monotonic() - link.connection.received_s > self._settings.ping_interval_s
        if is_earlier and not is_silent:
            raise Refused("duplicate-link", f"broker {self._settings.id} has a connection to {neighbour} already")

    def on_connected(self, neighbour: str, connection: Connection, dialled_by: str, identity: Identity | None) -> None:
        """Record the connection of a link."""
        link = self._links[neighbour]
        link.connection, link.dialled_by = connection, dialled_by
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

    def missing(self) -> str | None:
        """The missing links with the last errors, for people; None if all neighbours are connected."""
        missing = [
            f"{neighbour} ({link.dialler.error})" if link.dialler is not None and link.dialler.error else neighbour
            for neighbour, link in self._links.items()
            if link.connection is None
        ]
        return "no link to " + ", ".join(missing) if missing else None
