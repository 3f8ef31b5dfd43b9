"""Costs: service times, bandwidths and link delays in simulated time."""

from collections.abc import Mapping

import msgspec

from overweave.contract.frames import BatchFrame, ControlFrame, Frame, ModuleMessage, UrgentFrame, UrgentMessageFrame
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay

#: The size of a frame without the content of a publication: header, ids and filter.
FRAME_BYTES = 64


class Costs(msgspec.Struct, frozen=True):
    """Delays and capacities of brokers and links."""

    link_delay_s: float = 0.001
    #: None: unlimited.
    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float = 0.0
    matching_delay_per_subscription_s: float = 0.0
    #: Publications a second beyond which a broker is overloaded (None: never), and the delay for each one beyond.
    capacity_hz: float | None = None
    overload_delay_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("link_delay_s", "matching_delay_base_s", "matching_delay_per_subscription_s", "overload_delay_s"):
            if not getattr(self, name) >= 0:
                raise InvalidInput(f"costs.{name}: expected a time from 0 on, got {getattr(self, name)}")
        bandwidth = self.output_bandwidth_bytes_per_s
        if bandwidth is not None and not bandwidth > 0:
            raise InvalidInput(f"costs.output_bandwidth_bytes_per_s: expected a bandwidth above 0, got {bandwidth}")
        if self.capacity_hz is not None and not self.capacity_hz > 0:
            raise InvalidInput(f"costs.capacity_hz: expected a rate above 0, got {self.capacity_hz}")

    @property
    def free(self) -> bool:
        """Whether brokers take no time and no bandwidth: then they need no queues."""
        return (
            self.output_bandwidth_bytes_per_s is None
            and self.matching_delay_base_s == 0
            and self.matching_delay_per_subscription_s == 0
            and not self.overloads
        )

    @property
    def overloads(self) -> bool:
        """Whether brokers with too many publications delay them."""
        return self.capacity_hz is not None and self.overload_delay_s > 0

    def service_s(self, subscriptions: int) -> float:
        """The service time of a publication that is matched against this number of subscriptions."""
        return self.matching_delay_base_s + subscriptions * self.matching_delay_per_subscription_s


class NetworkCosts:
    """The costs of one network: those that brokers and links have in common, those of single brokers, and delays of links.

    >>> from overweave.overlay.parts import Link
    >>> overlay = Overlay(["B1", "B2", "B3"], [Link("B1", "B2", delay_s=0.02), ("B2", "B3")])
    >>> costs = NetworkCosts(overlay, Costs(link_delay_s=0.001), {"B3": Costs(capacity_hz=5.0)})
    >>> costs.delay_s("B2", "B1"), costs.delay_s("B2", "B3"), costs.of("B3").capacity_hz
    (0.02, 0.001, 5.0)
    """

    def __init__(self, overlay: Overlay, common: Costs, own: Mapping[str, Costs]) -> None:
        self._common, self._own = common, own
        delays_s = [(link.ends, link.delay_s) for link in overlay.links if link.delay_s is not None]
        self._delays_s = {pair: delay_s for ends, delay_s in delays_s for pair in (ends, ends[::-1])}

    def of(self, broker: str) -> Costs:
        """The costs of a broker."""
        return self._own.get(broker, self._common)

    def delay_s(self, source: str, target: str) -> float:
        """The delay between two nodes: that of their link, if it has one of its own."""
        return self._delays_s.get((source, target), self._common.link_delay_s)


def frame_bytes(frame: Frame) -> int:
    """The size of a frame on a link."""
    if isinstance(frame, BatchFrame | UrgentFrame):
        return FRAME_BYTES * frame.batch.count + frame.batch.size_bytes()
    if isinstance(frame, ControlFrame | UrgentMessageFrame) and isinstance(frame.message, ModuleMessage):
        return FRAME_BYTES + len(frame.message.body)
    return FRAME_BYTES
