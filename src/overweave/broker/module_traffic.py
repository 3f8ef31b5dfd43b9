"""Control traffic between modules, by module and kind."""

from contextlib import suppress

import msgspec

from overweave.batches.base import Batch
from overweave.errors import InvalidInput

#: The most pairs of a module and a kind; others share one pair.
_PAIRS_MAX = 256
_OTHERS = ("", "others")


class ModuleTraffic(msgspec.Struct, frozen=True):
    """Messages of one module between brokers: ``kind`` is the class of a publication, or the type of a neighbour message."""

    module: str
    kind: str
    received: int
    sent: int


class TrafficCounters:
    """Running counts of one broker."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}

    def count(self, module: str, kind: str, received: int = 0, sent: int = 0) -> None:
        """Count messages of a module."""
        pair = module, kind
        if pair not in self._counts and len(self._counts) >= _PAIRS_MAX:
            pair = _OTHERS
        counts = self._counts.setdefault(pair, [0, 0])
        counts[0] += received
        counts[1] += sent

    def count_batch(self, batch: Batch, is_sent: bool) -> None:
        """Count publications of modules; malformed rows are rejected by other parts."""
        with suppress(InvalidInput):
            for publish in batch.publishes():
                module, kind = publish.header.publisher.partition("/")[2], str(publish.publication.get("class", ""))
                self.count(module, kind, received=not is_sent, sent=is_sent)

    def snapshot(self) -> tuple[ModuleTraffic, ...]:
        """All counts, in order of modules and kinds."""
        return tuple(ModuleTraffic(*pair, *self._counts[pair]) for pair in sorted(self._counts))
