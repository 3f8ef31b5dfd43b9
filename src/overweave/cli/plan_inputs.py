"""Inputs of ``overweave plan``: the candidate brokers, the problem, its evidence, and a Spark session on demand."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from overweave.cli.plan_options import PlanArguments
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from overweave.pipeline.plan_brokers import Network
    from overweave.planning.allocate.cram.parts import RunParts
    from overweave.planning.evidence import Evidence
    from overweave.planning.problem import Goals, Problem


class PlanInputs(NamedTuple):
    """The tables of a plan, read."""

    tables: Location
    offer: "Network"
    problem: "Problem"
    evidence: "Evidence"
    #: Clusters parts of the problem: here, or on Spark for large problems.
    run_parts: "RunParts"


class InputReader:
    """Reads inputs; starts Spark on first use, which small profiles never need."""

    def __init__(
        self,
        arguments: PlanArguments,
        goals: "Goals",
        stack: contextlib.ExitStack,
        scratch: Path,
        show: Callable[[str], None],
        live: "Network | None" = None,
    ) -> None:
        self._arguments = arguments
        #: The network of a live SOURCE.
        self._live = live
        self._goals = goals
        self._stack = stack
        self._started: SparkSession | None = None
        #: A directory for temporary tables.
        self.scratch = scratch
        #: Shows the current activity.
        self.show = show

    def start_if_remote(self) -> None:
        """Start Spark if any location is remote: only Spark can read those."""
        given = self._arguments
        paths = (given.source, given.brokers, given.evaluate, given.add, given.out)
        if any(each is not None and Location.of(each).is_remote for each in paths):
            self.spark()

    def spark(self) -> "SparkSession":
        """The Spark session."""
        if self._started is None:
            self.show("starting Spark")
            from overweave.pipeline.plan_scale import SESSION_MEMORY_MB, is_large
            from overweave.pipeline.session import session

            given = self._arguments
            # The size of remote tables is unknown before Spark runs.
            large = not Location.of(given.source).is_remote and is_large(given.source)
            memory_mb = SESSION_MEMORY_MB if large else None
            self._started = self._stack.enter_context(session(given.master, memory_mb=memory_mb, conf=given.conf or []))
        return self._started

    def read(self, tables: Location) -> PlanInputs:
        """The inputs of a plan from one version of the tables."""
        from overweave.pipeline.planning import add_boxes
        from overweave.planning.evidence import check_evidence

        offer = self._offer(tables)
        problem, evidence, run_parts = self._problem(tables, offer)
        if self._arguments.similarity == "boxes":
            problem = add_boxes(tables, problem)
        if not self._arguments.force:
            check_evidence(evidence)
        return PlanInputs(tables, offer, problem, evidence, run_parts)

    def _offer(self, tables: Location) -> "Network":
        """The network with candidate brokers; capacities of a table take precedence over those of the network file."""
        from overweave.pipeline.plan_brokers import read_brokers, read_offer
        from overweave.pipeline.plan_tables import kind_of, table_path

        given = self._arguments
        kind_of(tables)
        path = Location.of(given.brokers) if given.brokers is not None else table_path(tables, "brokers")
        found = self._live if self._live is not None and path is None else read_offer(given.network, path)
        if found is None:
            raise InvalidInput(f"{tables}: expected --network or --brokers, as there is no table 'brokers'")
        return found if given.add is None else found.with_more(read_brokers(given.add))

    def _problem(self, tables: Location, offer: "Network") -> tuple["Problem", "Evidence", "RunParts"]:
        from overweave.pipeline.plan_scale import is_large, read_large_problem
        from overweave.pipeline.plan_tables import kind_of
        from overweave.pipeline.planning import read_evidence, read_problem
        from overweave.pipeline.workload_profile import profile_workload
        from overweave.planning.allocate.cram.parts import run_here

        if kind_of(tables) == "workload":
            spark = self.spark()
            self.show("profiling the workload")
            profile_workload(spark, tables, self.scratch)
            tables = Location.of(self.scratch)
        if not is_large(tables):
            problem = read_problem(tables, offer, self._goals)
            return problem, read_evidence(tables, problem), run_here
        from overweave.pipeline.plan_parts import run_on

        spark = self.spark()
        self.show("grouping equal profiles")
        problem = read_large_problem(spark, tables, offer, self._goals)
        return problem, read_evidence(tables, problem), run_on(spark, self.show)
