"""The runner: one scenario from the first broker to its metrics.

Clients advertise and subscribe until every broker knows; then the counters start, publishers publish for the scenario's
duration, and the network goes on until everything is delivered.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import msgspec

from overweave.broker.modules.tracer import Tracer
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.contract.records import Record, Statement
from overweave.drivers.sim.checkers import DeliveryOracle, check_brokers, check_deliveries
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.metrics import Metrics, Tally, share
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scenario import Scenario
from overweave.drivers.sim.scheduler import gc_frozen
from overweave.drivers.sim.utilisation import Overloaded, added, offered_work, overload_text, summarise
from overweave.drivers.sim.workload import Publisher, Workload, make_workload
from overweave.errors import OverweaveError
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay

#: The earliest start of publishing, so that the end of faults is known beforehand.
SETUP_S = 10.0
#: Slices of the publishing time; records and progress are passed on after each.
_SLICES = 200
_STEP_S = 0.5
#: A network that has not settled after this time, and this multiple of the scenario's duration, never does.
_SETTLE_S, _SETTLE_DURATIONS = 600.0, 100.0


def simulate(
    scenario: Scenario,
    progress: Callable[[float], None] = lambda _: None,
    on_record: Callable[[Record], None] = lambda _: None,
    run: str = "run",
    workload: Workload | None = None,
    on_statement: Callable[[Statement], None] = lambda _: None,
) -> Metrics:
    """Run a scenario; ``progress`` gets its finished seconds, ``on_record`` gets every row of the trace.

    ``on_statement`` gets all that clients advertise and subscribe to. ``workload`` stands in for the one that the scenario
    describes.
    """
    overlay = scenario.make_overlay()
    made = _Run(scenario, overlay, workload or make_workload(scenario, overlay), on_record, run, on_statement)
    return made.metrics(progress)


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        overlay: Overlay,
        workload: Workload,
        on_record: Callable[[Record], None],
        run: str,
        on_statement: Callable[[Statement], None],
    ) -> None:
        self._scenario = scenario
        self._overlay = overlay
        self._workload = workload
        self._on_record = on_record
        self._on_statement = on_statement
        self._tally = Tally()
        self._publications = 0
        self._overloaded: tuple[Overloaded, ...] = ()
        faults = _ending(scenario.faults, SETUP_S + scenario.duration_s)
        self._oracle = DeliveryOracle((subscriber.id, subscriber.filter) for subscriber in workload.subscribers)
        self._deliveries = 0
        self._network = SimulatedNetwork(
            overlay,
            scenario.routing.make,
            scenario.seed,
            faults,
            scenario.costs,
            _config(scenario, overlay),
            make_modules=lambda broker: {"tracer": Tracer(broker, run), **scenario.make_modules(broker)},
            on_delivery=self._delivered,
            own_costs=scenario.own_costs(),
        )

    def metrics(self, progress: Callable[[float], None]) -> Metrics:
        network, scenario, tally = self._network, self._scenario, self._tally
        self._set_up()
        control_before, frames_before, work_before = self._control(), network.frames, offered_work(network)
        with gc_frozen():
            self._publish(progress)
        utilisation = offered_work(network).since(work_before, scenario.duration_s)
        self._overloaded = utilisation.overloaded()
        self._settle()
        self._check()
        control_messages = sum(added(self._control(), control_before).values())
        queues = [station.queue_max for id in network.running() if (station := network.station(id)) is not None]
        return Metrics(
            seed=scenario.seed,
            duration_s=scenario.duration_s,
            publications=self._publications,
            arrivals=tally.useful_arrivals + tally.pure_forwards,
            useful_arrivals=tally.useful_arrivals,
            pure_forwards=tally.pure_forwards,
            yield_=tally.yield_(),
            deliveries=self._deliveries,
            hops_mean=tally.hops_mean(),
            delay_s=tally.delay_s(),
            publication_hops=tally.publication_hops,
            control_messages=control_messages,
            control_messages_setup=sum(control_before.values()),
            control_share=share(control_messages, tally.publication_hops),
            frames=network.frames - frames_before,
            refusals=len(network.refusals),
            input_utilisation=summarise(utilisation.input),
            output_utilisation=summarise(utilisation.uplink),
            queue_max=max(queues, default=None),
            overloaded=self._overloaded,
            faults=network.fault_counts(),
        )

    # ---- phases

    def _set_up(self) -> None:
        network = self._network
        for publisher in self._workload.publishers:
            network.add_client(publisher.id, publisher.broker)
            network.say(publisher.id, Advertise(publisher.id, publisher.advertisement))
        self._settle()
        for subscriber in self._workload.subscribers:
            network.add_client(subscriber.id, subscriber.broker)
            network.say(subscriber.id, Subscribe(subscriber.id, subscriber.filter))
        self._settle()
        network.scheduler.run(max(SETUP_S, network.scheduler.now_s))

    def _publish(self, progress: Callable[[float], None]) -> None:
        scheduler, duration_s = self._network.scheduler, self._scenario.duration_s
        start_s = scheduler.now_s
        for publisher in self._workload.publishers:
            self._plan(publisher, publisher.publications(), start_s, 0)
        for number in range(1, _SLICES + 1):
            scheduler.run(start_s + duration_s * number / _SLICES)
            self._drain()
            check_brokers(self._network, self._scenario.checks)
            progress(duration_s * number / _SLICES)

    def _plan(self, publisher: Publisher, publications: Iterator[Publication], start_s: float, number: int) -> None:
        """Publish the next ones at their time."""
        after_s = publisher.at_s(number)
        if after_s < self._scenario.duration_s:
            self._network.scheduler.at(start_s + after_s, self._publish_some, (publisher, publications, start_s, number))

    def _publish_some(self, planned: tuple[Publisher, Iterator[Publication], float, int]) -> None:
        publisher, publications, start_s, number = planned
        batch = list(itertools.islice(publications, publisher.batch))
        if batch:
            self._publications += len(batch)
            if self._scenario.checks.deliveries:
                for place, publication in enumerate(batch):
                    self._oracle.published(publisher.id, number + place, publication)
            self._network.publish(publisher.id, *batch)
            self._plan(publisher, publications, start_s, number + len(batch))

    def _delivered(self, parts: Parts) -> None:
        for subscription, batch in parts:
            self._deliveries += batch.count
            if self._scenario.checks.deliveries:
                for publisher, _, sequence in batch.identities():
                    self._oracle.delivered(publisher, sequence, subscription)

    def _check(self) -> None:
        check_brokers(self._network, self._scenario.checks)
        if not self._network.refusals:
            check_deliveries(self._oracle)

    def _settle(self) -> None:
        """Run until nothing is in flight: a client's message is settled before all brokers have it."""
        scheduler = self._network.scheduler
        end_s = scheduler.now_s + _SETTLE_S + _SETTLE_DURATIONS * self._scenario.duration_s
        while scheduler.now_s < end_s:
            scheduler.run(scheduler.now_s + _STEP_S)
            self._drain()
            if not self._network.unsettled() and self._quiet():
                return
        overload = overload_text([str(each) for each in self._overloaded]) if self._overloaded else ""
        raise OverweaveError(
            f"the network did not settle: {self._network.unsettled()} messages of clients are in flight "
            f"after {end_s:g} simulated seconds; {overload or 'is it overloaded?'}"
        )

    def _quiet(self) -> bool:
        network = self._network
        return network.all_connected() and not any(network.broker(id).statistics().unsettled for id in self._overlay.ids)

    def _drain(self) -> None:
        records = self._network.records
        for record in records:
            self._tally.add(record)
            self._on_record(record)
        records.clear()
        for statement in self._network.statements:
            self._on_statement(statement)
        self._network.statements.clear()

    # ---- measures

    def _control(self) -> dict[str, int]:
        return {id: self._network.broker(id).statistics().control_out for id in self._network.running()}


def _ending(faults: Faults, end_s: float) -> Faults:
    return msgspec.structs.replace(faults, until_s=min(faults.until_s, end_s))


def _config(scenario: Scenario, overlay: Overlay) -> BrokerConfig:
    """Retransmission where faults are possible, later than an acknowledgement over the slowest link."""
    faulty = msgspec.structs.replace(scenario.faults, until_s=math.inf) != Faults()
    delays_s = [scenario.costs.link_delay_s, *(link.delay_s for link in overlay.links if link.delay_s is not None)]
    retransmit_s = max(0.3, 4 * max(delays_s)) if faulty else None
    return BrokerConfig(SessionConfig(retransmit_s=retransmit_s))
