"""Identity-based hierarchical routing, in closed form: equations 1 to 14 of STOCH 4 for any tree and any rates.

With A(B) the mean number of subscriptions in the sub-tree of B, equations 1 and 3 are P0(B) = exp(-A(B)): a sum instead of a
product, so that nothing underflows on the way. 1 - P0 is then ``expm1``, right for the rarest class, and the toggle rate
2 lambda P0 is, where P0 is too small for a number, the exponential of a sum of logarithms, right for the most crowded one.

Departure: notifications are counted per link instead of per path. Equations 6 and 7 add up to omega_below + omega_above (1 - P0)
on the link above B, and equation 12 to omega_above P0, which does not subtract almost equal numbers. O(brokers x classes).
"""

from dataclasses import dataclass

import numpy as np

from overweave.analysis.tree import Reals, Tree
from overweave.analysis.workload import Workload


@dataclass(frozen=True, eq=False, kw_only=True)
class Rates:
    """Expected values per broker, per class, or in total, according to the summation."""

    #: Mean numbers of local entries (equation 2) and remote ones (4; x_r in all is 5).
    local_entries: Reals
    routing_entries: Reals
    #: Notifications per second if all publishers were at the root (6), and what hierarchical routing adds (7).
    notification_rate_root: Reals
    notification_rate_additional: Reals
    #: Control messages per second, identity-based (10) and simple (14).
    control_rate: Reals
    control_rate_simple: Reals
    #: Notifications per second with flooding (11), and how many of them filtering saves (12).
    flooding_rate: Reals
    saved_notification_rate: Reals

    @property
    def notification_rate(self) -> Reals:
        """b_n + b_p."""
        return self.notification_rate_root + self.notification_rate_additional

    @property
    def saved_rate(self) -> Reals:
        """Equation 13: messages saved against flooding, control messages counted."""
        return self.saved_notification_rate - self.control_rate

    @property
    def saved_rate_simple(self) -> Reals:
        """Likewise for simple routing."""
        return self.saved_notification_rate - self.control_rate_simple


@dataclass(frozen=True, eq=False)
class Analysis:
    """Rates by class, by broker, and in all.

    A broker's entries are those in its table; its messages are those on the link to its parent, so the root has none.
    """

    per_broker: Rates
    per_class: Rates

    @property
    def totals(self) -> Rates:
        """Of the whole network; every field is a number."""
        return Rates(**{name: np.asarray(values.sum()) for name, values in vars(self.per_class).items()})


def analyse(tree: Tree, workload: Workload) -> Analysis:
    """Equations 1 to 14.

    >>> from overweave.overlay.shapes import make_overlay
    >>> tree = Tree.of_overlay(make_overlay("level-limited", width=8))
    >>> totals = analyse(tree, Workload.uniform(127, 1000, 1e9, 60, 1000)).totals
    >>> float(totals.routing_entries), float(totals.notification_rate).__round__(), float(totals.control_rate)
    (126000.0, 126000, 0.0)
    """
    workload.check(tree)
    per_broker: dict[str, Reals] = {}
    per_class: dict[str, list[Reals]] = {}
    for part, copies in workload.parts():
        for name, cells in _cells(tree, part).items():
            by_broker = copies * cells.sum(axis=1)
            per_broker[name] = per_broker[name] + by_broker if name in per_broker else by_broker
            per_class.setdefault(name, []).append(np.repeat(cells.sum(axis=0), copies))
    entries = np.zeros(len(tree))
    np.add.at(entries, tree.parents[1:], per_broker["routing_entries"][1:])
    return Analysis(
        Rates(**per_broker | {"routing_entries": entries}),
        Rates(**{name: np.concatenate(parts) for name, parts in per_class.items()}),
    )


#: The number of subscriptions from which exp(-A) loses precision.
_CROWDED = 700.0


def _cells(tree: Tree, workload: Workload) -> dict[str, Reals]:
    """Every rate by broker and class; what belongs to a link stands at its lower end."""
    offered = workload.offered
    below = tree.gathered(offered)
    arrivals = tree.gathered(workload.arrival_hz)
    published = tree.gathered(workload.publication_hz)
    everything = published[:1]
    occupied, empty = -np.expm1(-below), np.exp(-below)
    toggles = 2 * arrivals * empty
    crowded = below > _CROWDED
    toggles[crowded] = 2 * np.exp(np.log(arrivals[crowded]) - below[crowded])
    cells = {
        "routing_entries": occupied,
        "notification_rate_root": occupied * everything,
        "notification_rate_additional": empty * published,
        "control_rate": toggles,
        "control_rate_simple": 2 * arrivals,
        "flooding_rate": np.repeat(everything, len(tree), axis=0),
        "saved_notification_rate": np.maximum(everything - published, 0) * empty,
    }
    for values in cells.values():
        # There is no link above the root.
        values[0] = 0
    return cells | {"local_entries": offered}
