"""What every routing protocol costs, in closed form: STOCH 4, and the extensions that STOCH 6 names as next steps.

All of it follows from one picture. A link has two sides. On each, subscriptions of a class come and go as M/G/infinity, so there
is none with probability exp(-A), and a sum of independent such classes is one again. A protocol is a rule which entries a side
has told the other; the mean number of entries is the probability of that state, and the rate of control messages the rate at
which it changes, twice the rate at which it begins. A state of several independent conditions begins when one of them does
while the others hold.

Names are those of `overweave.routing.PROTOCOLS`. O(brokers x classes).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from overweave.analysis.classes import Inclusion
from overweave.analysis.tree import Reals, Tree
from overweave.analysis.workload import Workload


@dataclass(frozen=True, eq=False)
class Traffic:
    """Per link, which stands at its lower end (the root has none): up is towards the root. Rates are per second."""

    #: Entries that the parent has for the child, and the other way round; and the variances of these numbers.
    entries_up: Reals
    entries_down: Reals
    variance_up: Reals
    variance_down: Reals
    publications_up: Reals
    publications_down: Reals
    control_up: Reals
    control_down: Reals
    #: Publications that flooding would send and this does not; as rates of their own, since a difference may lose all digits.
    saved_up: Reals
    saved_down: Reals

    @property
    def routing_entries(self) -> float:
        """Remote entries in all tables."""
        return float(self.entries_up.sum() + self.entries_down.sum())

    @property
    def notification_rate(self) -> float:
        """Publications on all links."""
        return float(self.publications_up.sum() + self.publications_down.sum())

    @property
    def control_rate(self) -> float:
        """Control messages on all links."""
        return float(self.control_up.sum() + self.control_down.sum())

    @property
    def message_rate(self) -> float:
        """Everything."""
        return self.notification_rate + self.control_rate

    @property
    def saved_rate(self) -> float:
        """Messages that are saved against flooding, control messages counted (equation 13)."""
        return float(self.saved_up.sum() + self.saved_down.sum()) - self.control_rate


def traffic(protocol: str, tree: Tree, workload: Workload, inclusion: Inclusion | None = None) -> Traffic:
    """What ``protocol`` of `MODELS` costs.

    >>> from overweave.overlay.shapes import make_overlay
    >>> tree = Tree.of_overlay(make_overlay("level-limited", width=8))
    >>> workload = Workload.uniform(127, 1000, 100_000, 60, 32)
    >>> [round(traffic(protocol, tree, workload).message_rate) for protocol in ("flooding", "identity", "hierarchical-simple")]
    [4032, 4025, 34770]
    """
    workload.check(tree)
    model = MODELS[protocol]
    sums: dict[str, Reals] = {}
    for part, copies in workload.parts() if inclusion is None or inclusion.is_empty else ((workload, 1),):
        below, above = _sides(tree, part, inclusion or Inclusion.none(part.classes))
        up, down = model(below, above), model(above, below)
        if protocol in _HIERARCHICAL:
            up = up._replace(published=below.published, saved=np.zeros_like(up.saved))
            down = down._replace(**dict.fromkeys(("entries", "variance", "control"), np.zeros_like(up.saved)))
        for name, values in _columns(up, down).items():
            summed = copies * values.sum(axis=1)
            sums[name] = sums[name] + summed if name in sums else summed
    for values in sums.values():
        values[0] = 0
    return Traffic(**sums)


class Side(NamedTuple):
    """The population of one side of each link, by link and class."""

    #: Mean numbers and arrivals of subscriptions of the class itself, and of all wider ones.
    offered: Reals
    arrivals: Reals
    wider_offered: Reals
    wider_arrivals: Reals
    published: Reals
    #: Mean number of advertisements, which may be infinite, and their arrivals; and those of all narrower classes.
    advertised: Reals
    advertising: Reals
    narrower_advertised: Reals
    narrower_advertising: Reals

    @property
    def wanted(self) -> Reals:
        """The chance that a publication of the class matches something here."""
        return -np.expm1(-self.offered - self.wider_offered)

    @property
    def unwanted(self) -> Reals:
        """The chance that it does not."""
        return np.exp(-self.offered - self.wider_offered)


class _Way(NamedTuple):
    """What goes from one side of each link to the other, and the entries that it makes there."""

    entries: Reals
    variance: Reals
    published: Reals
    control: Reals
    saved: Reals

    @staticmethod
    def of_state(here: Side, there: Side, present: Reals, control: Reals) -> "_Way":
        """With one entry per class, or none."""
        return _Way.filtered(here, there, present, present * (1 - present), control)

    @staticmethod
    def filtered(here: Side, there: Side, entries: Reals, variance: Reals, control: Reals) -> "_Way":
        """Publications go where they are wanted."""
        return _Way(entries, variance, here.published * there.wanted, control, here.published * there.unwanted)


def _flooding(here: Side, _: Side) -> _Way:
    zeros = np.zeros_like(here.offered)
    return _Way(zeros, zeros, here.published, zeros, zeros)


def _simple(here: Side, there: Side) -> _Way:
    """Every subscription is forwarded, and their number is Poisson: the variance is the mean."""
    return _Way.filtered(here, there, here.offered, here.offered, 2 * here.arrivals)


def _identity(here: Side, there: Side) -> _Way:
    """A class is forwarded while it has subscriptions: equations 4 and 9."""
    return _Way.of_state(here, there, -np.expm1(-here.offered), _toggles(here.arrivals, here.offered))


def _covering(here: Side, there: Side) -> _Way:
    """A class is forwarded while it has subscriptions and no wider class has.

    That begins when the first of the class comes while there is no wider one, or when the last wider one goes, which is as
    often as a first one comes, while there are some of the class.
    """
    present, alone = -np.expm1(-here.offered), np.exp(-here.wider_offered)
    control = _toggles(here.arrivals, here.offered) * alone + _toggles(here.wider_arrivals, here.wider_offered) * present
    return _Way.of_state(here, there, present * alone, control)


def _advertised(here: Side, there: Side) -> _Way:
    """A class is forwarded while it has subscriptions here and advertisements of it, or of a narrower class, there.

    Advertisements themselves are told like classes, each for itself. Whoever publishes has advertised, so publications meet the
    same entries as without advertisements.
    """
    advertised, advertising = there.advertised + there.narrower_advertised, there.advertising + there.narrower_advertising
    present, offered_there = -np.expm1(-here.offered), -np.expm1(-advertised)
    control = (
        _toggles(here.arrivals, here.offered) * offered_there
        + _toggles(advertising, advertised) * present
        + _toggles(here.advertising, here.advertised)
    )
    return _Way.of_state(here, there, present * offered_there, control)


def _toggles(arrivals: Reals, offered: Reals) -> Reals:
    """Equation 9: how often a state begins and ends."""
    return 2 * arrivals * np.exp(-offered)


Model = Callable[[Side, Side], _Way]
#: By the name of the protocol: what one side sends the other.
MODELS: Mapping[str, Model] = {
    "flooding": _flooding,
    "hierarchical-simple": _simple,
    "identity": _identity,
    "covering": _covering,
    "simple": _simple,
    "identity-peer": _identity,
    "covering-peer": _covering,
    "identity-advertised": _advertised,
}
#: Protocols that forward only to the parent, where every publication reaches the root.
_HIERARCHICAL = ("hierarchical-simple", "identity", "covering")


def _sides(tree: Tree, workload: Workload, inclusion: Inclusion) -> tuple[Side, Side]:
    """Below and above the link over each broker."""
    advertised, advertising = workload.advertisements()
    sums = []
    for values in (workload.offered, workload.arrival_hz, workload.publication_hz, advertised, advertising):
        below = tree.gathered(values)
        sums.append((below, tree.left_out(values, below)))
    return _side(inclusion, *(below for below, _ in sums)), _side(inclusion, *(above for _, above in sums))


def _side(inclusion: Inclusion, offered: Reals, arrivals: Reals, published: Reals, advertised: Reals, advertising: Reals) -> Side:
    wider, narrower = inclusion.above, inclusion.below
    return Side(
        offered,
        arrivals,
        wider(offered),
        wider(arrivals),
        published,
        advertised,
        advertising,
        narrower(advertised),
        narrower(advertising),
    )


def _columns(up: _Way, down: _Way) -> dict[str, Reals]:
    names = {"entries": "entries", "variance": "variance", "published": "publications", "control": "control", "saved": "saved"}
    return {f"{names[field]}_{way}": getattr(each, field) for way, each in (("up", up), ("down", down)) for field in names}
