"""The runner: one scenario from the first broker to its metrics.

Clients advertise and subscribe until every broker knows; then the counters start, publishers publish for the scenario's
duration, and the network goes on until everything is delivered.
"""

import math
from collections.abc import Callable

import msgspec

from overweave.broker.modules.tracer import Tracer
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.records import Decision, Record, Statement
from overweave.drivers.protocol_failure import failure_text
from overweave.drivers.sim.checkers import DeliveryOracle, check_brokers, check_deliveries
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.metrics import Metrics, Tally, share
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.programs import ClientPrograms
from overweave.drivers.sim.scenario import Scenario
from overweave.drivers.sim.scheduler import gc_frozen
from overweave.drivers.sim.series import Sample, SeriesSampler
from overweave.drivers.sim.utilisation import NotSettled, Overloaded, added, offered_work, summarise
from overweave.drivers.sim.workload import Workload, make_workload
from overweave.errors import OverweaveError
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
    on_decision: Callable[[Decision], None] = lambda _: None,
    on_sample: Callable[[Sample], None] | None = None,
    sample_every_s: float = 1.0,
) -> Metrics:
    """Run a scenario; ``progress`` gets its finished seconds, ``on_record`` gets every row of the trace.

    ``on_statement`` gets all that clients advertise and subscribe to, ``on_decision`` all decisions of modules. ``workload``
    stands in for the one that the scenario describes. ``on_sample`` gets the measures of all brokers every ``sample_every_s``.
    """
    overlay = scenario.make_overlay()
    workload = workload or make_workload(scenario, overlay)
    try:
        made = _Run(scenario, overlay, workload, on_record, run, on_statement, on_decision)
        made.on_sample, made.sample_every_s = on_sample, sample_every_s
        return made.metrics(progress)
    except OverweaveError:
        raise
    except Exception as error:
        text = failure_text(scenario.routing.protocol, error)
        if text is None:
            raise
        raise OverweaveError(text) from error


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        overlay: Overlay,
        workload: Workload,
        on_record: Callable[[Record], None],
        run: str,
        on_statement: Callable[[Statement], None],
        on_decision: Callable[[Decision], None],
    ) -> None:
        self._scenario = scenario
        self._overlay = overlay
        self._workload = workload
        self._on_record = on_record
        self._on_statement, self._on_decision = on_statement, on_decision
        self._tally = Tally()
        self._overloaded: tuple[Overloaded, ...] = ()
        #: Gets samples at an interval, and the sampler if there is one.
        self.on_sample: Callable[[Sample], None] | None = None
        self.sample_every_s = 1.0
        self._sampler: SeriesSampler | None = None
        faults = _ending(scenario.faults, SETUP_S + scenario.duration_s)
        self._oracle = DeliveryOracle() if scenario.checks.deliveries else None
        self._timeline = scenario.make_timeline(workload.ids())
        self._network = SimulatedNetwork(
            overlay,
            scenario.routing.make,
            scenario.seed,
            faults,
            scenario.costs,
            _config(scenario, overlay),
            make_modules=lambda at: {"tracer": Tracer(at.broker, run), **scenario.make_modules(at)},
            on_delivery=lambda parts: self._programs.delivered(parts),
            own_costs=scenario.own_costs(),
            session_expiry_s=scenario.session_expiry_s,
        )
        self._programs = ClientPrograms(self._network, workload, self._oracle, scenario.duration_s)

    def metrics(self, progress: Callable[[float], None]) -> Metrics:
        network, scenario, tally = self._network, self._scenario, self._tally
        self._set_up()
        control_before, frames_before, work_before = self._control(), network.frames, offered_work(network)
        with gc_frozen():
            self._publish(progress)
        utilisation = offered_work(network).since(work_before, scenario.duration_s)
        self._overloaded = utilisation.overloaded()
        self._run_until_quiescent()
        self._sample()
        self._check()
        control_messages = sum(added(self._control(), control_before).values())
        queues = [station.queue_max for id in network.running() if (station := network.station(id)) is not None]
        return Metrics(
            seed=scenario.seed,
            duration_s=scenario.duration_s,
            publications=self._programs.publications,
            arrivals=tally.useful_arrivals + tally.pure_forwards,
            useful_arrivals=tally.useful_arrivals,
            pure_forwards=tally.pure_forwards,
            yield_=tally.yield_(),
            deliveries=self._programs.deliveries,
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
            moves=sum(error is None for error in network.migrations.values()),
            moves_failed=sum(error is not None for error in network.migrations.values()),
        )

    # ---- phases

    def _set_up(self) -> None:
        network, absent = self._network, self._timeline.absent
        for clients in (self._workload.publishers, self._workload.subscribers):
            for client in clients:
                if client.id not in absent:
                    self._programs.start(client.id)
            self._run_until_quiescent()
        network.scheduler.run(max(SETUP_S, network.scheduler.now_s))

    def _publish(self, progress: Callable[[float], None]) -> None:
        scheduler, duration_s = self._network.scheduler, self._scenario.duration_s
        start_s = scheduler.now_s
        if self.on_sample is not None:
            self._sampler = SeriesSampler(self._network, self.on_sample)
            scheduler.every(self.sample_every_s, self._sample)
        self._programs.publish()
        for action in self._timeline.actions:
            scheduler.at(start_s + action.at_s, self._programs.act, action)
        for number in range(1, _SLICES + 1):
            scheduler.run(start_s + duration_s * number / _SLICES)
            self._drain()
            check_brokers(self._network, self._scenario.checks)
            progress(duration_s * number / _SLICES)

    def _check(self) -> None:
        check_brokers(self._network, self._scenario.checks)
        if self._oracle is not None and not self._network.refusals:
            check_deliveries(self._oracle)

    def _run_until_quiescent(self) -> None:
        """Run until nothing is in flight: a client's message is settled before all brokers have it."""
        scheduler = self._network.scheduler
        end_s = scheduler.now_s + _SETTLE_S + _SETTLE_DURATIONS * self._scenario.duration_s
        while scheduler.now_s < end_s:
            scheduler.run(scheduler.now_s + _STEP_S)
            self._drain()
            if not self._network.unsettled() and self._quiet():
                return
        raise NotSettled(self._network.unsettled(), end_s, self._overloaded)

    def _quiet(self) -> bool:
        network = self._network
        return network.all_connected() and not any(network.broker(id).statistics().unsettled for id in self._overlay.ids)

    def _sample(self, _: object = None) -> None:
        if self._sampler is not None:
            self._drain()
            self._sampler.sample()

    def _drain(self) -> None:
        records = self._network.records
        for record in records:
            self._tally.add(record)
            self._on_record(record)
            if self._sampler is not None:
                self._sampler.add(record)
        records.clear()
        for statement in self._network.statements:
            self._on_statement(statement)
        self._network.statements.clear()
        for decision in self._network.decisions:
            self._on_decision(decision)
        self._network.decisions.clear()

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
