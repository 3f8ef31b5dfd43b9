"""Multicast of control messages: numbered updates with destination lists, split by next hop (DEST III-B)."""

from collections.abc import Iterable

import msgspec

from overweave.batches.destinations import bits_of, numbers_of
from overweave.language.headers import Epoch, Header, Origin
from overweave.language.messages import Control
from overweave.routing.base import Send
from overweave.routing.remote import RouteEntry
from overweave.routing.topology import Topology


class Multicast:
    """The updates of one broker in one cluster."""

    def __init__(self, topology: Topology, cluster: str | None, incarnation: int) -> None:
        self._topology, self._cluster = topology, cluster
        #: The epoch of the last update.
        self.epoch = Epoch(incarnation)

    def send(
        self, message: Control, brokers: Iterable[str], entry: RouteEntry | None = None, origin: Origin | None = None
    ) -> list[Send]:
        """The next update, to some brokers, with the route of an entry or an origin."""
        self.epoch = self.epoch.next()
        path, backup, origin = ((), False, origin) if entry is None else (entry.path, entry.backup, entry.origin)
        header = Header(
            source=self._topology.broker, sequence=self.epoch.number, life=self.epoch.incarnation, cluster=self._cluster,
            path=path, backup=backup, origin=origin,
        )  # fmt: skip
        destinations = self._bits(brokers)
        return self.forward(msgspec.structs.replace(message, header=header), destinations) if destinations else []

    def forward(self, message: Control, destinations: int) -> list[Send]:
        """A message by next hop, each with the part of its destination list that lies there."""
        return [
            (hop, msgspec.structs.replace(message, header=msgspec.structs.replace(message.header, destinations=numbers_of(part))))
            for hop, part in self._topology.next_hops.split(destinations)
        ]

    def _bits(self, brokers: Iterable[str]) -> int:
        return bits_of(number for broker in brokers if (number := self._topology.number_of(broker)) is not None)
