"""Overlay epochs: a tree protocol with one set of tables per open epoch of the overlay (docs/decisions/0023).

Control messages of neighbours belong to the epoch in their header; those of clients and modules are applied in every open epoch.
A publication of a client or a module travels in the current epoch. The tag of its batch says which one that is.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from overweave.batches.base import Batch
from overweave.language.headers import FIRST_EPOCH, OverlayEpoch
from overweave.language.messages import Control
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Forward, Output, Routing

#: Tags are epochs modulo this: two epochs are open at most, one after the other or with one between them.
_TAGS = 256
#: Makes the tables of one broker for an epoch.
MakeTables = Callable[[Overlay], Routing]


class EpochRouting:
    """A tree protocol at one broker, in all open epochs."""

    def __init__(self, make: MakeTables, first: Routing, overlay: Overlay) -> None:
        self._make = make
        #: The overlay that the tables of each open epoch were made for, without the brokers that have left since.
        self.overlays = {FIRST_EPOCH: overlay}
        self._tables: dict[OverlayEpoch, Routing] = {FIRST_EPOCH: first}
        #: The open epochs by their tags.
        self._by_tag = {0: FIRST_EPOCH}
        #: The epochs of each neighbour.
        self._epochs_of: dict[str, dict[OverlayEpoch, None]] = {}
        #: The epoch of new publications.
        self.current = FIRST_EPOCH
        #: The tables of the only epoch, if that is the first one: nothing is stamped then.
        self._only: Routing | None = self._tables[FIRST_EPOCH]
        #: Whether one epoch is open.
        self.is_single = True

    # ---- epochs

    @property
    def epochs(self) -> tuple[OverlayEpoch, ...]:
        """The open epochs, the oldest first."""
        return tuple(sorted(self._tables))

    def open(self, epoch: OverlayEpoch, overlay: Overlay, local: Iterable[tuple[str, Control]]) -> None:
        """Open an epoch without neighbours; ``local`` are the control messages of clients and modules that are in force."""
        tables = self._tables[epoch] = self._make(overlay)
        self.overlays[epoch] = overlay
        self._by_tag[epoch % _TAGS] = epoch
        self._count()
        for peer, message in local:
            for _ in tables.on_control(message, peer):
                pass  # there is no neighbour yet

    def close(self, epoch: OverlayEpoch) -> None:
        """Drop the tables of an epoch."""
        del self._tables[epoch], self.overlays[epoch], self._by_tag[epoch % _TAGS]
        for epochs in self._epochs_of.values():
            epochs.pop(epoch, None)
        self._count()

    def add_to_epoch(self, neighbour: str, epoch: OverlayEpoch, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Add a neighbour to an epoch."""
        self._epochs_of.setdefault(neighbour, {})[epoch] = None
        self._tables[epoch].add_neighbour(neighbour, kind)

    def epochs_of(self, neighbour: str) -> tuple[OverlayEpoch, ...]:
        """The epochs of a neighbour."""
        return tuple(self._epochs_of.get(neighbour, ()))

    def epoch_of(self, batch: Batch, origin: str | None) -> OverlayEpoch:
        """The epoch in which a batch of a neighbour, or of a client (None), travels. One of a closed epoch is routed again."""
        return self.current if origin is None else self._by_tag.get(batch.tag, self.current)

    def snapshot_in(self, epoch: OverlayEpoch, neighbour: str) -> Iterator[Control]:
        """The full state of one epoch for a neighbour."""
        return (_in_epoch(message, epoch) for message in self._tables[epoch].snapshot_for(neighbour))

    # ---- routing

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """See `Routing.add_neighbour`; in the current epoch."""
        self.add_to_epoch(neighbour, self.current, kind)

    def remove_neighbour(self, neighbour: str) -> Iterable[Output]:
        """See `Routing.remove_neighbour`."""
        outputs: list[Output] = []
        for epoch in self._epochs_of.pop(neighbour, ()):
            outputs += _stamped(self._tables[epoch].remove_neighbour(neighbour), epoch)
        return outputs

    def on_control(self, message: Control, peer: str) -> Iterable[Output]:
        """See `Routing.on_control`; a message of an epoch that the neighbour is not in changes nothing."""
        if self._only is not None and not message.header.overlay_epoch:
            return self._only.on_control(message, peer)
        of = self._epochs_of.get(peer)
        if of is not None:
            epoch = message.header.overlay_epoch
            return _stamped(self._tables[epoch].on_control(message, peer), epoch) if epoch in of else ()
        return [output for epoch, tables in self._tables.items() for output in _stamped(tables.on_control(message, peer), epoch)]

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if self._only is not None and not batch.head.tag:
            return self._only.route(batch, origin)
        epoch = self.epoch_of(batch, origin)
        return self._tables[epoch].route(batch.with_tag(epoch % _TAGS), origin)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return [message for epoch in self._epochs_of.get(neighbour, ()) for message in self.snapshot_in(epoch, neighbour)]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`; of a client, what it has said in the current epoch."""
        epochs = self._epochs_of.get(neighbour, (self.current,))
        return [_in_epoch(message, epoch) for epoch in epochs for message in self._tables[epoch].learned_from(neighbour)]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`; over all open epochs."""
        sizes: dict[str, int] = {}
        for tables in self._tables.values():
            for name, size in tables.table_sizes().items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def validate(self) -> None:
        """See `Routing.validate`."""
        assert self.current in self._tables
        assert self._by_tag == {epoch % _TAGS: epoch for epoch in self._tables}
        assert self.is_single == (len(self._tables) == 1)
        assert self._only is (self._tables.get(FIRST_EPOCH) if self.is_single else None)
        assert self.overlays.keys() == self._tables.keys()
        for epochs in self._epochs_of.values():
            assert epochs.keys() <= self._tables.keys()
        for tables in self._tables.values():
            tables.validate()

    def _count(self) -> None:
        self.is_single = len(self._tables) == 1
        self._only = self._tables.get(FIRST_EPOCH) if self.is_single else None


def _stamped(outputs: Iterable[Output], epoch: OverlayEpoch) -> list[Output]:
    """Outputs with the epoch in their messages."""
    return [(output[0], _in_epoch(output[1], epoch)) if isinstance(output, tuple) else output for output in outputs]


def _in_epoch(message: Control, epoch: OverlayEpoch) -> Control:
    header = message.header
    if header.overlay_epoch == epoch:
        return message
    stamped: Control = msgspec.structs.replace(message, header=msgspec.structs.replace(header, overlay_epoch=epoch))
    return stamped
