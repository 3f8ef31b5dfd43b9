"""A change of a live network on the command line: observed, shown, confirmed, executed and reported."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from overweave.cli import INTERRUPTED
from overweave.cli.apply_text import difference_text, end_text
from overweave.cli.operators import Target as Credentialed
from overweave.cli.operators import operator_at
from overweave.cli.output import put
from overweave.cli.overlay_processes import processes_of
from overweave.cli.stopping import restored
from overweave.cli.terminal import is_watched, say, waiting
from overweave.contract.observation import Observation
from overweave.drivers.tcp.apply import LiveApply, Progress
from overweave.drivers.tcp.overlay_file import LiveFile, locked
from overweave.drivers.tcp.overlay_operators import OverlayOperators
from overweave.errors import InvalidInput, OverweaveError
from overweave.overlay.graph import Overlay
from overweave.reweave.coordinator import Done, Failed, Step, next_step
from overweave.reweave.difference import Difference, check_loads, difference_of
from overweave.reweave.situation import Situation, ids_text
from overweave.reweave.states import IN_PROGRESS, current_tree
from overweave.reweave.step_loads import ProfileModel
from overweave.reweave.target import Target
from overweave.routing import PROTOCOLS
from overweave.routing.options import ClusterOptions

if TYPE_CHECKING:
    from overweave.planning.problem import Problem

RATE_HZ = 50.0
#: A coordinator of changes to a target.
TargetStep = Callable[[Target, Situation], Step]
_NOTHING = "the network is as planned: nothing to do\n"
#: The interval between two lines about the progress where no terminal shows it.
_REPORT_S = 5.0


class Seen(NamedTuple):
    """A network as it was observed, with its target and the difference."""

    observation: Observation
    target: Target
    difference: Difference

    @property
    def is_resumed(self) -> bool:
        """Whether the change is in progress already."""
        state = self.observation.state
        return state.change == self.target.change and state.version.phase in IN_PROGRESS

    @property
    def is_done(self) -> bool:
        """Whether the overlay and the clients are as the target has them."""
        return self.difference.is_empty and not self.is_resumed


class Report(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a change for programs."""

    change: str
    difference: Difference
    applied: bool = False
    moved: dict[str, str] = {}
    stayed: dict[str, str] = {}
    phases: dict[str, float] = {}
    #: What was done after the last phase.
    finished: list[str] = []
    duration_s: float = 0.0


