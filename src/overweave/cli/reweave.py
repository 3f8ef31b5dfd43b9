"""``overweave reweave``: applies each new version of a plan to a running network when that pays, or says what it would do."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.apply_run import RATE_HZ, ApplyRun, Report, Seen, TargetStep, check_target, observed
from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import Target, target_of
from overweave.cli.output import put
from overweave.cli.plan_files import plan_target, read_plan
from overweave.cli.plan_profiles import PlanProfiles
from overweave.cli.reweave_history import read_history, write_history
from overweave.cli.stopping import stopping
from overweave.contract.observation import DELAYS_S_MAX, Observation
from overweave.contract.overlay_state import Phase
from overweave.drivers.tcp.apply import DELAYS_S
from overweave.drivers.tcp.overlay_file import locked
from overweave.errors import OverweaveError
from overweave.planning.plan import Plan
from overweave.reweave.coordinator import next_finishing_step
from overweave.reweave.deliveries import DeliveryMeter
from overweave.reweave.difference import check_loads
from overweave.reweave.hysteresis import Health, Hysteresis, Limits, Proposal
from overweave.reweave.saving import is_applied, saving_of
from overweave.reweave.situation import Move
from overweave.reweave.target import is_change_of, is_undo

EXAMPLE = """\
overweave plan profiles --follow --network network.toml --out plan.json
overweave reweave plan.json --network network.toml --observe"""

#: The action of a round whose change was stopped by a signal.
STOPPED = "stopped"
_DEFAULT = Limits()


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round: acted, would-act, held or stopped, with the reason."""

    action: str
    reason: str
    saving: float | None = None
    moves: int | None = None
    #: The clients that moved within the last hour.
    moves_last_hour: int = 0


def reweave(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file, for example of 'plan --follow'.", show_default=False)],
    network: Annotated[Path, typer.Option("--network", metavar="FILE", help="Network file of the running network.")],
    act: Annotated[bool, typer.Option("--act/--observe", help="Apply plans, or only print what would be applied.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Polling interval.")] = 10.0,
    saving: Annotated[
        float, typer.Option(min=0, metavar="SHARE", help="Minimum saving, as a share of brokers or messages.")
    ] = _DEFAULT.saving_min,
    cooldown: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Minimum time between two changes.")
    ] = _DEFAULT.cooldown_s,
    moves: Annotated[
        int, typer.Option(min=0, metavar="N", help="Clients that may move in any hour.")
    ] = _DEFAULT.moves_per_hour_max,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Clients to move per second at most.")] = RATE_HZ,
    profiles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Profiles of the plan, to predict the loads of all steps.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object per line.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
) -> None:
    """Follow a plan file, and apply its plans to a running network while they pay, until Ctrl-C.

    A plan is applied if it saves enough, the last change is long enough ago, and the budget of moves allows it. The circuit
    breaker opens when brokers do not answer, when a change fails, or when delays of deliveries or unsettled publications are
    three times the usual; while it is open nothing is changed. Changes are kept in FILE.reweave, so that budget and cool-down
    survive a restart. Once a plan is applied, only clients that still have to move count as a saving, without those whose
    migration failed. --observe is the default: it changes nothing. It writes a line whenever its decision changes.
    """
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    limits = Limits(saving_min=saving, cooldown_s=cooldown, moves_per_hour_max=moves)
    stopped, last = threading.Event(), None
    reweaver = Reweaver(plan, network, target, limits, rate, act=act, every_s=every, profiles=profiles, is_stopped=stopped.is_set)
    with stopping(stopped, signal.SIGINT, signal.SIGTERM):
        while not stopped.is_set():
            found = reweaver.round()
            if found is not None and (found.action, found.saving, found.moves) != last:
                last = found.action, found.saving, found.moves
                put(msgspec.json.encode(found) + b"\n" if json else f"{found.action}: {found.reason}\n".encode())
            if found is not None and found.action == STOPPED:  # the change has handled the signal
                return
            stopped.wait(every)


