"""Similarity and load of clients whose filters are boxes of a content space (MINIMAL 4).

As in the paper, publications are spread evenly over the box of their advertisement. `BoxClients` is the workload;
`overweave.language.space` says what a box is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.boxes import Boxes
from overweave.planning.kernels.boxes import interest_row, overlaps_at, publisher_at, received, received_at, volumes
from overweave.planning.kernels.zones import disjoint, zone_row
from overweave.planning.problem import Reals, Whole
from overweave.planning.similarity import BrokerRow, Flags

__all__ = ["BoxClients", "BoxSimilarity", "Boxes", "disjoint_boxes"]


@dataclass(frozen=True, eq=False)
class BoxClients:
    """Clients, each with any number of advertisements (with a rate each) and of subscriptions."""

    ids: tuple[str, ...]
    advertisements: Boxes
    rate_hz: Reals
    subscriptions: Boxes

    def __len__(self) -> int:
        return len(self.ids)

    def validate(self) -> None:
        """Raise a `PlanningError` that names the defect."""
        for kind, boxes in (("advertisement", self.advertisements), ("subscription", self.subscriptions)):
            if boxes.lo.ndim != 2 or boxes.lo.shape != boxes.hi.shape or len(boxes.lo) != len(boxes):
                raise PlanningError(
                    f"{kind}s: expected a box for each of {len(boxes)}, found {boxes.lo.shape} and {boxes.hi.shape}"
                )
            for i in np.flatnonzero((boxes.owner < 0) | (boxes.owner >= len(self)))[:1].tolist():
                raise PlanningError(f"{kind} {i}: client: expected one of {len(self)}, found number {boxes.owner[i]}")
            for i in np.flatnonzero(~((boxes.lo < boxes.hi) & np.isfinite(boxes.hi - boxes.lo)).all(axis=1))[:1].tolist():
                raise PlanningError(f"{kind} {i} of {self.ids[boxes.owner[i]]!r}: expected a finite box with a volume above 0")
        if self.advertisements.lo.shape[1:] != self.subscriptions.lo.shape[1:]:
            raise PlanningError("advertisements and subscriptions: expected boxes with the same axes")
        if self.rate_hz.shape != (len(self.advertisements),) or not (np.isfinite(self.rate_hz) & (self.rate_hz >= 0)).all():
            raise PlanningError("advertisements: rate_hz: expected a number from 0 on for each")

    def ordered(self) -> tuple["BoxClients", Whole]:
        """The same clients in canonical order, by content, and the place of each in the old order.

        So a plan does not depend on the order of rows: sums are added and ties are broken in one order.
        """
        ads, subs = self.advertisements, self.subscriptions
        ad_key = _numbered(np.column_stack([self.rate_hz, ads.lo, ads.hi]))
        sub_key = _numbered(np.column_stack([subs.lo, subs.hi]))
        content: list[tuple[list[int], list[int]]] = [([], []) for _ in self.ids]
        for side, (owner, key) in enumerate(((ads.owner, ad_key), (subs.owner, sub_key))):
            for i in np.argsort(key, kind="stable").tolist():
                content[owner[i]][side].append(int(key[i]))
        order = np.array(sorted(range(len(self)), key=content.__getitem__), np.int64)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        by_ad, by_sub = np.lexsort((ad_key, place[ads.owner])), np.lexsort((sub_key, place[subs.owner]))
        ids = tuple(self.ids[i] for i in order.tolist())
        rates = np.ascontiguousarray(self.rate_hz[by_ad], np.float64)
        return BoxClients(ids, ads.take(by_ad, place), rates, subs.take(by_sub, place)), order


class BoxSimilarity:
    """The port `Similarity` for `BoxClients` in the order of their owners, as `BoxClients.ordered` makes them."""

    def __init__(self, clients: BoxClients) -> None:
        self._ads, self._subs = clients.advertisements, clients.subscriptions
        self._rate, self._count = clients.rate_hz, len(clients)
        ends = np.arange(self._count + 1)
        self._ad_start, self._sub_start = (np.searchsorted(each.owner, ends) for each in (self._ads, self._subs))
        self._ad_volume, self._sub_volume = np.empty(len(self._ads)), np.empty(len(self._subs))
        volumes(self._ads.lo, self._ads.hi, self._ad_volume)
        volumes(self._subs.lo, self._subs.hi, self._sub_volume)
        self.publishes: Flags = np.diff(self._ad_start) > 0
        self.subscribes: Flags = np.diff(self._sub_start) > 0
        self.impact_hz: Reals = self._impacts()

    def interest(self, publisher: int) -> Reals:
        """As `Similarity.interest`."""
        out, ads, subs = np.zeros(self._count), self._ads, self._subs
        interest_row(*self._ads_of(publisher), ads.lo, ads.hi, self._ad_volume, subs.lo, subs.hi, subs.owner, out)
        return out

    def at_brokers(self, client: int, home: Whole, brokers: int) -> tuple[Reals, Reals]:
        """As `Similarity.at_brokers`."""
        similarity, local = np.zeros((2, brokers))
        ads, subs = self._ads, self._subs
        if self.publishes[client]:
            publisher_at(
                *self._ads_of(client), ads.lo, ads.hi, self._ad_volume, self._rate, subs.lo, subs.hi, subs.owner, home,
                similarity, local,
            )  # fmt: skip
        if self.subscribes[client]:
            overlaps_at(*self._subs_of(client), subs.lo, subs.hi, self._sub_volume, subs.owner, home, similarity)
            received_at(
                *self._subs_of(client), subs.lo, subs.hi, ads.lo, ads.hi, self._ad_volume, self._rate, ads.owner, home, local
            )
        return similarity, local

    def commonality(self, home: Whole, brokers: int) -> BrokerRow:
        """As `Similarity.commonality`."""
        subs, members = self._subs, _members(home, brokers)

        def row(broker: int) -> Reals:
            out = np.zeros(brokers)
            for client in members[broker]:
                overlaps_at(*self._subs_of(client), subs.lo, subs.hi, self._sub_volume, subs.owner, home, out)
            return out

        return row

    def zones(self, home: Whole, brokers: int) -> BrokerRow:
        """As `Similarity.zones`, with the exact area of the union."""
        at = home[self._subs.owner]
        order = np.argsort(at, kind="stable")
        groups = np.split(order, np.searchsorted(at[order], np.arange(brokers + 1)))[1:-1]
        lo, hi, start = disjoint_boxes(self._subs.lo, self._subs.hi, groups)
        volume = np.empty(len(lo))
        volumes(lo, hi, volume)
        area = np.array([volume[start[i] : start[i + 1]].sum() for i in range(brokers)])

        def row(broker: int) -> Reals:
            out = np.empty(brokers)
            zone_row(broker, start, lo, hi, area, out)
            return out

        return row

    def _impacts(self) -> Reals:
        """A publisher's rate, and what a subscriber receives; what a client receives of its own is there already."""
        ads, subs, found = self._ads, self._subs, np.zeros(self._count)
        np.add.at(found, ads.owner, self._rate)
        alone, none = np.full(self._count, -1, np.int64), np.zeros((2, 1))
        for client in np.flatnonzero(self.subscribes).tolist():
            span = self._subs_of(client)
            found[client] += received(*span, subs.lo, subs.hi, ads.lo, ads.hi, self._ad_volume, self._rate)
            if self.publishes[client]:
                alone[client], none[:] = 0, 0.0
                received_at(*span, subs.lo, subs.hi, ads.lo, ads.hi, self._ad_volume, self._rate, ads.owner, alone, none[1])
                found[client] -= none[1, 0]
                alone[client] = -1
        return found

    def _ads_of(self, client: int) -> tuple[int, int]:
        return int(self._ad_start[client]), int(self._ad_start[client + 1])

    def _subs_of(self, client: int) -> tuple[int, int]:
        return int(self._sub_start[client]), int(self._sub_start[client + 1])


