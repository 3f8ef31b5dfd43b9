"""Changes of the overlay at one broker: the state that brokers flood, the epochs it opens and closes, and the links of these.

A broker adopts every state of a higher version, from a neighbour or an operator, and sends it to its neighbours. A neighbour that
is in no open epoch exchanges states only. An epoch that is no longer in the state is closed when nothing of it is unsettled here,
and then the links that only it needed are retired (docs/decisions/0023).
"""

from collections.abc import Iterable, Mapping

from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.epoch_tables import EpochTables
from overweave.broker.guests import Guests
from overweave.broker.registry import Registry
from overweave.broker.retirement import LinkRetirement
from overweave.contract.effects import CloseLink, OpenLink, OverlayChanged, TraceDecision
from overweave.contract.frames import NO_EPOCH, ControlMessage, EpochOpened, OverlayUpdate
from overweave.contract.overlay_state import OverlayRecord, OverlayState, OverlayStatus, check_state, overlay_of
from overweave.contract.records import Decision
from overweave.contract.stimuli import PeerConnected
from overweave.errors import InvalidInput
from overweave.language.headers import OverlayEpoch
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.sync import SyncKind

#: The timer at which links are closed whose other end is in no epoch with this broker, and their time limit.
OUTSIDERS, _OUTSIDER_S = "outsiders", 10.0


