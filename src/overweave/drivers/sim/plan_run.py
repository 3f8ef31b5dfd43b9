"""A plan in the simulator: its overlay, placements and capacities, under given publications.

Brokers, links and clients are those of the plan; every broker has the bandwidth and the matching delay of its own. Publishers
publish at their rates, and what arrives at and leaves every broker is counted where it happens. All deliveries are checked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.contract.modules import Module, ModuleEffect, ModuleStimulus, Routed
from overweave.drivers.sim.checkers import DeliveryOracle, check_deliveries
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scheduler import gc_frozen
from overweave.errors import OverweaveError
from overweave.language.headers import Priority
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

_STEP_S, _SLICES = 0.5, 100
#: A network that is overloaded needs longer than it publishes; this many times as long, it does not come to rest.
_PATIENCE = 100


class PlannedPublisher(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher and its publications, spread evenly at a rate; a publication weighs ``bytes`` in the answer."""

    id: str
    rate_hz: float
    bytes: float
    advertisements: tuple[Filter, ...]
    publications: Sequence[Publication]

    @property
    def lasts_s(self) -> float:
        """How long it publishes."""
        return len(self.publications) / self.rate_hz


class PlannedNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers with their costs, and where everybody is; a client may have several subscriptions and publish, too."""

    overlay: Overlay
    costs: Mapping[str, Costs]
    #: The brokers of clients and publishers.
    places: Mapping[str, str]
    #: Subscription, client and filter.
    subscriptions: Sequence[tuple[str, str, Filter]]
    publishers: Sequence[PlannedPublisher]


class BrokerWork(msgspec.Struct, frozen=True):
    """The work of a broker, per second of publishing."""

    input_hz: float
    #: Bytes of publications, without frame headers.
    output_bytes_per_s: float
    #: The offered load of its uplink as a share of time, with frame heads and acknowledgements, while all published.
    uplink_busy: float


def run_plan(network: PlannedNetwork, seed: int = 1, progress: Callable[[float], None] = lambda _: None) -> dict[str, BrokerWork]:
    """Run a plan until all is delivered; ``progress`` gets the finished share of the publishing."""
    return _Run(network, seed).work(progress)


class _Meter(Module):
    """Counts the publications of one broker: a module, as the tracer is."""

    watches = (Routed,)

    def __init__(self, hz: Mapping[str, float], bytes_per_s: Mapping[str, float]) -> None:
        self._hz, self._bytes_per_s = hz, bytes_per_s
        self.input_hz = 0.0
        self.output_bytes_per_s = 0.0

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterable[ModuleEffect]:  # noqa: ARG002
        """See `Module.handle`."""
        if isinstance(stimulus, Routed) and stimulus.batch.priority() is not Priority.CONTROL:
            if stimulus.arrived is not None:
                self.input_hz += sum(self._hz[publisher] for publisher, _, _ in stimulus.arrived.identities())
            for peer, some in stimulus.to:
                if peer is not None:
                    self.output_bytes_per_s += sum(self._bytes_per_s[publisher] for publisher, _, _ in some.identities())
        return ()


class _Run:
    def __init__(self, planned: PlannedNetwork, seed: int) -> None:
        self._planned = planned
        self._phases = np.random.default_rng(seed)
        self._publishers = [each for each in planned.publishers if each.publications and each.rate_hz > 0]
        # Publishers may last differently long: a publication counts as the share of its publisher's rate that it is.
        hz = {each.id: each.rate_hz / len(each.publications) for each in self._publishers}
        size = {each.id: hz[each.id] * each.bytes for each in self._publishers}
        self._meters = {id: _Meter(hz, size) for id in planned.overlay.ids}
        self._oracle = DeliveryOracle((id, filter) for id, _, filter in planned.subscriptions)
        self._network = SimulatedNetwork(
            planned.overlay,
            PROTOCOLS["filter"].make,
            seed,
            config=BrokerConfig(SessionConfig(retransmit_s=None)),
            make_modules=lambda at: {"meter": self._meters[at.broker]},
            on_delivery=self._delivered,
            own_costs=planned.costs,
        )

    def work(self, progress: Callable[[float], None]) -> dict[str, BrokerWork]:
        self._set_up()
        with gc_frozen():
            uplink_busy = self._publish(progress)
            self._settle(max((each.lasts_s for each in self._publishers), default=0.0))
        for refused in [*self._network.refusals, *self._network.rejections]:
            raise OverweaveError(f"simulation of the plan: a broker rejected a message: {refused}")
        check_deliveries(self._oracle)
        return {id: BrokerWork(meter.input_hz, meter.output_bytes_per_s, uplink_busy[id]) for id, meter in self._meters.items()}

    def _set_up(self) -> None:
        network, planned = self._network, self._planned
        subscribing = {client for _, client, _ in planned.subscriptions}
        for id in sorted({*subscribing, *(each.id for each in self._publishers)}):
            network.add_client(id, planned.places[id])
        for publisher in self._publishers:
            for number, filter in enumerate(publisher.advertisements):
                network.say(publisher.id, Advertise(f"{publisher.id}/{number}", filter))
        self._settle(0.0)
        for id, client, filter in planned.subscriptions:
            network.say(client, Subscribe(id, filter))
        self._settle(0.0)

    def _publish(self, progress: Callable[[float], None]) -> dict[str, float]:
        """Publish everything, each publisher evenly from a time of its own; how busy uplinks were while all published."""
        scheduler, start_s = self._network.scheduler, self._network.scheduler.now_s
        for publisher in self._publishers:
            phase_s = float(self._phases.random()) / publisher.rate_hz
            self._next((publisher, iter(publisher.publications), start_s + phase_s, 0))
        steady_s = min((each.lasts_s for each in self._publishers), default=0.0)
        lasts_s = max((each.lasts_s for each in self._publishers), default=0.0)
        before = self._output_busy_s()
        for number in range(1, _SLICES + 1):
            scheduler.run(start_s + steady_s * number / _SLICES)
            progress(steady_s * number / _SLICES / lasts_s if lasts_s else 1.0)
        busy = {id: (now - before[id]) / steady_s if steady_s else 0.0 for id, now in self._output_busy_s().items()}
        scheduler.run(start_s + lasts_s + 1 / min((each.rate_hz for each in self._publishers), default=1.0))
        progress(1.0)
        return busy

    def _next(self, planned: tuple[PlannedPublisher, Iterator[Publication], float, int]) -> None:
        publisher, _, start_s, number = planned
        if number < len(publisher.publications):
            self._network.scheduler.at(start_s + number / publisher.rate_hz, self._publish_one, planned)

    def _publish_one(self, planned: tuple[PlannedPublisher, Iterator[Publication], float, int]) -> None:
        publisher, publications, start_s, number = planned
        publication = next(publications)
        self._oracle.published(publisher.id, number, publication)
        self._network.publish(publisher.id, publication)
        self._next((publisher, publications, start_s, number + 1))

    def _delivered(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self._oracle.delivered(publisher, sequence, subscription)

    def _output_busy_s(self) -> dict[str, float]:
        stations = {id: self._network.station(id) for id in self._planned.overlay.ids}
        return {id: 0.0 if station is None else station.uplink_offered_s() for id, station in stations.items()}

    def _settle(self, published_s: float) -> None:
        """Go on until clients and brokers wait for nothing."""
        network, scheduler = self._network, self._network.scheduler
        end_s = scheduler.now_s + 600 + _PATIENCE * published_s
        while scheduler.now_s < end_s:
            scheduler.run(scheduler.now_s + _STEP_S)
            if not network.unsettled() and not any(network.broker(id).statistics().unsettled for id in self._planned.overlay.ids):
                return
        raise OverweaveError(
            f"simulation of the plan: {network.unsettled()} messages of clients are in flight after {end_s:g} simulated seconds;"
            " is a broker overloaded?"
        )
