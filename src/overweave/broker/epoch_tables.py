"""The tables of one broker in all open epochs of the overlay: opened and closed, with their neighbours and synchronisation."""

from collections.abc import Iterator, Mapping

from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.registry import Registry
from overweave.contract.frames import NO_EPOCH, EpochOpened
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Control
from overweave.overlay.graph import Overlay
from overweave.routing.base import EpochPlane
from overweave.routing.sync import EpochSync


class EpochTables:
    """The epochs of a protocol that routes over several trees side by side."""

    def __init__(self, context: BrokerContext, control: ControlPlane, registry: Registry, plane: EpochPlane) -> None:
        self._context, self._control, self._registry, self._plane = context, control, registry, plane
        assert isinstance(context.sync, EpochSync)
        self._sync = context.sync
        self._neighbours, self._sessions = context.peers.neighbours, context.peers.sessions

    @property
    def epochs(self) -> tuple[OverlayEpoch, ...]:
        """The open epochs, the oldest first."""
        return self._plane.epochs

    def start(self, overlays: Mapping[OverlayEpoch, Overlay]) -> None:
        """Open epochs before there are neighbours, and close all others; tables made for another overlay are made anew."""
        missing = dict(overlays)
        for epoch, made_for in list(self._plane.overlays.items()):
            if epoch in overlays and _is_same(overlays[epoch], made_for):
                self._plane.overlays[epoch] = missing.pop(epoch)
            else:
                self.close(epoch)
        self.open(missing)

    def open(self, overlays: Mapping[OverlayEpoch, Overlay]) -> None:
        """Open epochs without neighbours, with all control of clients and modules that is in force.

        One that is open stays as it is where its overlay has only lost brokers: the protocol has lost the links to them. With a
        link more, or another root, its tables are made anew, and have no neighbours until these are placed: the broker has joined
        a network, or its network file is old.
        """
        for epoch, overlay in overlays.items():
            made_for = self._plane.overlays.get(epoch)
            if made_for is not None and _is_part(overlay, made_for):
                self._plane.overlays[epoch] = overlay
                continue
            if made_for is not None:
                self.close(epoch)
            self._plane.open(epoch, overlay, self._local_control())
            self._sync.open(epoch)

    def remake(self, overlays: Mapping[OverlayEpoch, Overlay]) -> None:
        """Make the tables of open epochs anew; they have no neighbours until these are placed."""
        for epoch in overlays:
            self.close(epoch)
        self.open(overlays)

    def close(self, epoch: OverlayEpoch) -> None:
        """Drop the tables of an epoch."""
        self._plane.close(epoch)
        self._sync.close(epoch)
        self._control.forget_epoch(epoch)

    def use(self, epoch: OverlayEpoch) -> None:
        """Route new publications in an epoch."""
        self._plane.current = epoch

    def add_to_epoch(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """Add a neighbour to an epoch; what it has sent of that epoch so far is lost."""
        if epoch in self._plane.epochs_of(neighbour):
            return
        self._plane.add_to_epoch(neighbour, epoch, self._neighbours[neighbour])
        self._sync.add_to_epoch(neighbour, epoch)
        session = self._sessions[neighbour]
        if session.peer_epoch != NO_EPOCH:  # else it is in the greeting
            session.send_control(EpochOpened(epoch), self._context.step.effects)
            self._send_snapshot(neighbour, epoch)

    def on_opened(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """A neighbour has opened an epoch: it has dropped all that was sent before."""
        if epoch in self._plane.epochs_of(neighbour):
            self._control.mark_stale(neighbour, epoch)
            self._sync.reset_in(neighbour, epoch)
            self._send_snapshot(neighbour, epoch)
            self._control.send_sync_markers()

    def is_synced(self, epoch: OverlayEpoch) -> bool:
        """Whether this broker has the full state of all its neighbours in an epoch."""
        return self._sync.is_synced(epoch)

    def unsettled(self, epoch: OverlayEpoch) -> int:
        """The number of publications of an epoch that neighbours have not settled, or that are deferred.

        At least 1 in an epoch that is not used, while publishers of before a restart may send again, in the one that is used,
        what began to travel in the other.
        """
        sent = (batch for each in self._neighbours for batch in self._sessions[each].outbound.batches())
        deferred = self._context.deferred.batches_from(self._neighbours)
        count = sum(each.count for several in (sent, deferred) for each in several if self._plane.epoch_of(each, "") == epoch)
        if count or epoch == self._plane.current or self._context.backlogs.publishers_settled(self._context.in_flight_acks):
            return count
        return 1

    def epochs_of(self, neighbour: str) -> tuple[OverlayEpoch, ...]:
        """The epochs of a neighbour."""
        return self._plane.epochs_of(neighbour)

    def validate(self) -> None:
        """Check the invariants: tables and synchronisation agree about epochs and neighbours."""
        assert self._sync.epochs == set(self._plane.epochs)
        for epoch in self._sync.epochs:
            assert self._sync.neighbours_in(epoch) == {each for each in self._neighbours if epoch in self._plane.epochs_of(each)}

    def _send_snapshot(self, neighbour: str, epoch: OverlayEpoch) -> None:
        for message in self._plane.snapshot_in(epoch, neighbour):
            self._sessions[neighbour].send_control(message, self._context.step.effects)

    def _local_control(self) -> Iterator[tuple[str, Control]]:
        yield from self._registry.messages()
        yield from self._context.modules.registrations()


def _is_part(overlay: Overlay, of: Overlay) -> bool:
    """Whether an overlay is another one, or that without some brokers; the first one, a root, is the same unless it has left."""
    has_root = overlay.ids[0] == of.ids[0] or of.ids[0] not in overlay
    return has_root and set(overlay.ids) <= set(of.ids) and overlay.lookup.links.keys() <= of.lookup.links.keys()


def _is_same(one: Overlay, other: Overlay) -> bool:
    """Whether two overlays have the same brokers, links and root."""
    same_brokers = one.ids == other.ids or (one.ids[0] == other.ids[0] and set(one.ids) == set(other.ids))
    return same_brokers and one.lookup.links.keys() == other.lookup.links.keys()
