"""The delays of deliveries to the clients of one broker, counted while an operator asks for them."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.raw import RawRows
from overweave.contract.delays import bucket_of, buckets_of
from overweave.contract.modules import Routed
from overweave.language.headers import Priority


class DeliveryDelays:
    """Counts since they began: those who ask take differences, so that they do not disturb each other.

    A delay is the time from publication until this broker has routed the publication to a client. The clocks of publishers and
    brokers are expected to agree.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def on_routed(self, routed: Routed, neighbours: tuple[str, ...], now_s: float) -> None:
        """Count the deliveries among what was routed."""
        receivers = [some for peer, some in routed.to if peer is not None and peer not in neighbours and "/" not in peer]
        if not receivers or routed.batch.priority() is not Priority.PUBLICATION:
            return
        if routed.batch.count == 1:
            self.counts[bucket_of(now_s - float(_times(receivers[0])[0]))] += len(receivers)
            return
        times = np.concatenate([_times(some) for some in receivers])
        found = np.bincount(buckets_of(now_s - times))
        for bucket in np.flatnonzero(found).tolist():
            self.counts[bucket] += int(found[bucket])


def _times(batch: Batch) -> NDArray[np.float64]:
    if isinstance(batch, RawRows):
        return batch.published_at_s()
    return np.array([publish.header.published_at_s for publish in batch.publishes()], np.float64)
