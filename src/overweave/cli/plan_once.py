"""One run of ``overweave plan``: the plan, its comparison, its evaluation, and the answer."""

import time
from typing import TYPE_CHECKING, Any

import msgspec

from overweave.cli.plan_before import before_of
from overweave.cli.plan_inputs import InputReader, PlanInputs
from overweave.cli.plan_options import PlanArguments
from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from overweave.planning.evaluation import Evaluation
    from overweave.planning.options import Options
    from overweave.planning.plan import Plan


class PlanRun:
    """The answer of one run, and the reason if the load before is unknown."""

    def __init__(
        self, arguments: PlanArguments, options: "Options", compared: list[str], evaluators: list[str] | None, reader: InputReader
    ) -> None:
        self._arguments = arguments
        self._options = options
        self._names = compared
        self._evaluators = evaluators
        self._reader = reader

    def run(self) -> tuple[dict[str, Any], str | None]:
        """Plan, compare, evaluate, and write the plan file."""
        from overweave.cli.plan_text import answer_of
        from overweave.pipeline.plan_files import write_plan
        from overweave.pipeline.streaming.versions import current
        from overweave.planning.bounds import brokers_min

        given = self._arguments
        # One version of the tables for the whole run: a follow job may publish others meanwhile.
        inputs = self._reader.read(current(given.source))
        plan, unknown = self._plan(inputs)
        compared = self._compared(inputs)
        evaluated = self._evaluated(inputs, plan)
        plan = msgspec.structs.replace(plan, evaluation=evaluated)
        answer = answer_of(plan, inputs.problem, brokers_min(inputs.problem), compared, evaluated, given.explain)
        if given.out is not None:
            answer["files"] = [str(path) for path in write_plan(plan, given.out)]
        return answer, unknown

    def _plan(self, inputs: PlanInputs) -> tuple["Plan", str | None]:
        from overweave.cli.plan_frontier import frontier
        from overweave.planning.make import make_plan
        from overweave.planning.planned_for import planned_for

        given, problem, evidence = self._arguments, inputs.problem, inputs.evidence
        self._reader.show(f"planning by {given.algorithm}")
        before, unknown = before_of(problem)
        plan = make_plan(problem, given.algorithm, self._options, given.seed, evidence, inputs.run_parts)
        points = frontier(problem, plan, evidence, given.frontier, self._reader.show)
        network = planned_for(problem, inputs.offer.added, by_table=inputs.offer.by_table)
        return msgspec.structs.replace(plan, before=before, frontier=points, network=network), unknown

    def _compared(self, inputs: PlanInputs) -> dict[str, Any]:
        """The totals of the other algorithms, or their errors."""
        from overweave.planning.make import make_plan

        found: dict[str, Any] = {}
        for name in self._names:
            self._reader.show(f"planning by {name}")
            began_s = time.perf_counter()
            try:
                plan = make_plan(inputs.problem, name, self._options, self._arguments.seed, inputs.evidence, inputs.run_parts)
            except InvalidInput as error:
                found[name] = {"error": str(error)}
            else:
                found[name] = {**msgspec.to_builtins(plan.totals), "seconds": round(time.perf_counter() - began_s, 4)}
        return found

    def _evaluated(self, inputs: PlanInputs, plan: "Plan") -> "Evaluation | None":
        publications = self._arguments.evaluate
        if publications is None:
            return None
        from overweave.pipeline.plan_replay import Truth, evaluate
        from overweave.pipeline.plan_tables import kind_of, table_path
        from overweave.pipeline.planning import read_advertisements, read_windows

        tables, scratch = inputs.tables, self._reader.scratch
        subscriptions = table_path(tables, "subscription_lifetimes")
        if subscriptions is None:
            raise InvalidInput(f"--evaluate: expected a table 'subscriptions' with filters in {tables}, found none")
        spark = self._reader.spark()
        profiles = scratch if kind_of(tables) == "workload" else tables
        truth = Truth(subscriptions, publications, read_windows(profiles), read_advertisements(tables), self._evaluators)
        return evaluate(spark, plan, inputs.problem, truth, scratch, self._reader.show)