class Reweaver:
    """Decides on the present version of a plan again and again."""

    def __init__(
        self,
        plan: Path,
        file: Path,
        network: Target,
        limits: Limits,
        rate_hz: float,
        *,
        act: bool,
        every_s: float = 10.0,
        profiles: Path | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan, self._file, self._network, self._act = plan, file, network, act
        self._is_stopped = is_stopped
        self._rate_hz, self._meter = rate_hz, DeliveryMeter()
        self._profiles = PlanProfiles(plan, network, profiles)
        #: Brokers count delays from one round to the next.
        self._delays_s = min(max(DELAYS_S, 3 * every_s), DELAYS_S_MAX)
        self._hysteresis = Hysteresis(limits, read_history(file, time.time()))
        #: The migrations that the last change has tried in vain.
        self._stayed: set[Move] = set()
        #: The change that has reached its end here: its network file is written, and its brokers have stopped.
        self._complete = ""

    def round(self) -> Round | None:
        """The decision now; None: there is no plan yet."""
        if not self._plan.exists():
            return None
        try:
            observation = observed(self._network, self._delays_s)
        except OverweaveError as error:
            self._hysteresis.trip(str(error), time.time())
            return self._result("held", f"the circuit breaker is open: {error}")
        self._hysteresis.observe(Health(self._meter.measure(observation), observation.missing), time.time())
        try:
            return self._decided(read_plan(self._plan), observation)
        except OverweaveError as error:
            return self._result("held", str(error))

    def _decided(self, plan: Plan, observation: Observation) -> Round:
        run = ApplyRun(
            self._file,
            self._network,
            lambda found: plan_target(plan, self._plan, found, self._network),
            self._rate_hz,
            json=False,
            problem=self._profiles.read(),
        )
        seen = run.look(observation)
        check_target(self._network, seen.target, seen.observation)
        now_s, moves = time.time(), seen.difference.moves
        self._stayed &= set(moves)  # those that are back after a time away, or at another broker, may move
        breaker = self._hysteresis.open_reason(now_s)
        if self._act and breaker is None and self._is_interrupted(plan, seen):
            return self._complete_change(run, seen)
        if seen.difference.is_empty and not seen.is_resumed:
            return self._result("held", breaker or "the network is as planned")
        if is_undo(seen.observation.state.change) and self._plan.stat().st_mtime <= self._file.stat().st_mtime:
            return self._result("held", "the last change was undone after this plan was written: 'overweave apply' applies it")
        if not seen.is_resumed:
            check_loads(seen.difference)
        left = [move for move in moves if move not in self._stayed]
        if moves and not left and not seen.is_resumed and is_applied(plan, seen.target, seen.observation):
            return self._result("held", f"the network is as planned, except for {len(moves):,} clients that stayed")
        proposal = Proposal(saving_of(plan, seen.target, seen.observation, len(left)), len(moves))
        verdict = self._hysteresis.decide(proposal, now_s)
        if not (verdict.is_approved and self._act):
            return self._result("would-act" if verdict.is_approved else "held", verdict.reason, proposal)
        with locked(self._file):
            report = self._change(run, seen)
        return self._result("acted" if report.applied else STOPPED, verdict.reason, proposal)

    def _is_interrupted(self, plan: Plan, seen: Seen) -> bool:
        """Whether a change of this plan was stopped before its end: in a phase, or before the network file was written."""
        is_trimmed = is_change_of(plan, seen.observation) and seen.observation.state.version.phase is Phase.TRIMMED
        return seen.is_resumed or (is_trimmed and seen.target.change != self._complete)

    def _complete_change(self, run: ApplyRun, seen: Seen) -> Round:
        """Complete a change that was stopped. It was decided on before: it needs no saving, cool-down or budget."""
        report = Report(change=seen.target.change, difference=seen.difference)
        with locked(self._file):
            report = self._change(run, seen) if seen.is_resumed else self._perform(run, seen, report, next_finishing_step)
        if not report.applied:
            return self._result(STOPPED, "the change in progress is not complete")
        if report.moved or report.phases or report.finished:
            return self._result("acted", "the change in progress is complete")
        return self._result("held", "the network is as planned")

    def _change(self, run: ApplyRun, seen: Seen) -> Report:
        """Apply a plan, and count its moves. A change that fails has moved clients too."""
        self._hysteresis.begin(len(seen.difference.moves), time.time())
        write_history(self._file, self._hysteresis.applied)
        report = Report(change=seen.target.change, difference=seen.difference)
        try:
            return self._perform(run, seen, report)
        finally:
            self._hysteresis.end(len(report.moved), time.time())
            write_history(self._file, self._hysteresis.applied)

    def _perform(self, run: ApplyRun, seen: Seen, report: Report, coordinator: TargetStep | None = None) -> Report:
        """Perform a change, unless a signal has arrived before. One that fails opens the breaker."""
        if self._is_stopped():
            return report
        try:
            run.change(seen.target, report, coordinator)
        except OverweaveError as error:
            self._hysteresis.trip(f"the last change failed: {error}", time.time())
            raise
        finally:
            self._meter = DeliveryMeter()  # delays during the change are its own
        self._stayed = {move for move in seen.difference.moves if move.client in report.stayed}
        self._complete = seen.target.change if report.applied else ""
        return report

    def _result(self, action: str, reason: str, proposal: Proposal | None = None) -> Round:
        return Round(
            action=action,
            reason=reason,
            saving=None if proposal is None else proposal.saving,
            moves=None if proposal is None else proposal.moves,
            moves_last_hour=self._hysteresis.moves(time.time()),
        )
