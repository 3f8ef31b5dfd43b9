"""The lifecycle of peers: connections, handshakes and removal."""

from overweave.broker.control_plane import INCARNATIONS_MAX
from overweave.broker.parts import BrokerParts
from overweave.broker.session import Session
from overweave.contract.effects import Reject
from overweave.contract.frames import Hello
from overweave.contract.stimuli import PeerConnected, PeerDisconnected, PeerLeft


class PeerLifecycle:
    """The peers of one broker as they connect and leave."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts, self._context = parts, parts.context
        self._sessions, self._neighbours = parts.context.peers.sessions, parts.context.peers.neighbours

    def on_connected(self, stimulus: PeerConnected) -> None:
        """Add a new peer, and start the handshake; a client with the name of a module is rejected."""
        peer = stimulus.peer
        if peer not in self._sessions:
            if not stimulus.client:
                self._parts.overlay.on_connected(stimulus)
                self._context.modules.on_neighbours_changed(tuple(self._neighbours))
            elif "/" in peer:  # the name of a module
                self._context.step.effects.append(Reject(peer, "bad-name", f"client {peer!r}: expected a name without '/'"))
                return
            else:
                self._parts.clients.add(peer)
        elif stimulus.client:
            self._parts.consumers.reconnected(self._sessions[peer], self._context.step.now_s)
        else:
            self._parts.overlay.on_connected(stimulus)
        self._context.backlogs.on_connected(peer)
        self._sessions[peer].connect(self._context.step.effects)

    def on_disconnected(self, stimulus: PeerDisconnected) -> None:
        """Keep the session of a peer that may return."""
        session = self._sessions.get(stimulus.peer)
        if session is not None:
            session.disconnect()
            self._parts.overlay.guests.on_disconnected(stimulus.peer)

    def on_hello(self, frame: Hello, peer: str, session: Session) -> None:
        """Continue the handshake; a peer with a new epoch has no state."""
        is_neighbour, was_established = peer in self._neighbours, session.established
        if is_neighbour and not self._is_plausible(frame, peer):
            return
        if is_neighbour and session.handshake.is_repeated_here(frame):
            self._parts.control.restart_above(self._context.incarnation)
            return  # what the neighbour has settled is of that life
        if is_neighbour and session.handshake.is_repeated_by_peer(frame):
            session.handshake.end_peer_incarnation()
            session.retransmit(self._context.step.effects)  # our hello
            return
        if is_neighbour and frame.peer_epoch > session.epoch:
            self._parts.control.restart_above(frame.peer_epoch.incarnation)
        if is_neighbour and session.peer_epoch.incarnation + 1 >= INCARNATIONS_MAX and frame.epoch < session.peer_epoch:
            session.renew_epoch()  # the neighbour cannot restart above the epoch that is known of it
        is_new = is_neighbour and session.has_new_epoch(frame)
        greeting = [*self._parts.overlay.greeting(peer), *self._parts.control.begin_sync(peer)] if is_new else []
        if not is_neighbour and session.has_new_epoch(frame):
            self._parts.clients.on_new_epoch(peer)
        session.on_hello(frame, greeting, self._context.step.effects)
        if not is_neighbour or was_established or not session.established:
            return
        if peer in self._parts.retirement:
            self._parts.retirement.on_link_up(peer)
        else:
            self._parts.recovery.on_link_up(peer)

    def _is_plausible(self, frame: Hello, neighbour: str) -> bool:
        """Whether a neighbour can have this epoch; otherwise its connection is closed.

        The epoch must not be stored: the neighbour itself would never have a higher one.
        """
        if frame.epoch.incarnation < INCARNATIONS_MAX:
            return True
        why = f"incarnation {frame.epoch.incarnation:,}: expected milliseconds since 1970, below {INCARNATIONS_MAX:,}"
        self._context.step.effects.append(Reject(neighbour, "bad-frame", why))
        return False

    def on_left(self, stimulus: PeerLeft) -> None:
        """Remove a peer permanently."""
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
            parts.overlay.on_removed(peer)
            self._context.modules.on_neighbours_changed(tuple(self._neighbours))
        else:
            parts.clients.remove(peer)
            parts.migration.on_left(peer)
        self._context.peers.acks.forget(session)
        parts.consumers.forget(session)
        session.close()
        parts.control.on_sync_progress()
