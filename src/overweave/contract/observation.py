"""What operators see of a running network: one answer per broker, gathered by the module `collector` (THESIS 6.1.1: BIR, BIA)."""

import msgspec

from overweave.contract.modules import Capacity
from overweave.contract.overlay_state import OverlayState, OverlayStatus


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


class Observation(msgspec.Struct, frozen=True):
    """All brokers within reach, seen from one of them."""

    #: The state of the overlay at the asked broker.
    state: OverlayState
    brokers: dict[str, BrokerObservation]
    #: The brokers that did not answer their neighbour in time; nothing is known of those behind them.
    missing: tuple[str, ...] = ()


#: The kinds of requests to the module `collector`: the answer of OBSERVE is an `Observation` (msgpack). The body of CHANGE is an
#: `OverlayState` (msgpack), which the broker adopts and floods; its answer is empty, or an error if the version is not higher.
COLLECTOR = "collector"
OBSERVE, CHANGE = "observe", "change"