class ApplyRun:
    """One run of ``apply`` or ``undo``; ``target_of`` makes the target of an observed network."""

    def __init__(
        self,
        file: Path,
        network: Credentialed,
        target_of: Callable[[Observation], Target],
        rate_hz: float,
        *,
        json: bool,
        problem: "Problem | None" = None,
    ) -> None:
        check_protocol(network)
        self._file, self._network, self._target_of = file, network, target_of
        self._rate_hz, self._json, self._problem = rate_hz, json, problem

    def run(self, *, yes: bool, dry_run: bool) -> int:
        """Show the difference, have it confirmed, and execute it."""
        with locked(self._file):
            seen = self.look()
            report = Report(change=seen.target.change, difference=seen.difference)
            check_target(self._network, seen.target, seen.observation)
            if not seen.is_resumed:
                check_loads(seen.difference)
            self._show(seen)
            if dry_run:
                self._put(report, _NOTHING if seen.is_done else "")
                return 0
            if not (yes or seen.difference.is_empty or _confirmed()):
                say("nothing was changed")
                return 1
            return self.execute(seen.target, report)

    def look(self, observation: Observation | None = None) -> Seen:
        """The difference of an observation, or of one made now."""
        observation = LiveFile(self._file).named(observed(self._network) if observation is None else observation)
        target = self._target_of(observation)
        model = None if self._problem is None else ProfileModel(self._problem, target.clients)
        return Seen(observation, target, difference_of(target, observation, self._rate_hz, model))

    def _show(self, seen: Seen) -> None:
        if not (self._json or seen.is_done):
            resumed = "resuming a change in progress\n" if seen.is_resumed else ""
            put(f"{resumed}{difference_text(seen.difference, seen.observation, self._rate_hz)}".encode())

    def execute(self, target: Target, report: Report) -> int:
        """Perform a change until it is complete or Ctrl-C; the exit status."""
        ended = self.change(target, report)
        if ended is None:
            self._put(report, "stopped after the current step; the same command resumes\n")
            return INTERRUPTED
        is_quiet = report.difference.is_empty and not (report.moved or report.phases or report.finished)
        text = _NOTHING if is_quiet else end_text(len(report.moved), ended.stayed, report.duration_s, len(target.brokers))
        self._put(report, text)
        return 0

    def change(self, target: Target, report: Report, coordinator: TargetStep | None = None) -> Done | None:
        """Perform a change and fill its report; None: stopped by Ctrl-C."""
        start_s, step = time.monotonic(), coordinator or next_step
        ended, apply = run_change(
            self._file, self._network, lambda situation: step(target, situation), target.brokers, self._rate_hz
        )
        report.duration_s, report.moved = time.monotonic() - start_s, apply.moved
        report.phases = {f"{at.epoch} {at.phase.name.lower()}": at_s - start_s for at, at_s in apply.phases}
        report.finished = apply.finished
        if isinstance(ended, Failed):
            raise OverweaveError(ended.reason)
        if ended is not None:
            report.applied, report.stayed = True, ended.stayed
        return ended

    def _put(self, report: Report, text: str) -> None:
        put(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n" if self._json else text.encode())


def run_change(
    file: Path, network: Credentialed, step: Callable[[Situation], Step], preferred: tuple[str, ...], rate_hz: float
) -> tuple[Done | Failed | None, LiveApply]:
    """Run a coordinator against a live network; None: stopped by Ctrl-C."""

    async def run() -> tuple[Done | Failed | None, LiveApply]:
        async with operators_of(network) as operators, processes_of(file, network) as processes:
            with _reports() as report:
                apply = LiveApply(operators, processes, LiveFile(file), step, preferred, rate_hz, report)
                with _stopped_by_signals(apply):
                    return await apply.run(), apply

    return asyncio.run(run())


def operators_of(network: Credentialed) -> OverlayOperators:
    """The operators of the brokers of a network file."""
    return OverlayOperators(dict(network.network.urls), lambda url: operator_at(network, url))


def observed(network: Credentialed, delays_s: float = 0.0) -> Observation:
    """One observation of a running network; see `ObserveRequest`."""

    async def observe() -> Observation:
        async with operators_of(network) as operators:
            return await operators.observe(network.network.overlay.ids, delays_s)

    with waiting("observing"):
        return asyncio.run(observe())


def check_protocol(network: Credentialed) -> None:
    """Refuse routing protocols whose overlay cannot change."""
    about = network.network
    protocol = PROTOCOLS[about.routing]
    engine = protocol.make(about.overlay.ids[0], about.overlay, options=about.routing_options)
    if engine.epochs is None and not protocol.reroutes:
        raise InvalidInput(
            f"network.routing: {about.routing!r}: expected a protocol whose overlay can change: one that reroutes, or one for"
            " trees without capabilities of its own"
        )
    if issubclass(protocol.options, ClusterOptions) and about.overlay.clusters:
        raise InvalidInput(f"network.routing: {about.routing!r}: expected no clusters: plans do not support them")


def check_target(network: Credentialed, target: Target, observation: Observation) -> None:
    """Refuse brokers that nobody knows, and a target without a broker that the options of the routing protocol name: a root."""
    members = {member.id for member in observation.state.members}
    unknown = sorted(set(target.brokers) - network.network.urls.keys() - observation.brokers.keys() - members)
    if unknown:
        raise InvalidInput(f"brokers: {ids_text(unknown)}: expected brokers of the network file, or running guests")
    options = network.network.routing_options
    try:
        if options is not None:
            options.check(Overlay(target.brokers, target.links))
    except InvalidInput as error:
        raise InvalidInput(f"routing.{error}, among the brokers of the plan") from None


def preferred_of(observation: Observation) -> tuple[str, ...]:
    """The brokers of the present tree."""
    return current_tree(observation.state).brokers


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput("--yes: expected, because standard input is not a terminal")
    sys.stderr.write("apply? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@contextlib.contextmanager
def _stopped_by_signals(apply: LiveApply) -> Iterator[None]:
    """Stop after the current step at Ctrl-C or SIGTERM; a second signal has its usual effect. The handlers are as before then."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        say("stopping after the current step")
        apply.stop()
        for number in numbers:
            loop.remove_signal_handler(number)

    with restored(*numbers):
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _reports() -> Iterator[Callable[[Progress], None]]:
    """A report of progress: a line that changes on a terminal, else a line per phase and now and then."""
    with waiting("observing") as show:
        last_phase, last_s = "", time.monotonic()

        def report(progress: Progress) -> None:
            nonlocal last_phase, last_s
            moved = f": {progress.moved:,} moved, {progress.rate_hz:.3g} per second" if progress.moves else ""
            waits = f"; waiting: {progress.waits_for}" if progress.waits_for else ""
            show(f"{progress.phase}{moved}{waits}")
            now_s = time.monotonic()
            if not is_watched() and (progress.phase != last_phase or now_s - last_s > _REPORT_S):
                last_phase, last_s = progress.phase, now_s
                say(f"{progress.phase}{moved}{waits}")

        yield report
