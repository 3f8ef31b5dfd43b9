"""``overweave plan --follow``: plans that are kept up to date, and a line for every round."""

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from overweave.cli.output import put
from overweave.cli.stopping import stopping
from overweave.cli.terminal import say
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from overweave.pipeline.plan_follow import Reading, Round
    from overweave.planning.replan import Thresholds


class Following(msgspec.Struct, frozen=True):
    """How plans are kept up to date."""

    every_s: float
    thresholds: "Thresholds"
    metrics: Path | None = None


def following_of(every_s: float, change: float, gain: float, move_price: float, metrics: Path | None) -> Following:
    """The options of --follow; wrong ones are errors."""
    from overweave.planning.replan import Thresholds

    if not every_s > 0:
        raise InvalidInput(f"--every: expected a time above 0, found {every_s:g}")
    for name, value in (("change", change), ("gain", gain), ("move-price", move_price)):
        if not value >= 0:
            raise InvalidInput(f"--{name}: expected a share from 0 on, found {value:g}")
    return Following(every_s, Thresholds(change, gain, move_price), metrics)


def check_alone(**others: object) -> None:
    """Refuse options that ask something of one plan."""
    for name, value in others.items():
        if value:
            raise InvalidInput(f"--{name.replace('_', '-')}: expected without --follow, found both")


def check_profile(tables: Location) -> None:
    """Refuse what nobody keeps up to date."""
    from overweave.pipeline.planning import kind_of

    if kind_of(tables) != "profile":
        raise InvalidInput(f"{tables}: --follow: expected a directory of 'overweave profile', found a workload")


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

    def tell(found: "Round") -> None:
        put(msgspec.json.encode(found) + b"\n" if json else f"{line_of(found)}\n".encode())
        if metrics is not None:
            metrics.tell(found)

    # Spark, where it is needed, takes Ctrl-C for itself.
    with stopping(stopped, signal.SIGINT, signal.SIGTERM), contextlib.suppress(KeyboardInterrupt):
        target = Location.of(source) / "plan.json" if out is None else Location.of(out)
        PlanFollower(source, target, read, following.thresholds).follow(following.every_s, stopped, tell)


def line_of(found: "Round") -> str:
    """A round as one line: what became of the plan, why, and what could be saved."""
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
