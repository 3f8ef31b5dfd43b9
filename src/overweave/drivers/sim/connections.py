"""Connections: the nodes of a simulated network, and the open connections between them."""

from collections.abc import Callable

from overweave.contract.stimuli import PeerConnected, PeerDisconnected, PeerLeft
from overweave.drivers.sim.nodes import Channel, Node
from overweave.drivers.sim.scheduler import Scheduler
from overweave.overlay.parts import LinkKind

Ends = tuple[str, str]
#: Makes one direction of a connection.
MakeChannel = Callable[[Node, Node], Channel]


class ConnectionTable:
    """The running nodes, the places of clients, the links there are now, and the channels of open connections."""

    def __init__(self, scheduler: Scheduler, make_channel: MakeChannel) -> None:
        self._scheduler, self._make_channel = scheduler, make_channel
        #: All clients, and the brokers that have not crashed.
        self.nodes: dict[str, Node] = {}
        #: The broker of each client.
        self.clients: dict[str, str] = {}
        #: The links there are now; they change where the overlay organises itself.
        self.links: set[Ends] = set()
        #: The kinds of links that were opened later.
        self.kinds: dict[frozenset[str], LinkKind] = {}

    def connections(self) -> list[Ends]:
        """The ends of all open connections, each once."""
        return sorted((id, peer) for id, node in self.nodes.items() for peer in node.channels if id < peer)

    def all_connected(self) -> bool:
        """Whether every link and every client has its connection."""
        channels = sum(len(node.channels) for node in self.nodes.values())
        return channels == 2 * (len(self.links) + len(self.clients))

    def peers_of(self, broker: str) -> list[str]:
        """The neighbours of a broker, then its clients."""
        neighbours = [ends[broker == ends[0]] for ends in sorted(self.links) if broker in ends]
        return [*neighbours, *self.clients_of(broker)]

    def clients_of(self, broker: str) -> list[str]:
        """The clients of a broker."""
        return [id for id, at in self.clients.items() if at == broker]

    def reading_clients(self) -> list[str]:
        """The clients that read what arrives."""
        return [id for id in self.clients if self.nodes[id].waiting is None]

    def connect(self, ends: Ends) -> None:
        """Open a connection if both nodes run and there is none."""
        if ends[0] not in self.nodes or ends[1] not in self.nodes or ends[1] in self.nodes[ends[0]].channels:
            return
        a, b = (self.nodes[id] for id in ends)
        for node, peer in ((a, b), (b, a)):
            node.channels[peer.id] = self._make_channel(node, peer)
        for node, peer in ((a, b), (b, a)):
            kind = self.kinds.get(frozenset((node.id, peer.id)), LinkKind.PRIMARY)
            node.handle(PeerConnected(peer.id, client=peer.id in self.clients, kind=kind))

    def disconnect(self, ends: Ends) -> None:
        """Close a connection; both nodes notice."""
        for id, peer in (ends, ends[::-1]):
            if id in self.nodes and self._close(id, peer):
                self.nodes[id].handle(PeerDisconnected(peer))

    def cut_link(self, ends: Ends, for_s: float | None = None) -> None:
        """Close a connection, for some time or for good."""
        self.disconnect(ends)
        if for_s is not None:
            self._scheduler.at(self._scheduler.now_s + for_s, self.connect, ends)

    def open_link(self, ends: Ends, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Join two brokers, after the present stimulus."""
        if ends not in self.links and ends[::-1] not in self.links:
            self.links.add(ends)
            self.kinds[frozenset(ends)] = kind
            self._scheduler.at(self._scheduler.now_s, self.connect, ends)

    def close_link(self, ends: Ends) -> None:
        """Part two brokers for good, after the present stimulus."""
        self.links -= {ends, ends[::-1]}
        self._scheduler.at(self._scheduler.now_s, self._remove_link, ends)

    def _remove_link(self, ends: Ends) -> None:
        for id, peer in (ends, ends[::-1]):
            if id in self.nodes:
                self._close(id, peer)
                self.nodes[id].handle(PeerLeft(peer))

    def remove_client(self, id: str) -> None:
        """Detach a client for good; its broker is not told."""
        self.disconnect((id, self.clients.pop(id)))
        self.nodes.pop(id).alive = False

    def _close(self, id: str, peer: str) -> bool:
        channel = self.nodes[id].channels.pop(peer, None)
        if channel is not None:
            channel.open = False
        return channel is not None
