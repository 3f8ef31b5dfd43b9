"""The control plane of a broker: control messages of neighbours, outputs of the protocol, synchronisation and settlement."""

from collections.abc import Iterable

from overweave.broker.context import BrokerContext
from overweave.broker.deferred import Deferred
from overweave.broker.pending_ack import PendingAck
from overweave.broker.registry import kind_of, withdrawal_of
from overweave.broker.settlement import make_settlement
from overweave.contract.effects import OpenLink, Restart, SetTimer
from overweave.contract.frames import NO_EPOCH, AdvertisementsEnd, ControlMessage, SyncEnd, is_addressed
from overweave.contract.modules import ControlApplied
from overweave.contract.stimuli import LoadMeasured
from overweave.language.generations import stable_id
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Control, Subscribe
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Output

#: Incarnations are milliseconds below this, until the year 2248: neighbours with higher ones are rejected.
INCARNATIONS_MAX = 1 << 43
#: The prefix of the timers of a protocol.
_PROTOCOL_TIMER = "routing "


#: Kind and id of a message of a neighbour, its tree where overlays have cycles, and its epoch of the overlay.
_Key = tuple[str, str, str | None, OverlayEpoch]


class ControlPlane:
    """Routing state between one broker and its neighbours."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._routing, self._sync = context.engine.routing, context.sync
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._known_incarnation = context.engine.known_incarnation or _no_incarnation
        self.settlement = make_settlement(context.sync, context.peers, context.in_flight_acks, context.backlogs)
        #: The state of each neighbour from before its restart that it has not sent again.
        self._stale: dict[str, dict[_Key, Control]] = {}
        #: The neighbours that routing has forgotten, and whose sessions drain.
        self._draining: set[str] = set()
        #: The timers of the protocol, by their names outside.
        self._timers: dict[str, str] = {}
        #: The links that the protocol has retired in this step.
        self.retired: list[str] = []

    # ---- messages

    def on_message(self, neighbour: str, message: ControlMessage, ack: PendingAck) -> None:
        """Apply a message of a neighbour."""
        if neighbour in self._draining or not self._context.is_linked(neighbour):
            return
        if isinstance(message, AdvertisementsEnd):
            self._sync.announced(neighbour, message.overlay_epoch)
            self.on_sync_progress()
        elif isinstance(message, SyncEnd):
            self._on_synced(neighbour, message.overlay_epoch)
        elif isinstance(message, Control):
            known = self._known_incarnation(message)
            if known is not None and known[1] >= INCARNATIONS_MAX:
                return  # no message of that broker itself would ever replace it
            self._context.counters.control_in += 1
            stale = self._stale.get(neighbour)
            if stale:
                stale.pop(_key(message), None)
            if known is not None and known[0] == self._context.id and known[1] > self._context.incarnation:
                self.restart_above(known[1])
            self.apply(message, neighbour, ack)

    def apply(self, message: Control, peer: str, ack: PendingAck | None = None) -> None:
        """Apply a control message of any peer to the routing tables; its ack waits until it is in force."""
        context = self._context
        if context.story.length:
            context.story.applied(context.step.now_s, peer, message)
        self.perform_all(self._routing.on_control(message, peer), peer, ack, message)
        if ack is not None:
            self.settlement.add(message, peer, ack, context.step.now_s)
        if context.modules.watches_control:  # behind routing: what a module sends now travels behind the message
            context.modules.notify_watchers(ControlApplied(message, peer, peer not in self._neighbours))

    def apply_local(self, message: Control, module: str) -> None:
        """Apply a control message of a module."""
        self.perform_all(self._routing.on_control(message, module))

    def reapply(self, entry: Deferred) -> None:
        """Route a control message again that was deferred, or was in flight on a failed link."""
        assert isinstance(entry.what, Control)
        self.perform_all(self._routing.on_control(entry.what, entry.peer), entry.peer, entry.ack, entry.what)

    def perform_all(
        self, outputs: Iterable[Output], peer: str = "", ack: PendingAck | None = None, cause: Control | None = None
    ) -> None:
        """Perform the outputs of the protocol; the ack of their cause waits for its copies and the subscriptions it attracts."""
        for output in outputs:
            if not isinstance(output, tuple):
                self._perform(output)
                continue
            neighbour, message = output
            waiting = ack if cause is not None and _delays(message, cause) else None
            if waiting is not None:
                waiting.retain()
            if neighbour is None:
                self._context.deferred.add(message, peer, waiting)
                continue
            self._context.counters.control_out += 1
            self._sessions[neighbour].send_control(message, self._context.step.effects, waiting)
            self.settlement.withdrawn(message, neighbour)

    def on_timer(self, name: str) -> bool:
        """Call the protocol if a timer is its own; whether it is."""
        own, handler = self._timers.pop(name, None), self._context.engine.timers
        if own is None or handler is None:
            return False
        self.perform_all(handler(own))
        return True

    def on_load(self, stimulus: LoadMeasured) -> None:
        """Show the load to modules and to the protocol, which may send control."""
        self._context.modules.on_load(stimulus)
        if self._context.engine.load is not None:
            self.perform_all(self._context.engine.load(stimulus))

    def restart_above(self, incarnation: int) -> None:
        """Restart this broker: neighbours know this incarnation or a later one of its past, so its clock has gone back."""
        if incarnation + 1 < INCARNATIONS_MAX:
            self._context.step.effects.append(Restart(incarnation))

    # ---- neighbours

    def add_neighbour(self, neighbour: str, kind: LinkKind) -> None:
        """Add a link."""
        self._context.peers.add_neighbour(neighbour, kind)
        self._sync.add(neighbour)
        self._routing.add_neighbour(neighbour, kind)

    def remove_neighbour(self, neighbour: str) -> None:
        """Remove a link, with its session."""
        self._context.peers.remove(neighbour)
        self._stale.pop(neighbour, None)
        if neighbour not in self._draining:
            self._sync.remove(neighbour)
            self.perform_all(self._routing.remove_neighbour(neighbour))
        self._draining.discard(neighbour)
        self.send_sync_markers()

    def drain_neighbour(self, neighbour: str) -> None:
        """Have routing forget a neighbour whose session drains."""
        self._draining.add(neighbour)
        self._stale.pop(neighbour, None)
        self._sync.remove(neighbour)
        self.perform_all(self._routing.remove_neighbour(neighbour))
        self.on_sync_progress()

    def begin_sync(self, neighbour: str) -> list[ControlMessage]:
        """The snapshot for a neighbour without state; its own earlier state is stale until it is sent again."""
        if neighbour in self._draining:
            return []
        learned = list(self._routing.learned_from(neighbour))
        if learned:
            self._stale[neighbour] = {_key(message): message for message in learned}
        self._sync.reset(neighbour)
        return [*self._routing.snapshot_for(neighbour), *self._sync.pending_markers(neighbour)]

    def mark_stale(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """A neighbour has opened an epoch, perhaps again: its earlier state of it is stale until it is sent again."""
        stale = {_key(each): each for each in self._routing.learned_from(neighbour) if each.header.overlay_epoch == epoch}
        if stale:
            self._stale.setdefault(neighbour, {}).update(stale)

    def send_sync_markers(self) -> None:
        """Send the markers that are due to neighbours."""
        for neighbour in self._neighbours:
            session = self._sessions[neighbour]
            if session.peer_epoch != NO_EPOCH and neighbour not in self._draining:
                for marker in self._sync.pending_markers(neighbour):
                    session.send_control(marker, self._context.step.effects)

    def on_sync_progress(self) -> None:
        """A neighbour has sent more of its state, or has left."""
        self.send_sync_markers()
        self._context.deferred.flush()
        self.settlement.on_sync_progress()

    def forget_epoch(self, epoch: OverlayEpoch) -> None:
        """An epoch of the overlay is closed."""
        for neighbour in list(self._stale):
            self._pop_stale(neighbour, epoch)

    def _on_synced(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """A neighbour has sent all its state of an epoch: withdraw what is stale."""
        for message in self._pop_stale(neighbour, epoch):
            self.apply(withdrawal_of(message), neighbour)
        self._sync.synced(neighbour, epoch)
        self.on_sync_progress()

    def _pop_stale(self, neighbour: str, epoch: OverlayEpoch) -> list[Control]:
        """Remove the stale state of a neighbour in one epoch."""
        stale = self._stale.pop(neighbour, {})
        kept = {key: message for key, message in stale.items() if key[3] != epoch}
        if kept:
            self._stale[neighbour] = kept
        return [message for key, message in stale.items() if key[3] == epoch]

    def _perform(self, output: Output) -> None:
        """Perform an output that is no message."""
        effects = self._context.step.effects
        if isinstance(output, SetTimer):
            name = _PROTOCOL_TIMER + output.name
            self._timers[name] = output.name
            effects.append(SetTimer(name, output.at_s))
        elif isinstance(output, OpenLink):
            effects.append(output)
        elif not isinstance(output, tuple):
            self.retired.append(output.peer)

    def validate(self) -> None:
        """Check the invariants."""
        assert self._stale.keys() <= self._neighbours.keys()
        assert self._draining <= self._neighbours.keys()
        assert self._sync.unsynced <= self._neighbours.keys()
        assert not self.retired
        self._sync.validate()
        self.settlement.validate()


def _no_incarnation(_: Control) -> None:
    """No message of the protocol states the incarnation of a broker."""


def _delays(message: Control, cause: Control) -> bool:
    """Whether the ack of ``cause`` waits for ``message``: a forwarded copy, or a subscription sent in response to it."""
    if type(message) is type(cause) and message.id == cause.id:
        return is_addressed(message) or isinstance(message, Advertise)
    return isinstance(cause, Advertise) and isinstance(message, Subscribe) and is_addressed(message)


def _key(message: Control) -> _Key:
    """The key of a message in a neighbour's state: one generation per advertisement, several per subscription."""
    kind = kind_of(message)
    id = stable_id(message.id) if kind == "advertisement" else message.id
    return kind, id, message.header.tree, message.header.overlay_epoch
