"""Ingress: which rows of an arriving batch are transit, which are new here, and which are duplicates.

Transit rows are forwarded by their destination lists and never deduplicated. All other rows are matched at this broker, each
publication once in its dedup scope.
"""

import copy
from collections.abc import Callable, Hashable
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.destinations import split_local
from overweave.language.headers import OverlayEpoch
from overweave.routing.dedup import DedupWindow


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """An arriving batch in parts."""

    transit: Batch | None
    #: Rows to match, in their order; False: they have been delivered to local clients before.
    fresh: tuple[tuple[Batch, bool], ...]
    #: Rows whose first copy came earlier.
    duplicates: Batch | None


class Ingress(Protocol):
    """The classification of arriving batches at one broker."""

    def admit(self, batch: Batch, origin: str | None) -> Admitted | Batch:
        """Classify a batch of a neighbour, or of a client (None), and mark its rows as seen; a batch if all its rows are for
        this broker and new, as most are. Malformed rows raise.
        """

    def validate(self) -> None:
        """Check the invariants."""


#: An ingress with dedup windows of a size.
MakeIngress = Callable[[int], Ingress]
#: The dedup scopes of a batch, given its origin and tag.
ScopesOf = Callable[[str | None, int], tuple[Hashable, ...]]


class OnceOnly:
    """One dedup window; every row is matched."""

    def __init__(self, window: int) -> None:
        self._seen = DedupWindow(window)

    def admit(self, batch: Batch, origin: str | None) -> Admitted | Batch:  # noqa: ARG002
        """See `Ingress.admit`."""
        batch.validate_layout()
        new = batch.mark_seen(self._seen)
        return batch if new is None else _without_duplicates(batch, new)

    def validate(self) -> None:
        """See `Ingress.validate`."""
        self._seen.validate()


class ByDestination:
    """One dedup window for rows with this broker among their destinations; all others are transit."""

    def __init__(self, number: int, window: int) -> None:
        self._number = number
        self._local = OnceOnly(window)

    @staticmethod
    def at(number: int) -> MakeIngress:
        """The ingress of the broker with this number."""
        return partial(ByDestination, number)

    def admit(self, batch: Batch, origin: str | None) -> Admitted | Batch:
        """See `Ingress.admit`."""
        here, transit = (batch, None) if origin is None else split_local(batch, self._number)
        if here is None:
            return Admitted(transit, (), None)
        admitted = self._local.admit(here, origin)
        if transit is None:
            return admitted
        return Admitted(transit, fresh_rows(admitted), admitted.duplicates if isinstance(admitted, Admitted) else None)

    def validate(self) -> None:
        """See `Ingress.validate`."""
        self._local.validate()


class ByCluster:
    """One dedup window per cluster and tag: a copy from one cluster is routed into the others, a copy from another is too.

    One more window covers local clients, so that a publication is delivered once, whatever its cluster.
    """

    def __init__(self, number: int, scopes_of: ScopesOf, window: int) -> None:
        self._number, self._scopes_of, self._window = number, scopes_of, window
        self._local = DedupWindow(window)
        self._scopes: dict[Hashable, DedupWindow] = {}

    @staticmethod
    def at(number: int, scopes_of: ScopesOf) -> MakeIngress:
        """The ingress of the broker with this number."""
        return partial(ByCluster, number, scopes_of)

    def admit(self, batch: Batch, origin: str | None) -> Admitted | Batch:
        """See `Ingress.admit`."""
        here, transit = (batch, None) if origin is None else split_local(batch, self._number)
        if here is None:
            return Admitted(transit, (), None)
        here.validate_layout()
        scopes = [self._scope(name) for name in self._scopes_of(origin, here.tag)]
        if origin is None or not scopes:
            return self._admit_own(here, transit, scopes)
        return _admit_in_scope(here, transit, scopes[0], self._local)

    def validate(self) -> None:
        """See `Ingress.validate`."""
        for window in (self._local, *self._scopes.values()):
            window.validate()

    def _scope(self, name: Hashable) -> DedupWindow:
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = DedupWindow(self._window)
        return scope

    def _admit_own(self, batch: Batch, transit: Batch | None, scopes: list[DedupWindow]) -> Admitted:
        """Rows of a client enter all clusters."""
        new = batch.mark_seen(self._local)
        some = batch if new is None else batch.take(new)
        for scope in scopes if some.count else ():
            some.mark_seen(scope)
        fresh = ((some, True),) if some.count else ()
        return Admitted(transit, fresh, None if new is None else _duplicates(batch, new))


