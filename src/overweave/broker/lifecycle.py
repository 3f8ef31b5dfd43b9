"""The lifecycle of peers: connections, handshakes and removal."""

from overweave.broker.parts import BrokerParts
from overweave.broker.session import Session
from overweave.contract.frames import Hello
from overweave.contract.stimuli import PeerConnected, PeerDisconnected, PeerLeft


class PeerLifecycle:
    """The peers of one broker as they connect and leave."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts, self._context = parts, parts.context
        self._sessions, self._neighbours = parts.context.peers.sessions, parts.context.peers.neighbours

    def on_connected(self, stimulus: PeerConnected) -> None:
        """Add a new peer, and start the handshake."""
        peer = stimulus.peer
        if peer not in self._sessions:
            if stimulus.client:
                self._parts.clients.add(peer)
            else:
                self._parts.control.add_neighbour(peer, stimulus.kind)
        elif stimulus.client:
            self._parts.consumers.reconnected(self._sessions[peer], self._context.step.now_s)
        self._sessions[peer].connect(self._context.step.effects)

    def on_disconnected(self, stimulus: PeerDisconnected) -> None:
        """Keep the session of a peer that may return."""
        session = self._sessions.get(stimulus.peer)
        if session is not None:
            session.disconnect()

    def on_hello(self, frame: Hello, peer: str, session: Session) -> None:
        """Continue the handshake; a peer with a new epoch has no state."""
        is_neighbour, was_established = peer in self._neighbours, session.established
        if is_neighbour and frame.peer_epoch > session.epoch:
            self._parts.control.restart_above(frame.peer_epoch.incarnation)
        greeting = self._parts.control.begin_sync(peer) if is_neighbour and session.is_new(frame) else []
        if not is_neighbour and session.is_new(frame):
            self._parts.clients.on_new_epoch(peer)
        session.on_hello(frame, greeting, self._context.step.effects)
        if not is_neighbour or was_established or not session.established:
            return
        if peer in self._parts.retirement:
            self._parts.retirement.on_link_up(peer)
        else:
            self._parts.recovery.on_link_up(peer)

    def on_left(self, stimulus: PeerLeft) -> None:
        """Remove a peer for good."""
        peer, parts = stimulus.peer, self._parts
        session = self._sessions.get(peer)
        if session is None:
            return
        session.disconnect()
        if peer in self._neighbours:
            reclaimed = session.reclaim([])
            self._context.detector.forget(peer)
            parts.retirement.forget(peer)
            parts.control.remove_neighbour(peer)
            parts.recovery.on_link_removed(peer, reclaimed)
        else:
            parts.clients.remove(peer)
        self._context.peers.acks.forget(session)
        parts.consumers.forget(session)
        session.close()
        parts.control.on_sync_progress()
