"""Control messages of this broker's own clients: registration, durability, and withdrawal when a client leaves."""

from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.deferred import Deferred, Stage
from overweave.broker.durability import Durability
from overweave.broker.leaving import LEAVE, Key, Leaving
from overweave.broker.pending_ack import PendingAck
from overweave.broker.registry import Journal, Registry, kind_of, withdrawal_of
from overweave.contract.effects import Reject
from overweave.contract.frames import ControlMessage, SyncEnd, is_addressed
from overweave.language.messages import Advertise, Control, RoutingMessage, Subscribe, Unadvertise


class ClientControl:
    """The clients of one broker."""

    def __init__(self, context: BrokerContext, control: ControlPlane, registry: Registry, durability: Durability) -> None:
        self._context, self._control, self.registry, self.durability = context, control, registry, durability
        self._sessions = context.peers.sessions
        #: The messages of each client from before its return that it has not sent again.
        self._stale: dict[str, dict[Key, None]] = {}
        self.leaving = Leaving()

    def restore(self, journal: Journal) -> None:
        """Register and apply the messages in the journal of an earlier incarnation."""
        for client, message in self.registry.restore(journal):
            if client not in self._sessions:
                self.add(client)
            self._control.apply(message, client)
            if isinstance(message, Advertise):
                self._context.backlogs.expect(client)

    def add(self, client: str) -> None:
        """Add a client with a session."""
        self._context.peers.add_client(client)
        self.registry.add(client)

    def remove(self, client: str) -> None:
        """Remove the session of a client, and withdraw its messages."""
        self._context.peers.remove(client)
        self._stale.pop(client, None)
        self._leave(client, self.registry.keys_of(client))

    def on_message(self, client: str, message: ControlMessage, ack: PendingAck) -> bool:
        """Apply a message of a client; whether routing tables may have changed."""
        if isinstance(message, SyncEnd):
            stale = self._stale.pop(client, {})
            if stale:
                self._leave(client, list(stale))
            self._control.on_sync_progress()
            self.durability.hold(ack, self.registry.last_kept(client))
        elif not isinstance(message, Control) or isinstance(message, RoutingMessage):
            self._context.step.effects.append(Reject(client, "bad-frame", "expected a control message of a client"))
        else:
            self._context.counters.control_in += 1
            key = kind_of(message), message.id
            self._stale.get(client, {}).pop(key, None)
            if self.leaving:
                self.leaving.keep(client, key)
            return self.on_control(client, message, ack)
        return False

    def on_control(self, client: str, message: Control, ack: PendingAck) -> bool:
        """Register and apply a control message, behind the deferred messages of its client; False if it is deferred, too."""
        deferred, is_early = self._context.deferred, isinstance(message, Subscribe) and not self._is_synced
        if is_early or deferred.has_unrouted_from(client):
            ack.retain()
            deferred.add(message, client, ack, Stage.EARLY if is_early else Stage.UNROUTABLE)
            return False
        if self.durability.failing and self.registry.is_change(client, message):
            ack.retain()  # it is settled when the client has received the rejection
            self._sessions[client].send_control(self.durability.rejection(message), self._context.step.effects, ack)
            return False
        if self.registry.replaces(client, message):
            self._control.apply(withdrawal_of(message), client)
        if self.registry.register(client, message, self._context.step.effects):
            self._apply(client, message, ack)
        self.durability.hold(ack, self.registry.last_kept(client))
        return True

    @property
    def _is_synced(self) -> bool:
        """Whether a subscription need not wait: sent to some brokers only, it would be settled too soon.

        Brokers that do not know yet that this one has restarted publish without it.
        """
        links = self._context.engine.links
        return links is None or links.synced

    def is_too_early(self, entry: Deferred) -> bool:
        """Whether a deferred subscription still has to wait; one of a client that has left is dropped."""
        return not self._is_synced and entry.peer in self._sessions

    def resume(self, entry: Deferred) -> None:
        """Resume a deferred control message of any peer."""
        message, client, ack = entry.what, entry.peer, entry.ack
        assert isinstance(message, Control)
        if is_addressed(message) or client in self._context.peers.neighbours:
            self._control.reapply(entry)
        elif isinstance(message, Unadvertise) and not self.registry.has(client, message):
            self._apply(client, message, ack)
        elif ack is not None and client in self._sessions:
            self.on_control(client, message, ack)
        if ack is not None:
            ack.release()

    def on_new_epoch(self, client: str) -> None:
        """A client has returned without state: messages that it does not send again are withdrawn."""
        keys = self.registry.keys_of(client)
        if keys:
            self._stale[client] = dict.fromkeys(keys)
        self.leaving.cancel(client)

    def withdraw_slice(self) -> None:
        """Withdraw the next messages of clients that have left."""
        withdrawals, done = self.leaving.next_slice()
        for client, message in withdrawals:
            if self.registry.register(client, message, self._context.step.effects):
                self._apply(client, message)
        for client in done:
            if client not in self._sessions:
                self.registry.remove(client)
        if self.leaving:
            self._context.timers.set(LEAVE, 0.0)

    def validate(self) -> None:
        """Check the invariants."""
        self.registry.validate()
        self.durability.validate()
        assert not self.leaving or LEAVE in self._context.timers.due_s
        clients = self._sessions.keys() - self._context.peers.neighbours.keys()
        assert all(self.registry.knows(client) for client in clients)
        assert self._stale.keys() <= clients

    def _apply(self, client: str, message: Control, ack: PendingAck | None = None) -> None:
        """Apply a registered message; the withdrawal of an advertisement waits until neighbours are synchronised.

        After a restart the journal may have an earlier generation than neighbours have. If this broker withdrew it before it
        receives the later one, all brokers behind it would drop the later one.
        """
        if isinstance(message, Unadvertise) and self._context.sync.unsynced:
            if ack is not None:
                ack.retain()
            self._context.deferred.add(message, client, ack)
        else:
            self._control.apply(message, client, ack)

    def _leave(self, client: str, keys: list[Key]) -> None:
        """Withdraw messages of a client, the first slice at once."""
        self.leaving.add(client, keys)
        self.withdraw_slice()
