"""Costs: what things take in simulated time. All zero: nothing takes any time but the links."""

import msgspec

from overweave.contract.frames import BatchFrame, Frame, UrgentFrame
from overweave.errors import InvalidInput

#: What a frame weighs besides the content of a publication: header, ids and filter.
FRAME_BYTES = 64


class Costs(msgspec.Struct, frozen=True):
    """Delays and capacities of brokers and links."""

    link_delay_s: float = 0.001
    #: None: unlimited.
    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float = 0.0
    matching_delay_per_subscription_s: float = 0.0
    #: Publications a second from which on a broker is overloaded (None: never), and what each of them too many delays.
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
        """How long a broker is busy with a publication that it compares with so many subscriptions."""
        return self.matching_delay_base_s + subscriptions * self.matching_delay_per_subscription_s


def frame_bytes(frame: Frame) -> int:
    """What a frame weighs on a link."""
    if isinstance(frame, BatchFrame | UrgentFrame):
        return FRAME_BYTES * frame.batch.count + frame.batch.size_bytes()
    return FRAME_BYTES
