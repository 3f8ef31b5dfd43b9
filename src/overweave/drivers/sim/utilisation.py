"""Utilisation: offered load of brokers as a share of time. Above 1 a queue grows as long as the load lasts."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import OverweaveError

#: A broker or an uplink with at least this utilisation is overloaded.
OVERLOADED = 1.0
NAMED_MAX = 10
_Number = TypeVar("_Number", int, float)


class Utilisation(msgspec.Struct, frozen=True):
    """Offered load of brokers: work that arrived in the measured time, as a share of that time; the highest, and the mean."""

    max: float
    mean: float


class Overloaded(msgspec.Struct, frozen=True):
    """A broker's ``input``, ``uplink`` or ``capacity`` with a utilisation of at least 1."""

    broker: str
    part: str
    utilisation: float

    def __str__(self) -> str:
        return f"{self.broker} {self.part} {self.utilisation:.2f}"


def overload_text(parts: Sequence[str]) -> str:
    """One line about overloaded parts; the first `NAMED_MAX` are named.

    >>> overload_text(["B3 input 2.20", "B7 uplink 1.40"])
    'overloaded: B3 input 2.20, B7 uplink 1.40: delays grow with the length of the run'
    """
    more = f" and {len(parts) - NAMED_MAX:,} more" if len(parts) > NAMED_MAX else ""
    return f"overloaded: {', '.join(parts[:NAMED_MAX])}{more}: delays grow with the length of the run"


class NotSettled(OverweaveError):
    """Messages that are in flight long after the end of a scenario, and the overloaded parts.

    >>> str(NotSettled(7, 60.0, ()))
    'the network did not settle: 7 messages of clients are in flight after 60 simulated seconds; is it overloaded?'
    """

    def __init__(self, unsettled: int, end_s: float, overloaded: Sequence[Overloaded]) -> None:
        overload = overload_text([str(each) for each in overloaded]) if overloaded else "is it overloaded?"
        super().__init__(
            f"the network did not settle: {unsettled} messages of clients are in flight "
            f"after {end_s:g} simulated seconds; {overload}"
        )
        self._arguments = unsettled, end_s, overloaded
        self.overloaded = overloaded

    def __reduce__(self) -> tuple[type["NotSettled"], tuple[int, float, Sequence[Overloaded]]]:
        return NotSettled, self._arguments


class OfferedWork(NamedTuple):
    """Work that has arrived at each broker since its start: seconds of matching and of sending, and seconds of capacity."""

    input: Mapping[str, float]
    uplink: Mapping[str, float]
    capacity: Mapping[str, float]

    def since(self, before: "OfferedWork", duration_s: float) -> "OfferedWork":
        """Utilisations since an earlier moment."""
        shares = (
            {id: work_s / duration_s for id, work_s in added(now, then).items()} for now, then in zip(self, before, strict=True)
        )
        return OfferedWork(*shares)

    def overloaded(self) -> tuple[Overloaded, ...]:
        """The overloaded parts, of utilisations, highest first."""
        found = [
            Overloaded(id, part, utilisation)
            for part, by_broker in self._asdict().items()
            for id, utilisation in by_broker.items()
            if utilisation >= OVERLOADED
        ]
        return tuple(sorted(found, key=lambda each: (-each.utilisation, each.part, each.broker)))


def offered_work(network: SimulatedNetwork) -> OfferedWork:
    """The work offered to all running brokers that have queues."""
    stations = {id: station for id in network.running() if (station := network.station(id)) is not None}
    return OfferedWork(
        {id: station.offered_s() for id, station in stations.items()},
        {id: station.uplink_offered_s() for id, station in stations.items()},
        {id: station.arrivals / station.overload.capacity_hz for id, station in stations.items() if station.overload is not None},
    )


def summarise(utilisations: Mapping[str, float]) -> Utilisation | None:
    """The highest utilisation and the mean; None without brokers."""
    if not utilisations:
        return None
    return Utilisation(max=max(utilisations.values()), mean=math.fsum(utilisations.values()) / len(utilisations))


def added(now: Mapping[str, _Number], before: Mapping[str, _Number]) -> dict[str, _Number]:
    """The growth of counters; a counter below its earlier value belongs to a broker that has restarted.

    >>> added({"B1": 5, "B2": 1, "B3": 2}, {"B1": 3, "B2": 4})
    {'B1': 2, 'B2': 1, 'B3': 2}
    """
    return {id: value - before[id] if value >= before.get(id, math.inf) else value for id, value in now.items()}
