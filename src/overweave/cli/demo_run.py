"""The course of ``overweave demo``: its phases, one after the other, while clients publish and subscribe."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from overweave.cli.apply_run import RATE_HZ, ApplyRun, Report
from overweave.cli.client_options import Credentials
from overweave.cli.demo_children import held_signals
from overweave.cli.demo_market import FILTERS_PER_TRADER
from overweave.cli.demo_messages import Begun, MarketConfig, Span
from overweave.cli.demo_network import MarketProcess, market_process, running_network, write_network
from overweave.cli.demo_oracle import Workload
from overweave.cli.demo_plan import bandwidth_of, bits_of, make_demo_plan
from overweave.cli.demo_summary import Summary, account_of, totals
from overweave.cli.operators import target_of
from overweave.cli.plan_files import plan_target
from overweave.cli.plan_profiles import PlanProfiles
from overweave.cli.terminal import Phases
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.overlay_file import locked
from overweave.errors import OverweaveError
from overweave.reports.change import COLUMNS, Change, change_contents, moved_between
from overweave.reweave.difference import check_loads
from overweave.testing.stock import SYMBOLS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from overweave.planning.plan import Plan
    from overweave.reweave.target import Target

#: Shows a detail of a phase.
Show = Callable[[str], None]
RUN = "demo"
#: The rate of each publisher.
RATE_PER_PUBLISHER_HZ = 2.0
#: How long the trace may lack deliveries that have been made.
_TRACE_S_MAX = 60.0
#: The spans of the traffic.
_BEFORE, _CHANGE, _AFTER, _END = *COLUMNS, "end"


class DemoOptions(NamedTuple):
    """The options of the verb."""

    brokers: int
    filters: int
    seconds: float
    out: Path
    seed: int

    @property
    def clients(self) -> int:
        """Traders and publishers."""
        return -(-self.filters // FILTERS_PER_TRADER) + len(SYMBOLS)


class Applied(NamedTuple):
    """How a plan was applied."""

    target: "Target"
    report: Report
    #: The brokers of the clients that moved, before and after.
    moved: dict[str, tuple[str, str]]
    #: When it began and ended.
    time_s: tuple[float, float]


class Demonstration:
    """One run of the demonstration."""

    def __init__(self, options: DemoOptions, phases: Phases) -> None:
        self._options, self._phases, self._out = options, phases, options.out

    def prepare(self) -> None:
        """Compile, and write the network file."""
        from overweave.drivers.tcp.warm import warm_up

        warm_up()
        self._file = self._write_network(Workload(self._options.filters, self._options.seed))

    def run(self) -> Summary:
        """All phases but the first; the summary. Whatever happens, no process is left."""
        with contextlib.ExitStack() as spark:
            with contextlib.ExitStack() as network:
                market = self._started(network)
                with self._phases.phase("measuring the network before") as show:
                    market.begin(_BEFORE, show)
                    market.watch(self._options.seconds, show)
                    before = market.begin(_CHANGE, show)
                with self._phases.phase("profiling its traces on Spark") as show:
                    session, profiles = self._profiled(spark, market, before, show)
                with self._phases.phase("planning"):
                    plan, answer = make_demo_plan(self._out, lambda: session)
                market.check()
                with self._phases.phase("applying the plan while quotes are published", spinner=False):
                    applied = self._apply(plan)
                with self._phases.phase("measuring the network after") as show:
                    market.begin(_AFTER, show)
                    market.watch(self._options.seconds, show)
                with self._phases.phase("stopping, and counting all deliveries") as show:
                    market.begin(_END, show)
                    spans = market.stop(show)
                    network.close()
            with self._phases.phase("comparing on Spark") as show:
                change = self._compared(session, spans, applied, show)
        return self._summary(spans, change, profiles, answer)

    def _write_network(self, workload: Workload) -> Path:
        options = self._options
        deliveries_hz = RATE_PER_PUBLISHER_HZ * len(SYMBOLS) * workload.deliveries_mean()
        bandwidth = bandwidth_of(deliveries_hz, workload.publication(SYMBOLS[0], 1), options.brokers)
        return write_network(self._out, RUN, options.brokers, bandwidth)

    def _started(self, stack: contextlib.ExitStack) -> MarketProcess:
        options = self._options
        with self._phases.phase(f"starting {options.brokers} brokers") as show:
            network = stack.enter_context(running_network(self._file, options.brokers, show))
        self._overlay = read_network(self._file).overlay
        with self._phases.phase(f"connecting {options.clients:,} clients") as show:
            urls = tuple(read_network(self._file).running_urls.values())
            config = MarketConfig(urls, options.filters, options.seed, RATE_PER_PUBLISHER_HZ)
            market = stack.enter_context(market_process(config, network))
            market.wait_open(show)
        return market

    def _profiled(
        self, stack: contextlib.ExitStack, market: MarketProcess, before: Begun, show: Show
    ) -> "tuple[SparkSession, int]":
        show("starting Spark")
        from overweave.pipeline.jobs import profile_run
        from overweave.pipeline.session import session
        from overweave.pipeline.steps.profiles import BITS

        with held_signals():  # a Java process that is interrupted while it starts would stay
            spark = stack.enter_context(session(quick=True))
        show("waiting for the traces")
        self._await_trace(spark, before, market)
        totals = profile_run(
            spark,
            self._out / "traces",
            self._out / "profiles",
            RUN,
            bits_of(before.publications, len(SYMBOLS), BITS),
            progress=lambda name: show(f"computing {name}"),
            published=(before.begin_s, before.end_s),
        )
        return spark, totals.profiles

    def _await_trace(self, spark: "SparkSession", span: Begun, market: MarketProcess) -> None:
        """Wait until the trace has all deliveries of a span: brokers write it with a delay."""
        from overweave.pipeline.span_comparison import deliveries_in
        from overweave.pipeline.steps.spans import Span as TimeSpan

        end_s = time.monotonic() + _TRACE_S_MAX
        where = TimeSpan(_BEFORE, span.begin_s, span.end_s)
        while (found := deliveries_in(spark, self._out / "traces", RUN, where)) < span.expected:
            if time.monotonic() > end_s:
                raise OverweaveError(f"traces: expected {span.expected:,} deliveries, found {found:,}")
            market.check()
            time.sleep(0.5)

    def _apply(self, plan: "Plan") -> Applied:
        """Apply the plan as ``overweave apply`` does."""
        file, target = self._file, target_of(self._file, Credentials())
        path = self._out / "plan.json"
        problem = PlanProfiles(path, target, self._out / "profiles").read()
        run = ApplyRun(file, target, lambda seen: plan_target(plan, path, seen, target), RATE_HZ, json=True, problem=problem)
        with locked(file):
            seen = run.look()
            check_loads(seen.difference)
            report, begin_s = Report(change=seen.target.change, difference=seen.difference), time.time()
            done = run.change(seen.target, report)
        if done is None:
            raise KeyboardInterrupt
        places = {each.name: id for id, broker in seen.observation.brokers.items() for each in broker.clients}
        return Applied(seen.target, report, moved_between(places, report.moved), (begin_s, begin_s + report.duration_s))

    def _compared(self, spark: "SparkSession", spans: tuple[Span, ...], applied: Applied, show: Show) -> Change:
        from overweave.pipeline.span_comparison import compare_spans
        from overweave.pipeline.steps.spans import Span as TimeSpan
        from overweave.reports.page import write_page

        some = [each for each in spans if each.name != _END]
        show("computing rates and delays")
        measured, seconds = compare_spans(
            spark, self._out / "traces", RUN, [TimeSpan(each.name, each.begin_s, each.end_s) for each in some]
        )
        overlay, first_s = read_network(self._file).overlay, int(some[0].begin_s)
        change = Change(
            brokers_before=tuple(self._overlay.ids),
            brokers_after=tuple(overlay.ids),
            links_before=tuple(link.ends for link in self._overlay.links),
            links_after=tuple(link.ends for link in overlay.links),
            spans=tuple(measured),
            accounts=tuple(account_of(each) for each in some),
            predicted_hz={id: load.input_hz for id, load in applied.target.load.items()},
            moved=applied.moved,
            clients=self._options.clients,
            interval_s=1 / RATE_PER_PUBLISHER_HZ,
            applied_s=(applied.time_s[0] - first_s, applied.time_s[1] - first_s),
            phases=applied.report.phases,
        )
        show("drawing the report")
        page = change_contents(change, seconds, "plan.html")
        write_page(self._out / "report.html", "A network, before and after its plan", *page)
        return change

    def _summary(self, spans: tuple[Span, ...], change: Change, profiles: int, answer: dict[str, Any]) -> Summary:
        return Summary(
            brokers=len(change.brokers_before),
            brokers_after=len(change.brokers_after),
            clients=self._options.clients,
            filters=self._options.filters,
            **totals(spans),
            spans=spans,
            profiles=profiles,
            change=change,
            plan=answer,
            report=str(self._out / "report.html"),
            plan_report=str(self._out / "plan.html"),
        )