class ByEpoch:
    """One dedup window per open epoch of the overlay: a copy in one epoch is routed there, whatever the other one has seen.

    A client that publishes again, because its broker has crashed, may have one copy in each epoch; dropped by each other, both
    would be lost. One more window covers local clients. While only one epoch is open, that is the only one.
    """

    def __init__(self, plane: "OpenEpochs", window: int) -> None:
        self._plane, self._window = plane, window
        self._local = DedupWindow(window)
        self._scopes: dict[OverlayEpoch, DedupWindow] = {}

    def admit(self, batch: Batch, origin: str | None) -> Admitted | Batch:
        """See `Ingress.admit`."""
        if not self._plane.is_single:
            batch.validate_layout()
            self._update_scopes()
            return _admit_in_scope(batch, None, self._scopes[self._plane.epoch_of(batch, origin)], self._local)
        if self._scopes:
            self._scopes.clear()  # the closed epoch was quiet: all that it saw was delivered, and nobody sends it again
        if batch.head.has_lists:
            batch.validate_layout()  # all else is parsed to mark the rows
        new = batch.mark_seen(self._local)
        return batch if new is None else _without_duplicates(batch, new)

    def validate(self) -> None:
        """See `Ingress.validate`: no epoch shares the window of local clients."""
        for window in (self._local, *self._scopes.values()):
            window.validate()
        assert all(window is not self._local for window in self._scopes.values())

    def _update_scopes(self) -> None:
        epochs = self._plane.epochs
        if self._scopes.keys() == set(epochs):
            return
        if not self._scopes:  # all that was seen so far was seen in the older epoch
            self._scopes[epochs[0]] = copy.deepcopy(self._local)
        self._scopes = {epoch: self._scopes.get(epoch) or DedupWindow(self._window) for epoch in epochs}


class OpenEpochs(Protocol):
    """The open epochs of a broker (see `overweave.routing.base.EpochPlane`)."""

    is_single: bool

    @property
    def epochs(self) -> tuple[OverlayEpoch, ...]:
        """The open epochs, the oldest first."""

    def epoch_of(self, batch: Batch, origin: str | None) -> OverlayEpoch:
        """The epoch of a batch."""


def fresh_rows(admitted: Admitted | Batch) -> tuple[tuple[Batch, bool], ...]:
    """The rows to match of what `Ingress.admit` returned."""
    return admitted.fresh if isinstance(admitted, Admitted) else ((admitted, True),)


def _without_duplicates(batch: Batch, new: NDArray[np.int64]) -> Admitted:
    return Admitted(None, ((batch.take(new), True),) if len(new) else (), _duplicates(batch, new))


def _admit_in_scope(batch: Batch, transit: Batch | None, scope: DedupWindow, local: DedupWindow) -> Admitted:
    """Rows that are new in a scope; those that ``local`` has seen are not for local clients again."""
    new = batch.mark_seen(scope)
    some = batch if new is None else batch.take(new)
    if not some.count:
        return Admitted(transit, (), _duplicates(batch, np.empty(0, np.int64)))
    first = some.mark_seen(local)
    if first is None:
        return Admitted(transit, ((some, True),), None if new is None else _duplicates(batch, new))
    is_first = np.isin(np.arange(some.count), first)
    runs = np.split(np.arange(some.count), np.flatnonzero(np.diff(is_first)) + 1)
    fresh = tuple((some.take(rows), bool(is_first[rows[0]])) for rows in runs)
    rows = np.arange(batch.count) if new is None else new
    return Admitted(transit, fresh, _duplicates(batch, rows[first]))


def _duplicates(batch: Batch, new: NDArray[np.int64]) -> Batch | None:
    """The rows of publications without a new row; the search is slow, and duplicates are few."""
    fresh = set(batch.take(new).identities()) if len(new) else set()
    rows = np.array([row for row, identity in enumerate(batch.identities()) if identity not in fresh], np.int64)
    return batch.take(rows) if len(rows) else None
