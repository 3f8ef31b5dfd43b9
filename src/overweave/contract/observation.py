"""What operators see of a running network: one answer per broker, gathered by the module `collector` (THESIS 6.1.1: BIR, BIA)."""

import msgspec

from overweave.contract.modules import Capacity
from overweave.contract.overlay_state import OverlayState, OverlayStatus
from overweave.errors import InvalidInput

#: The longest time for which one observation has brokers count delays.
DELAYS_S_MAX = 3600.0


class ObserveRequest(msgspec.Struct, frozen=True):
    """The body of OBSERVE; none is the default."""

    #: How long brokers count the delays of deliveries from now on; 0: they do not begin to.
    delays_s: float = 0.0

    def check(self) -> None:
        """Raise an error unless the time is within its limits."""
        if not 0 <= self.delays_s <= DELAYS_S_MAX:
            raise InvalidInput(f"delays_s: expected a time from 0 to {DELAYS_S_MAX:g} s, got {self.delays_s:g}")


class ObservedClient(msgspec.Struct, frozen=True, array_like=True):
    """A client of a broker."""

    name: str
    connected: bool
    subscriptions: int
    advertisements: int


class BrokerObservation(msgspec.Struct, frozen=True):
    """One broker as it is now."""

    broker: str
    #: Where it listens; empty in the simulator.
    url: str
    capacity: Capacity
    overlay: OverlayStatus
    #: All clients with a session or registrations, by name; operators without registrations are not among them.
    clients: tuple[ObservedClient, ...]
    #: What neighbours and connected clients have not settled, control messages included.
    unsettled: int = 0
    #: The delays of deliveries to its clients since the count began, by bucket (`overweave.contract.delays`).
    delays: dict[int, int] = {}


class Observation(msgspec.Struct, frozen=True):
    """All brokers within reach, seen from one of them."""

    #: The state of the overlay at the asked broker.
    state: OverlayState
    brokers: dict[str, BrokerObservation]
    #: The brokers that did not answer their neighbour in time; nothing is known of those behind them.
    missing: tuple[str, ...] = ()


#: The kinds of requests to the module `collector`: the body of OBSERVE is empty or an `ObserveRequest`, its answer an
#: `Observation` (msgpack). The body of CHANGE is an
#: `OverlayState` (msgpack), which the broker adopts and floods; its answer is empty, or an error if the version is not higher.
COLLECTOR = "collector"
OBSERVE, CHANGE = "observe", "change"