def disjoint_boxes(lo: Reals, hi: Reals, groups: Sequence[Whole]) -> tuple[Reals, Reals, Whole]:
    """For each group of boxes disjoint ones with the same union: all of them, and where each group's begin and end.

    >>> lo, hi = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 2.0], [3.0, 3.0]])
    >>> parts_lo, parts_hi, start = disjoint_boxes(lo, hi, [np.array([0, 1])])
    >>> float(np.prod(parts_hi - parts_lo, axis=1).sum()), start.tolist()
    (7.0, [0, 3])
    """
    axes, room, depth = lo.shape[1], 4 * len(lo) + 16, 64
    out_lo, out_hi = np.empty((2, room, axes))
    stack_lo, stack_hi, stack_next = np.empty((depth, axes)), np.empty((depth, axes)), np.empty(depth, np.int64)
    size, start = np.prod(hi - lo, axis=1), [0]
    for group in groups:
        order = group[np.argsort(-size[group], kind="stable")].astype(np.int64)
        while (end := disjoint(order, lo, hi, start[-1], out_lo, out_hi, stack_lo, stack_hi, stack_next)) < 0:
            out_lo, out_hi = (np.concatenate([each, np.empty_like(each)]) for each in (out_lo, out_hi))
            depth *= 2
            stack_lo, stack_hi, stack_next = np.empty((depth, axes)), np.empty((depth, axes)), np.empty(depth, np.int64)
        start.append(int(end))
    return out_lo[: start[-1]], out_hi[: start[-1]], np.array(start, np.int64)


def _members(home: Whole, brokers: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(brokers)]
    for client, broker in enumerate(home.tolist()):
        if broker >= 0:
            found[broker].append(client)
    return found


def _numbered(rows: Reals) -> Whole:
    """A number for each row, ascending with its content."""
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel().astype(np.int64) if len(rows) else np.zeros(0, np.int64)
