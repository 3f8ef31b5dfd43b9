"""Ingress: which rows of an arriving batch are transit, which are new here, and which are duplicates.

Transit rows are forwarded by their destination lists and never deduplicated. All other rows are matched at this broker, each
publication once in its dedup scope.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.destinations import split_local
from overweave.routing.dedup import DedupWindow


class Admitted(NamedTuple):
    """An arriving batch in parts."""

    transit: Batch | None
    #: Rows to match, in their order; False: they have been delivered to local clients before.
    fresh: tuple[tuple[Batch, bool], ...]
    #: Rows whose first copy came earlier.
    duplicates: Batch | None


class Ingress(Protocol):
    """The classification of arriving batches at one broker."""

    def admit(self, batch: Batch, origin: str | None) -> Admitted:
        """Classify a batch of a neighbour, or of a client (None), and mark its rows as seen. Malformed rows raise."""


#: An ingress with dedup windows of a size.
MakeIngress = Callable[[int], Ingress]
#: The dedup scopes of a batch, given its origin and tag.
ScopesOf = Callable[[str | None, int], tuple[Hashable, ...]]


class OnceOnly:
    """One dedup window; every row is matched."""

    def __init__(self, window: int) -> None:
        self._seen = DedupWindow(window)

    def admit(self, batch: Batch, origin: str | None) -> Admitted:  # noqa: ARG002
        """See `Ingress.admit`."""
        batch.validate_layout()
        new = batch.mark_seen(self._seen)
        if new is None:
            return Admitted(None, ((batch, True),), None)
        return Admitted(None, ((batch.take(new), True),) if len(new) else (), _duplicates(batch, new))


class ByDestination:
    """One dedup window for rows with this broker among their destinations; all others are transit."""

    def __init__(self, number: int, window: int) -> None:
        self._number = number
        self._local = OnceOnly(window)

    @staticmethod
    def at(number: int) -> MakeIngress:
        """The ingress of the broker with this number."""
        return partial(ByDestination, number)

    def admit(self, batch: Batch, origin: str | None) -> Admitted:
        """See `Ingress.admit`."""
        here, transit = (batch, None) if origin is None else split_local(batch, self._number)
        if here is None:
            return Admitted(transit, (), None)
        admitted = self._local.admit(here, origin)
        return admitted if transit is None else admitted._replace(transit=transit)


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

    def admit(self, batch: Batch, origin: str | None) -> Admitted:
        """See `Ingress.admit`."""
        here, transit = (batch, None) if origin is None else split_local(batch, self._number)
        if here is None:
            return Admitted(transit, (), None)
        here.validate_layout()
        scopes = [self._scope(name) for name in self._scopes_of(origin, here.tag)]
        if origin is None or not scopes:
            return self._admit_own(here, scopes)._replace(transit=transit)
        return self._admit_transferred(here, transit, scopes[0])

    def _scope(self, name: Hashable) -> DedupWindow:
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = DedupWindow(self._window)
        return scope

    def _admit_own(self, batch: Batch, scopes: list[DedupWindow]) -> Admitted:
        """Rows of a client enter all clusters."""
        new = batch.mark_seen(self._local)
        some = batch if new is None else batch.take(new)
        for scope in scopes if some.count else ():
            some.mark_seen(scope)
        return Admitted(None, ((some, True),) if some.count else (), None if new is None else _duplicates(batch, new))

    def _admit_transferred(self, batch: Batch, transit: Batch | None, scope: DedupWindow) -> Admitted:
        new = batch.mark_seen(scope)
        some = batch if new is None else batch.take(new)
        if not some.count:
            return Admitted(transit, (), _duplicates(batch, np.empty(0, np.int64)))
        first = some.mark_seen(self._local)
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
