"""The condition of deliveries: their delays between observations, and what is unsettled."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from overweave.contract.delays import percentile_s
from overweave.contract.observation import Observation

#: The percentile of delays, and the least number of deliveries that it is computed from.
_SHARE, _DELIVERIES_MIN = 0.99, 20


class Deliveries(msgspec.Struct, frozen=True):
    """The condition of deliveries since the observation before."""

    #: The 99th percentile of their delays; None: too few deliveries.
    delay_s: float | None = None
    #: The publications and control messages that established peers and neighbours have not settled.
    unsettled: int = 0


class DeliveryMeter:
    """Measures deliveries between the observations of one operator."""

    def __init__(self) -> None:
        self._counts: dict[str, Mapping[int, int]] = {}

    def measure(self, observation: Observation) -> Deliveries:
        """The deliveries since the last observation with enough of them."""
        unsettled = sum(each.unsettled for each in observation.brokers.values())
        found: Counter[int] = Counter()
        for id, broker in observation.brokers.items():
            found += _since(self._counts.setdefault(id, broker.delays), broker.delays)
        if found.total() < _DELIVERIES_MIN:
            return Deliveries(unsettled=unsettled)
        self._counts |= {id: broker.delays for id, broker in observation.brokers.items()}
        return Deliveries(percentile_s(found, _SHARE), unsettled)


def _since(before: Mapping[int, int], now: Mapping[int, int]) -> Counter[int]:
    """The counts since ``before``; lower counts mean a restart."""
    if any(now.get(bucket, 0) < count for bucket, count in before.items()):
        return Counter(now)
    return Counter({bucket: count - before.get(bucket, 0) for bucket, count in now.items()})
