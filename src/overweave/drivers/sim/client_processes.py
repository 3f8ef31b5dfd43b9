"""Clients of a simulated network: they attach, crash and return, and brokers forget them when their sessions expire."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.contract.config import SESSION_EXPIRY_S, SessionConfig
from overweave.contract.stimuli import MigrateClient, PeerLeft
from overweave.drivers.sim.connections import ConnectionTable
from overweave.drivers.sim.nodes import Core, Node
from overweave.drivers.sim.scheduler import Scheduler


class ClientObserver(Protocol):
    """The program of the clients, which a crash ends and a return starts."""

    def crashed(self, client: str, settled: int) -> None:
        """A client has crashed; the broker had settled this number of its publications."""

    def returned(self, client: str) -> None:
        """A client is attached again, as a new process: it has registered nothing."""

    def expired(self, client: str) -> None:
        """The broker has forgotten a client that runs but is disconnected."""


class ClientProcesses:
    """The clients of one network, and their sessions at brokers."""

    def __init__(
        self,
        scheduler: Scheduler,
        table: ConnectionTable,
        make_node: Callable[[str, Core], Node],
        config: SessionConfig,
        counts: Counter[str],
        session_expiry_s: float = SESSION_EXPIRY_S,
    ) -> None:
        self._scheduler, self._table, self._make_node, self._config = scheduler, table, make_node, config
        self._counts, self._expiry_s = counts, session_expiry_s
        self.observer: ClientObserver | None = None
        #: How often each client was attached: with its id, its life id as a publisher.
        self._attachments: Counter[str] = Counter()
        #: Sessions at a broker that belong to a crashed process, or that the broker forgot while the client was away.
        self._stale: set[tuple[str, str]] = set()
        self._expired: set[tuple[str, str]] = set()
        self._orders = 0
        table.on_connect, table.on_disconnect = self._connects, self.start_expiry

    def attach(self, id: str, broker: str) -> None:
        """Attach a client to a broker."""
        self._table.clients[id] = {broker: None}
        self._attachments[id] += 1
        core = ClientCore(id, broker, self._config, life=self._attachments[id])
        self._table.nodes[id] = self._make_node(id, core)
        self._table.connect((id, broker))

    def life(self, id: str) -> int:
        """The life id of a client as a publisher."""
        return self._attachments[id]

    def crash(self, id: str, for_s: float | None = None) -> None:
        """Have a client lose everything, for some time or permanently; its broker waits for it until the session expires."""
        brokers = list(self._table.clients[id])
        core = self._table.nodes[id].core
        assert isinstance(core, ClientCore)
        settled = core.settled_publications()
        self._stale.update((broker, id) for broker in brokers)
        self._table.remove_client(id)
        for broker in brokers:
            self.start_expiry(id, broker)
        if self.observer is not None:
            self.observer.crashed(id, settled)
        if for_s is not None:
            self._scheduler.at(self._scheduler.now_s + for_s, self._return, (id, brokers[0]))

    def migrate(
        self, client: str, to: str, *, subscriptions: tuple[str, ...] | None = None, publishing: bool = True, source: str = ""
    ) -> MigrateClient:
        """Order a client to move from a broker, its first one by default; a broker that is down orders nothing."""
        self._orders += 1
        order = MigrateClient(f"m{self._orders}", client, to, subscriptions, publishing)
        broker = source or next(iter(self._table.clients[client]))
        if broker in self._table.nodes:
            self._table.nodes[broker].handle(order)
        return order

    def restore(self, broker: str) -> None:
        """Let the sessions in the journal of a broker that starts expire, unless their clients connect."""
        core = self._table.nodes[broker].core
        assert isinstance(core, BrokerCore)
        for client in core.clients():
            self.start_expiry(client, broker)

    def start_expiry(self, client: str, broker: str) -> None:
        """Let the session of a disconnected client expire unless it connects in time."""
        node = self._table.nodes.get(broker)
        if node is not None:
            due = node, client, self._scheduler.now_s
            node.absences[client] = self._scheduler.now_s
            self._scheduler.at(self._scheduler.now_s + self._expiry_s, self._expire, due)

    def _return(self, what: tuple[str, str]) -> None:
        id, broker = what
        if id not in self._table.clients:
            self._counts["client_returns"] += 1
            self.attach(id, broker)
            if self.observer is not None:
                self.observer.returned(id)

    def _connects(self, client: str, broker: str) -> None:
        """End the session of an earlier process, as a takeover does; a forgotten client begins a new epoch."""
        session = broker, client
        if session in self._stale:
            self._stale.discard(session)
            self._table.nodes[broker].handle(PeerLeft(client))
        elif session in self._expired:
            core = self._table.nodes[client].core
            assert isinstance(core, ClientCore)
            core.renew_epoch(broker)
        self._expired.discard(session)

    def _expire(self, due: tuple[Node, str, float]) -> None:
        """Forget a client that has not connected since; another disconnection has a timer of its own."""
        node, client, since_s = due
        if not node.alive or client in node.channels or node.absences.get(client) != since_s:
            return
        del node.absences[client]
        session = node.id, client
        is_running = node.id in self._table.clients.get(client, ()) and session not in self._stale
        self._stale.discard(session)
        node.handle(PeerLeft(client))
        if is_running:
            self._expired.add(session)
            if self.observer is not None:
                self.observer.expired(client)
