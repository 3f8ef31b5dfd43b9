"""Checkers of a simulation: nothing lost, nothing twice, tables valid, queues bounded.

One index over all subscriptions gives the expected deliveries, without any network.
"""

from collections.abc import Iterable

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


class DeliveryOracle:
    """Expected and actual deliveries, as two numbers per subscription.

    It holds the number and the sum of fingerprints of publications, due minus delivered. A loss and a
    duplicate that leave both at zero would have to have the same fingerprint.

    >>> from overweave.language.syntax import parse_filter
    >>> oracle = DeliveryOracle([("s1", parse_filter("[x,>,1]")), ("s2", parse_filter("[x,>,5]"))])
    >>> oracle.published("p", 0, Publication({"x": 3}))
    >>> oracle.delivered("p", 0, "s2")
    >>> oracle.faults()
    ["subscription 's1': 1 missing", "subscription 's2': 1 too many"]
    """

    def __init__(self, subscriptions: Iterable[tuple[str, Filter]]) -> None:
        self._index = Index()
        self._index.add_many((id, filter, None) for id, filter in subscriptions)
        self._open: dict[object, list[int]] = {}

    def published(self, publisher: str, sequence: int, publication: Publication) -> None:
        """Expect a publication at all matching subscriptions."""
        fingerprint = hash((publisher, sequence))
        for id in self._index.ids(publication):
            self._count(id, 1, fingerprint)

    def delivered(self, publisher: str, sequence: int, subscription: str) -> None:
        """Count a delivery."""
        self._count(subscription, -1, -hash((publisher, sequence)))

    def faults(self) -> list[str]:
        """Missing and surplus deliveries, once everything should be delivered."""
        return [
            f"subscription {id!r}: {_wrong(count)}" for id, (count, rest) in sorted(self._open.items(), key=str) if count or rest
        ]

    def _count(self, id: object, number: int, fingerprint: int) -> None:
        entry = self._open.setdefault(id, [0, 0])
        entry[0] += number
        entry[1] += fingerprint


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
