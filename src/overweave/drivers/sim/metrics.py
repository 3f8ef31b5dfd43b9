"""Metrics: the measures of a simulation, added up from trace rows and counters."""

from array import array

import msgspec
import numpy as np

from overweave.contract.records import Record
from overweave.drivers.sim.faults import FaultCounts
from overweave.drivers.sim.utilisation import Overloaded, Utilisation


class Delays(msgspec.Struct, frozen=True):
    """Delays of deliveries to subscriptions, as in the trace: from publishing until matched at the subscriber's broker."""

    mean: float
    p50: float
    p99: float
    max: float


class Metrics(msgspec.Struct, frozen=True, kw_only=True, rename={"yield_": "yield"}):
    """Measures of one scenario, from the first publication until everything is delivered.

    An arrival is a publication that comes to a broker: useful where a local subscription matches, else a pure forward. SPEC 1
    calls useful arrivals deliveries; here a delivery is what a subscription got.
    """

    seed: int
    duration_s: float
    publications: int
    arrivals: int
    useful_arrivals: int
    pure_forwards: int
    #: useful arrivals / arrivals; None when nothing was published.
    yield_: float | None
    #: Deliveries to clients, one for each subscription; hops (links between brokers) and delays are means over these.
    deliveries: int
    hops_mean: float | None
    delay_s: Delays | None
    #: Arrivals of publications at a broker from another one.
    publication_hops: int
    #: Control messages between brokers while measuring, and before that to set up. Those of a broker that crashed are lost.
    control_messages: int
    control_messages_setup: int
    #: control messages / (control messages + publication hops), set-up left out.
    control_share: float | None
    #: All frames on all links, acknowledgements and repetitions too.
    frames: int
    #: Refusals of brokers; a sound scenario has none.
    refusals: int
    #: Offered load of matching engines and uplinks while publications were published; above 1 work waits.
    input_utilisation: Utilisation | None
    output_utilisation: Utilisation | None
    #: The longest input queue of any broker.
    queue_max: int | None
    #: Brokers whose offered load is at least 1: delays grow with the length of the run.
    overloaded: tuple[Overloaded, ...]
    #: Faults of the whole run.
    faults: FaultCounts
    #: Clients that have moved to another broker, and orders that failed: the client stayed where it was.
    moves: int = 0
    moves_failed: int = 0


class Tally:
    """Adds up trace rows without storing them; the rows of one arrival come one after the other.

    >>> tally = Tally()
    >>> for broker, subscription in (("B1", None), ("B2", "s1"), ("B2", "s2")):
    ...     tally.add(Record("run", "p", 0, broker, subscription, subscription, int(broker[1]) - 1, 0.0, 0.5, 0))
    >>> tally.pure_forwards, tally.useful_arrivals, tally.publication_hops, tally.hops_mean()
    (1, 1, 1, 1.0)
    """

    def __init__(self) -> None:
        self.useful_arrivals = 0
        self.pure_forwards = 0
        self.publication_hops = 0
        self._hops = 0
        self._delays_s = array("d")
        self._last: tuple[str, int, str, float] | None = None

    def add(self, record: Record) -> None:
        """One more row."""
        arrival = (record.publisher, record.sequence, record.broker, record.arrived_at_s)
        if arrival != self._last:
            self._last = arrival
            self.publication_hops += record.hops > 0
            if record.subscription is None:
                self.pure_forwards += 1
            else:
                self.useful_arrivals += 1
        if record.subscription is not None:
            self._hops += record.hops
            self._delays_s.append(record.arrived_at_s - record.published_at_s)

    def yield_(self) -> float | None:
        """See `Metrics`."""
        return share(self.useful_arrivals, self.pure_forwards)

    def hops_mean(self) -> float | None:
        """See `Metrics`."""
        return self._hops / len(self._delays_s) if self._delays_s else None

    def delay_s(self) -> Delays | None:
        """See `Metrics`."""
        if not self._delays_s:
            return None
        delays_s = np.frombuffer(self._delays_s)
        p50, p99 = np.percentile(delays_s, [50, 99])
        return Delays(mean=float(delays_s.mean()), p50=float(p50), p99=float(p99), max=float(delays_s.max()))


def share(part: int, rest: int) -> float | None:
    """``part`` of the whole; None of nothing.

    >>> share(1, 3), share(0, 0)
    (0.25, None)
    """
    return part / (part + rest) if part + rest else None
