"""Connections: the nodes of a simulated network, and the open connections between them."""

from collections.abc import Callable

from overweave.contract.stimuli import PeerConnected, PeerDisconnected, PeerLeft
from overweave.drivers.sim.nodes import Channel, Node
from overweave.drivers.sim.scheduler import Scheduler
from overweave.overlay.parts import LinkKind

Ends = tuple[str, str]
#: Makes one direction of a connection.
MakeChannel = Callable[[Node, Node], Channel]
#: Gets a client and its broker.
ClientEvent = Callable[[str, str], None]


class ConnectionTable:
    """The running nodes, the places of clients, the links there are now, and the channels of open connections."""

    def __init__(self, scheduler: Scheduler, make_channel: MakeChannel) -> None:
        self._scheduler, self._make_channel = scheduler, make_channel
        #: All clients, and the brokers that have not crashed.
        self.nodes: dict[str, Node] = {}
        #: The brokers of each client: one, except while it moves.
        self.clients: dict[str, dict[str, None]] = {}
        #: The links there are now; they change where the overlay organises itself.
        self.links: set[Ends] = set()
        #: Called with a client and its broker before they connect, and when their connection is lost.
        self.on_connect: ClientEvent = _ignore
        self.on_disconnect: ClientEvent = _ignore
        #: The kinds of links that were opened later.
        self.kinds: dict[frozenset[str], LinkKind] = {}
        #: The links of brokers that have joined, each with its contact.
        self._guests: set[Ends] = set()

    def connections(self) -> list[Ends]:
        """The ends of all open connections, each once."""
        return sorted((id, peer) for id, node in self.nodes.items() for peer in node.channels if id < peer)

    def all_connected(self) -> bool:
        """Whether every link and every client has its connection."""
        channels = sum(len(node.channels) for node in self.nodes.values())
        return channels == 2 * (len(self.links) + sum(map(len, self.clients.values())))

    def peers_of(self, broker: str) -> list[str]:
        """The neighbours of a broker, then its clients."""
        neighbours = [ends[broker == ends[0]] for ends in sorted(self.links) if broker in ends]
        return [*neighbours, *self.clients_of(broker)]

    def clients_of(self, broker: str) -> list[str]:
        """The clients of a broker."""
        return [id for id, brokers in self.clients.items() if broker in brokers]

    def reading_clients(self) -> list[str]:
        """The clients that read what arrives."""
        return [id for id in self.clients if self.nodes[id].waiting is None]

    def connect(self, ends: Ends) -> None:
        """Open a connection if both nodes run and there is none."""
        if ends[0] not in self.nodes or ends[1] not in self.nodes or ends[1] in self.nodes[ends[0]].channels:
            return
        for client, broker in (ends, ends[::-1]):
            if client in self.clients:
                self.on_connect(client, broker)
                self.nodes[broker].absences.pop(client, None)
        a, b = (self.nodes[id] for id in ends)
        for node, peer in ((a, b), (b, a)):
            node.channels[peer.id] = self._make_channel(node, peer)
        for node, peer in ((a, b), (b, a)):
            kind = self.kinds.get(frozenset((node.id, peer.id)), LinkKind.PRIMARY)
            guest, contact = (peer.id, node.id) in self._guests, (node.id, peer.id) in self._guests
            node.handle(PeerConnected(peer.id, client=peer.id in self.clients, kind=kind, guest=guest, contact=contact))

    def disconnect(self, ends: Ends) -> None:
        """Close a connection; both nodes notice."""
        for id, peer in (ends, ends[::-1]):
            if id in self.nodes and self._close(id, peer):
                self.nodes[id].handle(PeerDisconnected(peer))
                if peer in self.clients:
                    self.on_disconnect(peer, id)

    def cut_link(self, ends: Ends, for_s: float | None = None) -> None:
        """Close a connection, for some time or permanently."""
        self.disconnect(ends)
        if for_s is not None:
            self._scheduler.at(self._scheduler.now_s + for_s, self.connect, ends)

    def open_link(self, ends: Ends, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Join two brokers, after the present stimulus."""
        if ends not in self.links and ends[::-1] not in self.links:
            self.links.add(ends)
            self.kinds[frozenset(ends)] = kind
            self._scheduler.at(self._scheduler.now_s, self.connect, ends)

    def join(self, ends: Ends) -> None:
        """Join a broker to its contact, after the present stimulus."""
        self._guests.add(ends)
        self.open_link(ends)

    def close_link(self, ends: Ends) -> None:
        """Part two brokers permanently, after the present stimulus."""
        self.links -= {ends, ends[::-1]}
        self._guests -= {ends, ends[::-1]}
        self._scheduler.at(self._scheduler.now_s, self._remove_link, ends)

    def _remove_link(self, ends: Ends) -> None:
        for id, peer in (ends, ends[::-1]):
            if id in self.nodes:
                self._close(id, peer)
                self.nodes[id].handle(PeerLeft(peer))

    def attach(self, id: str, broker: str) -> None:
        """Connect a client to one more broker, after the present stimulus."""
        self.clients[id][broker] = None
        self._scheduler.at(self._scheduler.now_s, self.connect, (id, broker))

    def detach(self, id: str, broker: str) -> None:
        """Disconnect a client from a broker permanently, after the present stimulus; the broker forgets it."""
        self.clients[id].pop(broker, None)
        self._scheduler.at(self._scheduler.now_s, self._remove_attachment, (id, broker))

    def _remove_attachment(self, ends: Ends) -> None:
        id, broker = ends
        if broker in self.clients.get(id, ()):
            return  # it has come back
        if id in self.nodes:
            self._close(id, broker)
        if broker in self.nodes:
            self._close(broker, id)
            self.nodes[broker].handle(PeerLeft(id))

    def remove_client(self, id: str) -> None:
        """Remove a client permanently; its brokers are not told."""
        for broker in self.clients.pop(id):
            self.disconnect((id, broker))
        self.nodes.pop(id).alive = False

    def _close(self, id: str, peer: str) -> bool:
        channel = self.nodes[id].channels.pop(peer, None)
        if channel is not None:
            channel.open = False
        return channel is not None


def _ignore(_client: str, _broker: str) -> None:
    pass
