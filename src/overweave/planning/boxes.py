"""Boxes of a content space in arrays, and the filters of a problem as boxes (MINIMAL 4.1)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Reals = NDArray[np.float64]
_Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes ``[lo, hi)``, one per row, and the number of the owner of each."""

    lo: _Reals
    hi: _Reals
    owner: _Whole

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, chosen: _Whole, owner: _Whole) -> "Boxes":
        """Some of them, with other numbers for their owners, given for every old number."""
        lo, hi = (np.ascontiguousarray(side[chosen], np.float64) for side in (self.lo, self.hi))
        return Boxes(lo, hi, owner[self.owner[chosen]].astype(np.int64))


@dataclass(frozen=True, eq=False)
class FilterBoxes:
    """The advertisements of a problem's publishers and the subscriptions of its units."""

    advertisements: Boxes
    #: The share of its publisher's rate that each advertisement has.
    rate_share: _Reals
    subscriptions: Boxes

    def renumbered(self, publisher: _Whole, unit: _Whole) -> "FilterBoxes":
        """With other numbers for publishers and units, and in their order."""
        by_ad = np.argsort(publisher[self.advertisements.owner], kind="stable")
        by_sub = np.argsort(unit[self.subscriptions.owner], kind="stable")
        ads, subs = self.advertisements.take(by_ad, publisher), self.subscriptions.take(by_sub, unit)
        return FilterBoxes(ads, self.rate_share[by_ad], subs)