class OverlayControl:
    """The overlay as one broker knows it."""

    def __init__(
        self, context: BrokerContext, control: ControlPlane, retirement: LinkRetirement, registry: Registry, record: OverlayRecord
    ) -> None:
        self._context, self._control, self._retirement, self._registry = context, control, retirement, registry
        self._neighbours, self._sessions = context.peers.neighbours, context.peers.sessions
        plane = context.engine.epochs
        #: None: the protocol needs no tables per epoch, because it routes around missing links.
        self._epoch_tables = None if plane is None else EpochTables(context, control, registry, plane)
        self.state = record.state
        self.guests = Guests(context, record)
        self.guests.on_members(self.state)
        #: The epochs that are in the state no longer, until they are quiet.
        self.closing_epochs: set[OverlayEpoch] = set()
        #: The neighbours of states that came while the links to them were being retired: they are linked again.
        self._relinked: set[str] = set()
        #: The neighbours without an epoch, and since when.
        self._outsiders: dict[str, float] = {}
        #: The neighbours of the present state, with the epochs of each.
        self._neighbour_epochs = self.guests.neighbours(self.state)

    # ---- start

    def start(self, kinds: Mapping[str, LinkKind]) -> None:
        """Add the first neighbours; those of a later state than that of the network file are not in ``kinds``."""
        if self._epoch_tables is not None:
            self._epoch_tables.start(self._overlays(self.state))
            self._epoch_tables.use(self.state.current)
        for neighbour in self._neighbour_epochs:
            self._add(neighbour, kinds.get(neighbour, LinkKind.PRIMARY))
            self._add_to_epochs(neighbour)

    # ---- peers

    def on_connected(self, stimulus: PeerConnected) -> None:
        """Add a neighbour that was none before: a guest, the contact, or an outsider that may know a later state."""
        peer, is_new = stimulus.peer, stimulus.peer not in self._neighbours
        if is_new:
            self._add(peer, stimulus.kind)
        if self.guests.on_connected(stimulus, self.state):
            self._neighbour_epochs = self.guests.neighbours(self.state)
            self._persist()
            if self._epoch_tables is not None:
                if stimulus.contact:
                    self._epoch_tables.remake(self._overlays(self.state))
                self._open_links(self._neighbour_epochs)
        if is_new or stimulus.guest or stimulus.contact:
            self._add_to_epochs(peer)
        if is_new and self._epoch_tables is not None and peer not in self._neighbour_epochs:
            self._outsiders[peer] = self._context.step.now_s
            self._context.timers.set(OUTSIDERS, _OUTSIDER_S)

    def on_removed(self, peer: str) -> None:
        """A link is closed permanently. One that the state has is opened again: the other end may know a later state.

        A protocol that routes around missing links may have retired it, as modules do; then only a state of since then counts.
        """
        self._outsiders.pop(peer, None)
        if self.guests.remove(peer):
            self._neighbour_epochs = self.guests.neighbours(self.state)
            self._persist()
        if self.state.version.epoch and (self._epoch_tables is not None or peer in self._relinked):
            self._open_links({each: None for each in self._neighbour_epochs if each != peer})
        self._relinked.discard(peer)

    def greeting(self, neighbour: str) -> list[ControlMessage]:
        """The state of the overlay, for a neighbour that may not know it: it comes before all routing state."""
        is_guest_link = neighbour in self.guests or neighbour == self.guests.contact
        is_known = not self.state.version.epoch and neighbour not in self._outsiders and not is_guest_link
        return [] if is_known else [OverlayUpdate(self.state)]

    def on_message(self, neighbour: str, message: OverlayUpdate | EpochOpened) -> None:
        """Process a message of a neighbour about the overlay."""
        if isinstance(message, EpochOpened):
            if self._epoch_tables is not None:
                self._epoch_tables.on_opened(neighbour, message.overlay_epoch)
        elif message.state.rank > self.state.rank:
            self._on_later(neighbour, message.state)
        elif message.state.rank < self.state.rank:
            self._send(neighbour, OverlayUpdate(self.state))
        elif neighbour in self._outsiders:
            self._context.step.effects.append(CloseLink(neighbour))

    def on_timer(self) -> None:
        """Close links to guests that are away, and to outsiders that have been waiting for a later state, for too long."""
        now_s = self._context.step.now_s
        self.guests.expire(self.state)
        for neighbour, since_s in list(self._outsiders.items()):
            if since_s + _OUTSIDER_S <= now_s:
                self._outsiders[neighbour] = now_s
                self._context.step.effects.append(CloseLink(neighbour))
        if self._outsiders:
            self._context.timers.set_at(OUTSIDERS, min(self._outsiders.values()) + _OUTSIDER_S)

    # ---- changes

    def check_supported(self, state: OverlayState) -> None:
        """Raise an error unless the routing protocol can use a state: some need trees, some no change at all."""
        kind = self._context.sync.kind
        # Without tables per epoch, the links of both trees at once are a cycle.
        if kind is SyncKind.GRAPH or (kind is SyncKind.TREE and self._epoch_tables is None):
            raise InvalidInput(f"the overlay cannot change under {self._context.engine.name}")
        self._check_routable(state)

    def adopt(self, state: OverlayState) -> None:
        """Adopt a state if its rank is higher, and send it to all neighbours."""
        if state.rank <= self.state.rank:
            return
        if self._epoch_tables is not None:  # first: nothing has changed if the protocol cannot make tables
            self._epoch_tables.open(self._overlays(state))
            self._epoch_tables.use(state.current)
        before, self.state = self._neighbour_epochs, state
        neighbours = set(self._neighbours)
        self.guests.on_members(state)
        self._neighbour_epochs = self.guests.neighbours(state)
        self._persist()
        self._context.step.effects.append(OverlayChanged(state))
        for neighbour in self._neighbours:
            self._send(neighbour, OverlayUpdate(state))
        if self._epoch_tables is not None:
            self.closing_epochs = set(self._epoch_tables.epochs) - set(state.epochs)
        self._open_links(before)
        if self._epoch_tables is None:
            self._retire(set(before) - set(self._neighbour_epochs))
        self.close_quiet_epochs()
        self._control.on_sync_progress()
        if set(self._neighbours) != neighbours:
            self._context.modules.on_neighbours_changed(tuple(self._neighbours))

    def close_quiet_epochs(self) -> None:
        """Close epochs that are quiet, and retire the links that no open epoch has."""
        for epoch in list(self.closing_epochs):
            if self._epoch_tables is not None and not self._epoch_tables.unsettled(epoch):
                self._epoch_tables.close(epoch)
                self.closing_epochs.discard(epoch)
        if self._epoch_tables is not None and not self.closing_epochs:
            known = self._outsiders.keys() | self._neighbour_epochs.keys()
            self._retire({each for each in self._neighbours if each not in known and each not in self._retirement})

    # ---- state

    def status(self) -> OverlayStatus:
        """The state of this broker in a change of the overlay."""
        state = self.state
        neighbours = {epoch: tuple(each for each, of in self._neighbour_epochs.items() if epoch in of) for epoch in state.epochs}
        if self._epoch_tables is None:
            up, unsettled = set(self._context.peers.established()), dict.fromkeys(state.epochs, 0)
            synced = tuple(epoch for epoch in state.epochs if up.issuperset(neighbours[epoch]))
        else:
            unsettled = {epoch: self._epoch_tables.unsettled(epoch) for epoch in (*state.epochs, *self.closing_epochs)}
            synced = tuple(epoch for epoch in state.epochs if self._epoch_tables.is_synced(epoch))
        return OverlayStatus(state.version, state.change, state.current, synced, unsettled, neighbours)

    @property
    def record(self) -> OverlayRecord:
        """The present state, with the guests and the contact."""
        return OverlayRecord(self.state, tuple(self.guests), self.guests.contact)

    @property
    def kept_record(self) -> OverlayRecord | None:
        """What the journal holds of the overlay; None: it is that of the network file alone."""
        return self.record if self.state.version.epoch or self.guests or self.guests.contact else None

    @property
    def is_isolated(self) -> bool:
        """Whether no link leads to the network: there are none but those of guests, retired ones and those of outsiders."""
        return self._neighbour_epochs.keys() <= self.guests.keys() and all(
            each in self._retirement or each in self._outsiders or each in self.guests for each in self._neighbours
        )

    def validate(self) -> None:
        """Check the invariants."""
        self.guests.validate()
        assert self._outsiders.keys() <= self._neighbours.keys() - {*self.guests, self.guests.contact}
        assert not self._outsiders or OUTSIDERS in self._context.timers.due_s
        assert all(epochs and set(epochs) <= set(self.state.epochs) for epochs in self._neighbour_epochs.values())
        if self._epoch_tables is None:
            assert not self.closing_epochs
            assert not self._outsiders
            return
        self._epoch_tables.validate()
        assert set(self._epoch_tables.epochs) == {*self.state.epochs, *self.closing_epochs}
        for neighbour in self._neighbours:
            if neighbour not in self._retirement:
                epochs = set(self._epoch_tables.epochs_of(neighbour)) - self.closing_epochs
                assert epochs == set(self._neighbour_epochs.get(neighbour, ())), neighbour

    def _on_later(self, neighbour: str, state: OverlayState) -> None:
        """Adopt the state of a neighbour, unless it is unsuitable: that neighbour has other options, or another protocol."""
        try:
            self._check_routable(state)
        except InvalidInput as error:
            now_s, id = self._context.step.now_s, self._context.id
            decision = Decision(now_s, id, "overlay", "ignore", f"state of {neighbour}", str(error))
            self._context.step.effects.append(TraceDecision(decision))
        else:
            self.adopt(state)

    def _check_routable(self, state: OverlayState) -> None:
        """Raise an error unless the tables can route on all trees of a state."""
        check_state(state, acyclic=self._epoch_tables is not None)
        for tree in state:
            try:
                self._context.engine.check(overlay_of(tree))
            except InvalidInput as error:
                raise InvalidInput(f"trees: epoch {tree.epoch}: {error}") from None

    # ---- links

    def _overlays(self, state: OverlayState) -> dict[OverlayEpoch, Overlay]:
        """The overlays of the open epochs of a state."""
        return {tree.epoch: self.guests.overlay_of(tree) for tree in state}

    def _open_links(self, before: Mapping[str, object]) -> None:
        """Open the links of the present state, and add their neighbours to its epochs."""
        urls = {member.id: member.url for member in self.state.members}
        for neighbour in self._neighbour_epochs:
            if neighbour in self._retirement:
                self._relinked.add(neighbour)
                continue  # it is closed first, and opened again
            if neighbour not in before:
                self._context.step.effects.append(OpenLink(neighbour, url=urls.get(neighbour, "")))
            if neighbour not in self._neighbours:
                if self._epoch_tables is None:
                    continue  # the protocol gets a link when it is connected
                self._add(neighbour, LinkKind.PRIMARY)
            self._outsiders.pop(neighbour, None)
            self._add_to_epochs(neighbour)

    def _add_to_epochs(self, neighbour: str) -> None:
        """Add a neighbour to its epochs."""
        if self._epoch_tables is not None:
            for epoch in self._neighbour_epochs.get(neighbour, ()):
                self._epoch_tables.add_to_epoch(neighbour, epoch)

    def _add(self, neighbour: str, kind: LinkKind) -> None:
        """Open a session with a neighbour; where there are epochs, it takes part in routing after `_add_to_epochs`."""
        if self._epoch_tables is None:
            self._control.add_neighbour(neighbour, kind)
        else:
            self._context.peers.add_neighbour(neighbour, kind)

    def _retire(self, neighbours: Iterable[str]) -> None:
        for neighbour in sorted(neighbours):
            self.guests.remove(neighbour)
            if neighbour in self._sessions and self._sessions[neighbour].established:
                self._retirement.retire(neighbour)
            else:
                self._context.step.effects.append(CloseLink(neighbour))

    def _send(self, neighbour: str, message: ControlMessage) -> None:
        session = self._sessions[neighbour]
        if session.peer_epoch != NO_EPOCH:  # else it is in the greeting
            session.send_control(message, self._context.step.effects)

    def _persist(self) -> None:
        self._registry.keep_overlay(self.kept_record, self._context.step.effects)
