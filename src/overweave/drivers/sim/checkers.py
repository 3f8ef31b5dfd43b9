"""Checkers of a simulation: nothing lost, nothing twice, tables valid, queues bounded.

One index over all subscriptions gives the expected deliveries, without any network.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.matching.index import Index


class Checks(msgspec.Struct, frozen=True):
    """The checks of a run; one that fails ends the run."""

    #: Every subscription gets what it matches, once, and nothing else.
    deliveries: bool = True
    #: Sessions, tables and registries of brokers hold what they must.
    tables: bool = True
    #: No input queue of a broker grows beyond this.
    queue_max: int = 100_000

    def __post_init__(self) -> None:
        if self.queue_max < 1:
            raise InvalidInput(f"checks.queue_max: expected an integer of at least 1, got {self.queue_max}")


#: A publication: its publisher, the publisher's life id, and the sequence number.
Key = tuple[str, int, int]


class DeliveryOracle:
    """Expected and surplus deliveries of each subscription.

    A delivery is optional if the publication was sent before the subscription was in force, or if its publisher crashed before
    it was settled. A subscription whose client has crashed or left expects nothing more.

    >>> from overweave.language.syntax import parse_filter
    >>> oracle = DeliveryOracle([("s1", parse_filter("[x,>,1]")), ("s2", parse_filter("[x,>,5]"))])
    >>> oracle.published("p", 0, Publication({"x": 3}))
    >>> oracle.delivered("p", 0, "s2")
    >>> oracle.faults()
    ["subscription 's1': 1 missing", "subscription 's2': 1 too many"]
    """

    def __init__(self, subscriptions: Iterable[tuple[str, Filter]] = ()) -> None:
        self._index = Index()
        self._filters = dict(subscriptions)
        self._index.add_many((id, filter, None) for id, filter in self._filters.items())
        self._due: dict[str, set[Key]] = {}
        self._surplus: Counter[str] = Counter()
        #: Optional deliveries; and for later subscriptions the publications before they were in force, and those received.
        self._optional: dict[str, set[Key]] = {}
        self._before: dict[str, Mapping[tuple[str, int], int] | None] = {}
        self._early: dict[str, set[Key]] = {}
        #: The next sequence number of each publisher, and publishers whose publications may get lost.
        self._next: dict[tuple[str, int], int] = {}
        self._doubted: set[str] = set()

    def published(self, publisher: str, sequence: int, publication: Publication, life: int = 1) -> None:
        """Expect a publication at all matching subscriptions."""
        self._next[publisher, life] = sequence + 1
        expected = self._optional if publisher in self._doubted else self._due
        for id in self._index.ids(publication):
            expected.setdefault(str(id), set()).add((publisher, life, sequence))

    def delivered(self, publisher: str, sequence: int, subscription: str, life: int = 1) -> None:
        """Count a delivery."""
        key = publisher, life, sequence
        for expected in (self._due, self._optional):
            if key in expected.get(subscription, ()):
                expected[subscription].remove(key)
                return
        early = self._early.get(subscription)
        if early is not None and key not in early and self._is_before(subscription, key):
            early.add(key)
        else:
            self._surplus[subscription] += 1

    def subscribe(self, id: str, filter: Filter) -> None:
        """Add a subscription that is not in force yet, or no more: all its deliveries are optional."""
        if self._filters.get(id) is not None:
            self._index.remove(id)
            self._optional.setdefault(id, set()).update(self._due.pop(id, ()))
        self._filters[id] = filter
        self._before[id] = None
        self._early.setdefault(id, set())

    def in_force(self, id: str) -> None:
        """Expect all later publications at a subscription."""
        self._index.add(id, self._filters[id], None)
        self._before[id] = dict(self._next)

    def close(self, id: str) -> None:
        """Expect nothing more at a subscription whose client has crashed or left; a delivery is one too many."""
        if self._before.get(id, {}) is not None:
            self._index.remove(id)
        for each in (self._filters, self._due, self._optional, self._before, self._early):
            each.pop(id, None)

    def excuse(self, publisher: str, life: int, settled: int) -> None:
        """Let all but the first ``settled`` publications of a publisher be lost."""
        for id, due in self._due.items():
            lost = {key for key in due if key[:2] == (publisher, life) and key[2] >= settled}
            if lost:
                due -= lost
                self._optional.setdefault(id, set()).update(lost)

    def doubt(self, publisher: str) -> None:
        """Let publications from now on be lost, until they are trusted again."""
        self._doubted.add(publisher)

    def trust(self, publisher: str) -> None:
        """Expect later publications of a publisher."""
        self._doubted.discard(publisher)

    def faults(self) -> list[str]:
        """Missing and surplus deliveries, once everything should be delivered."""
        missing = {id: len(due) for id, due in self._due.items() if due}
        ids = sorted({*missing, *self._surplus})
        return [f"subscription {id!r}: {_wrong(missing.get(id, 0) - self._surplus[id])}" for id in ids]

    def _is_before(self, id: str, key: Key) -> bool:
        before = self._before[id]
        return before is None or key[2] < before.get(key[:2], 0)


def check_brokers(network: SimulatedNetwork, checks: Checks) -> None:
    """Check all brokers that run, at this moment."""
    for id in network.running():
        if checks.tables:
            try:
                network.broker(id).validate()
            except AssertionError as error:
                raise OverweaveError(f"broker {id} at {network.scheduler.now_s:g} s: its state is broken: {error}") from error
        station = network.station(id)
        if station is not None and station.queue_max > checks.queue_max:
            raise OverweaveError(
                f"broker {id} at {network.scheduler.now_s:g} s: {station.queue_max} frames wait in its input queue, more than "
                f"checks.queue_max = {checks.queue_max}; is it overloaded?"
            )


def check_deliveries(oracle: DeliveryOracle) -> None:
    """Raise unless all deliveries are as expected."""
    faults = oracle.faults()
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise OverweaveError(f"deliveries are wrong: {'; '.join(faults[:5])}{more}")


def _wrong(count: int) -> str:
    if count == 0:
        return "as many as due, but not the right ones"
    return f"{count} missing" if count > 0 else f"{-count} too many"
