"""``overweave plan --follow``: a plan that is kept up to date, with one line per round."""

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from overweave.cli.output import put
from overweave.cli.plan_before import before_of
from overweave.cli.plan_inputs import InputReader
from overweave.cli.plan_options import PlanArguments
from overweave.cli.stopping import stopping
from overweave.cli.terminal import say
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from overweave.pipeline.plan_follow import Reading, Round
    from overweave.planning.options import Options
    from overweave.planning.replan import Thresholds


class Following(msgspec.Struct, frozen=True):
    """The options of --follow."""

    every_s: float
    thresholds: "Thresholds"
    metrics: Path | None = None


def following_of(arguments: PlanArguments) -> Following:
    """The options of --follow; invalid values are errors."""
    from overweave.planning.replan import Thresholds

    given = arguments
    if not given.every > 0:
        raise InvalidInput(f"--every: expected a time above 0, found {given.every:g}")
    for name, value in (("change", given.change), ("gain", given.gain), ("move-price", given.move_price)):
        if not value >= 0:
            raise InvalidInput(f"--{name}: expected a share from 0 on, found {value:g}")
    return Following(given.every, Thresholds(given.change, given.gain, given.move_price), given.metrics)


def check_alone(**others: object) -> None:
    """Reject options that are about a single plan."""
    for name, value in others.items():
        if value:
            raise InvalidInput(f"--{name.replace('_', '-')}: expected without --follow, found both")


def check_profile(tables: Location) -> None:
    """Reject tables that no follow job updates."""
    from overweave.pipeline.plan_tables import kind_of

    if kind_of(tables) != "profile":
        raise InvalidInput(f"{tables}: --follow: expected a directory of 'overweave profile', found a workload")


def follow_arguments(arguments: PlanArguments, options: "Options", reader: InputReader, following: Following) -> None:
    """Follow the source of a command line."""
    from overweave.pipeline.plan_follow import Reading
    from overweave.planning.make import make_plan
    from overweave.planning.planned_for import planned_for

    def read(tables: Location) -> Reading:
        check_profile(tables)
        inputs = reader.read(tables)
        problem, offer = inputs.problem, inputs.offer
        return Reading(
            problem,
            lambda some: make_plan(some, arguments.algorithm, options, arguments.seed, inputs.evidence, inputs.run_parts),
            lambda made: msgspec.structs.replace(
                made, before=before_of(problem)[0], network=planned_for(problem, offer.added, by_table=offer.by_table)
            ),
        )

    follow_plans(arguments.source, arguments.out, read, following, json=arguments.json)


def follow_plans(
    source: str, out: str | None, read: "Callable[[Location], Reading]", following: Following, *, json: bool
) -> None:
    """Plan whenever the tables of ``source`` change, until Ctrl-C."""
    from overweave.pipeline.plan_follow import PlanFollower
    from overweave.pipeline.plan_metrics import PlanMetrics

    stopped = threading.Event()
    if not Location.of(source).exists():
        say(f"waiting for tables in {source}")
    metrics = None if following.metrics is None else PlanMetrics(following.metrics)

    def report(found: "Round") -> None:
        put(msgspec.json.encode(found) + b"\n" if json else f"{line_of(found)}\n".encode())
        if metrics is not None:
            metrics.report(found)

    # Spark installs its own handler of Ctrl-C.
    with stopping(stopped, signal.SIGINT, signal.SIGTERM), contextlib.suppress(KeyboardInterrupt):
        target = Location.of(source) / "plan.json" if out is None else Location.of(out)
        PlanFollower(source, target, read, following.thresholds).follow(following.every_s, stopped, report)


def line_of(found: "Round") -> str:
    """A round as one line: action, reason, and pending saving."""
    parts = [f"round {found.round:,}, {found.tables}: {found.action}{_named(found)}: {found.reason}"]
    if (difference := found.difference) is not None:
        brokers = [f"+{id}" for id in difference.brokers_added] + [f"-{id}" for id in difference.brokers_removed]
        parts.append(
            f"{difference.moves:,} moves, brokers {' '.join(brokers) or 'as before'},"
            f" {difference.links_added:,} links come and {difference.links_removed:,} go"
        )
    if (standing := found.standing) is not None:
        parts.append(f"{standing.brokers:,} brokers, the highest utilisation {standing.utilisation_max:.1%}")
    if found.pending_saving_brokers is not None and found.pending_saving_input_hz is not None:
        parts.append(
            f"pending: {found.pending_saving_brokers:,} brokers and {found.pending_saving_input_hz:,.4g} messages/s less"
        )
    return "; ".join(" ".join(part.split()) for part in parts)


def _named(found: "Round") -> str:
    if found.action == "failed" or found.plan is None:
        return ""
    return f" by {found.plan}" if found.action == "replaced" else f" {found.plan}"
