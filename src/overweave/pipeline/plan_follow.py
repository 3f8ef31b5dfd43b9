"""Following a profile with plans: a round for every version of its tables, a version of the plan whenever it is replaced.

::

    plan.json          the current plan: a copy of one of its versions
    plan-0001.json …   the versions
    .plan.json.lock    held by who follows

Files are put there in one step, the version first, so whenever this ends, all that is there is complete. When a plan is
replaced is in `overweave.planning.replan`.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from overweave.errors import InvalidInput, PlanningError
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.locks import locked
from overweave.pipeline.plan_files import read_plan, write_plan
from overweave.pipeline.streaming.versions import current
from overweave.planning.kept_plan import moves_between
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem
from overweave.planning.replan import Current, Decision, Thresholds, replan

#: How often tables are read again that were removed meanwhile, before this is taken for an error.
_TRIES = 5
#: Which files a version has; it is another version if they are others.
_Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Reading:
    """The problem of one version of the tables, and the planner for it."""

    problem: Problem
    #: The plan of a problem with the same evidence.
    make: Callable[[Problem], Plan]
    #: Adds the remaining fields of the plan file.
    completed: Callable[[Plan], Plan]


class Difference(msgspec.Struct, frozen=True):
    """What a new version of a plan changes in the one before."""

    moves: int
    brokers_added: tuple[str, ...]
    brokers_removed: tuple[str, ...]
    links_added: int
    links_removed: int


class Round(Decision, frozen=True, kw_only=True):
    """What became of the plan with one version of the tables; ``action`` may also be failed: no decision was possible."""

    round: int
    tables: str
    #: The version that is current, if it is known which.
    plan: str | None
    difference: Difference | None = None
    pending_saving_brokers: int | None = None
    pending_saving_input_hz: float | None = None


class PlanFollower:
    """Plans of a directory that `overweave profile --follow` writes; one at a time may have an ``out``."""

    def __init__(
        self, source: LocationLike, out: LocationLike, read: Callable[[Location], Reading], thresholds: Thresholds
    ) -> None:
        self._source, self._out = Location.of(source), Location.of(out)
        self._read, self._thresholds = read, thresholds
        self._seen: tuple[str, _Files] | None = None
        self._rounds = 0
        self._current, self._file = self._resumed()

    def follow(self, every_s: float, stopped: threading.Event, report: Callable[[Round], None]) -> None:
        """Report every round until ``stopped`` is set; a round that has begun is ended."""
        # The profile wants a directory of its own: nothing is put there before its tables are.
        while not stopped.is_set() and not _files(current(self._source)):
            stopped.wait(every_s)
        if stopped.is_set():
            return
        lock = self._out.parent / f".{self._out.name}.lock"
        with locked(lock, self._out, "follows with plans"):
            while not stopped.is_set():
                found = self.look()
                if found is not None:
                    report(found)
                stopped.wait(every_s)

    def look(self) -> Round | None:
        """The round of the tables that are there now; none if there was one, or there are no tables yet."""
        found = self._reading()
        if found is None:
            return None
        tables, reading = found
        self._rounds += 1
        name = tables.text.removeprefix(f"{self._source}/")
        try:
            if isinstance(reading, InvalidInput):
                raise reading
            decision, now = replan(self._current, reading.problem, self._thresholds, reading.make)
        except InvalidInput as error:
            # Errors in files are permanent; errors of the traffic may pass.
            if self._rounds == 1 and not isinstance(error, PlanningError):
                raise
            return Round(round=self._rounds, tables=name, action="failed", reason=str(error), plan=self._file)
        difference = None
        if decision.action != "kept":
            before, plan = self._current, reading.completed(now.plan)
            now = Current(plan, now.observed)
            difference = None if before is None else _difference(before.plan, plan)
            self._file = self._written(plan)
        self._current = now
        return Round(
            round=self._rounds,
            tables=name,
            plan=self._file,
            difference=difference,
            pending_saving_brokers=decision.pending_brokers,
            pending_saving_input_hz=decision.pending_input_hz,
            **msgspec.structs.asdict(decision),
        )

    def _reading(self) -> tuple[Location, Reading | InvalidInput] | None:
        """The current tables, if they are new. All tables are of one version."""
        for _ in range(_TRIES):
            tables = current(self._source)
            files = _files(tables)
            # None was removed while we looked at what there is.
            if current(self._source) != tables:
                continue
            if not files or self._seen == (tables.text, files):
                return None
            try:
                found: Reading | InvalidInput = self._read(tables)
            except InvalidInput as error:
                found = error
            # And none while we read.
            if _files(tables) == files:
                self._seen = (tables.text, files)
                return tables, found
        raise InvalidInput(f"{self._source}: expected tables that stay while they are read, found {_TRIES} that did not")

    def _resumed(self) -> tuple[Current | None, str | None]:
        if not self._out.exists():
            return None, None
        names = [self._out.parent / name for name in self._versions().values()]
        data = self._out.read_bytes()
        same = (each.name for each in reversed(names) if each.read_bytes() == data)
        return Current(read_plan(self._out)), next(same, None)

    def _versions(self) -> dict[int, str]:
        stem, suffix = self._stem()
        pattern = re.compile(rf"{re.escape(stem)}-(\d{{4,}}){re.escape(suffix)}")
        found = ((pattern.fullmatch(each.name), each.name) for each in self._out.parent.list())
        return dict(sorted((int(match[1]), name) for match, name in found if match is not None))

    def _stem(self) -> tuple[str, str]:
        return self._out.name.removesuffix(self._out.suffix), self._out.suffix

    def _written(self, plan: Plan) -> str:
        stem, suffix = self._stem()
        version = self._out.parent / f"{stem}-{max(self._versions(), default=0) + 1:04}{suffix}"
        write_plan(plan, version)
        # What lies beside a version is named in it, so its copy finds it, too.
        self._out.write_bytes(version.read_bytes())
        return version.name


def _files(tables: Location) -> _Files:
    return tuple(sorted(tables.walk()))


def _difference(before: Plan, after: Plan) -> Difference:
    brokers, links = (set(before.brokers), set(after.brokers)), (set(before.links), set(after.links))
    return Difference(
        moves_between(before, after)[0],
        tuple(sorted(brokers[1] - brokers[0])),
        tuple(sorted(brokers[0] - brokers[1])),
        len(links[1] - links[0]),
        len(links[0] - links[1]),
    )
