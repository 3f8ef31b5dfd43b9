"""What clients do: arrivals, lifetimes and publications per broker and filter class (STOCH 3.1)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from overweave.analysis.tree import Reals, Tree
from overweave.errors import InvalidInput

#: The brokers times classes per step: an array that fits a cache is quicker than all at once.
CELLS_MAX = 1 << 20


@dataclass(frozen=True, eq=False)
class Workload:
    """Rates by broker (rows, in the order of the tree) and filter class (columns); a view of one number may stand for all.

    Lifetimes have any distribution; only their mean matters (M/G/infinity).

    >>> Workload.uniform(3, 10, subscriptions=60, lifetime_s=60, publication_hz=6).subscriptions
    60.0
    """

    #: New subscriptions per second (lambda), their mean lifetime (1/mu), and publications per second (omega).
    arrival_hz: Reals
    lifetime_s: Reals
    publication_hz: Reals
    #: Advertisements with churn, likewise; None: publishers have permanent ones.
    advertising_hz: Reals | None = None
    advertisement_lifetime_s: Reals | None = None

    @staticmethod
    def uniform(brokers: int, classes: int, subscriptions: float, lifetime_s: float, publication_hz: float) -> "Workload":
        """Everything equally distributed (STOCH 3.2): ``subscriptions`` and ``publication_hz`` are those of the whole network."""
        for name, value in (("subscriptions", subscriptions), ("rate", publication_hz)):
            if not 0 <= value < np.inf:
                raise InvalidInput(f"{name}: expected a finite number from 0 on, found {value:g}")
        if not 0 < lifetime_s < np.inf:
            raise InvalidInput(f"lifetime: expected a finite number above 0, found {lifetime_s:g}")
        shape, cells = (brokers, classes), brokers * classes
        arrival_hz = np.broadcast_to(np.float64(subscriptions / cells / lifetime_s), shape)
        lifetimes_s = np.broadcast_to(np.float64(lifetime_s), shape)
        return Workload(arrival_hz, lifetimes_s, np.broadcast_to(np.float64(publication_hz / cells), shape))

    @property
    def classes(self) -> int:
        """How many filter classes there are."""
        return int(self.arrival_hz.shape[1])

    @cached_property
    def subscriptions(self) -> float:
        """How many subscriptions there are on average (Ns)."""
        return sum(copies * float(part.offered.sum()) for part, copies in self.parts())

    @property
    def offered(self) -> Reals:
        """The mean number of local subscriptions, equation 2: x_l = lambda / mu."""
        return self.arrival_hz * self.lifetime_s

    def advertisements(self) -> tuple[Reals, Reals]:
        """The mean number of local advertisements, infinite where one always stands, and their arrivals per second."""
        if self.advertising_hz is None or self.advertisement_lifetime_s is None:
            return np.where(self.publication_hz > 0, np.inf, 0.0), np.zeros(self.publication_hz.shape)
        return self.advertising_hz * self.advertisement_lifetime_s, self.advertising_hz

    def scaled(self, factor: float) -> "Workload":
        """A workload with a multiple of the subscriptions."""
        alike = 1 if self.arrival_hz.strides[1] == 0 else self.classes
        return replace(self, arrival_hz=np.broadcast_to(self.arrival_hz[:, :alike] * factor, self.arrival_hz.shape))

    def parts(self) -> Iterator[tuple["Workload", int]]:
        """The same classes, some after the other, with how often each counts: if all are alike, one stands for all."""
        given = {name: values for name, values in vars(self).items() if isinstance(values, np.ndarray)}
        alike = self.classes > 0 and all(values.strides[1] == 0 for values in given.values())
        step, copies = (self.classes, self.classes) if alike else (max(1, CELLS_MAX // self.arrival_hz.shape[0]), 1)
        for first in range(0, self.classes, step):
            some = slice(first, first + (1 if alike else step))
            yield Workload(**{name: values[:, some] for name, values in given.items()}), copies

    def check(self, tree: Tree) -> None:
        """Refuse rates that cannot be, with the field, the broker and the class."""
        shape = (len(tree), self.classes)
        for name in ("arrival_hz", "lifetime_s", "publication_hz", "advertising_hz", "advertisement_lifetime_s"):
            values, lasting = getattr(self, name), name.endswith("lifetime_s")
            if values is None:
                continue
            if values.shape != shape:
                raise InvalidInput(f"{name}: expected {shape[0]} brokers by {shape[1]} classes, found {values.shape}")
            # A view of one number needs one look.
            once = values[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in values.strides)]
            good = np.isfinite(once) & (once > 0 if lasting else once >= 0)
            if not good.all():
                broker, of = np.argwhere(~good)[0]
                wanted = "above 0" if lasting else "from 0 on"
                where = f"{name}: broker {tree.ids[broker]!r}, class {of + 1}"
                raise InvalidInput(f"{where}: expected a finite number {wanted}, found {once[broker, of]:g}")
