"""``overweave apply``: a plan onto a running network, while traffic flows."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli import INTERRUPTED
from overweave.cli.apply_run import RATE_HZ, ApplyRun, observed, preferred_of, run_change
from overweave.cli.apply_text import status_text
from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import Target, target_of
from overweave.cli.output import put
from overweave.cli.plan_files import plan_target, read_plan
from overweave.cli.plan_profiles import PlanProfiles
from overweave.drivers.tcp.overlay_file import LiveFile, locked
from overweave.errors import InvalidInput, OverweaveError
from overweave.reweave.coordinator import Failed, next_abort_step
from overweave.reweave.situation import version_text

EXAMPLE = "overweave apply plan.json --network network.toml --dry-run"

#: From the phase 'closed' on there is no old overlay to return to.
_ABORT_HELP = "Abort the change in progress: return to the old overlay, or from phase 'closed' on end the change where it is."
NetworkOption = Annotated[Path, typer.Option("--network", metavar="FILE", help="Network file of the running network.")]
ProfilesOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles", metavar="DIR", help="Profiles of the plan, to predict the loads of all steps (default: those beside it)."
    ),
]


def apply(
    network: NetworkOption,
    plan: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="Plan file of 'overweave plan --out'.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference and change nothing.")] = False,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Clients to move per second at most.")] = RATE_HZ,
    profiles: ProfilesOption = None,
    status: Annotated[bool, typer.Option("--status", help="Show the state of the overlay at each broker.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help=_ABORT_HELP)] = False,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
) -> int:
    """Apply a plan to a running network, without loss, duplicates or a restart.

    The overlay of the plan is set up beside the current one. When all brokers are synchronised in it, publications switch to
    it; then clients move. Ctrl-C stops after the current step; the same command resumes. The rate of migrations is halved while
    delivery delays or unsettled publications are above twice their baseline. The network file is rewritten; the previous one is
    kept as FILE.before-EPOCH, for 'overweave undo'. Where brokers have tokens, --name and --token need the permission control.
    """
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    if status or abort:
        return _status(network, target, json=json) if status else _abort(network, target, rate)
    if plan is None:
        raise InvalidInput("PLAN: expected a plan file, or --status or --abort")
    chosen = read_plan(plan)
    problem = PlanProfiles(plan, target, profiles).read()
    run = ApplyRun(network, target, lambda found: plan_target(chosen, plan, found, target), rate, json=json, problem=problem)
    return run.run(yes=yes, dry_run=dry_run)


def _status(file: Path, target: Target, *, json: bool) -> int:
    observation = LiveFile(file).named(observed(target))
    put(msgspec.json.encode(observation) + b"\n" if json else status_text(observation).encode())
    return 0


def _abort(file: Path, target: Target, rate_hz: float) -> int:
    with locked(file):
        before = observed(target)
        ended, done = run_change(file, target, next_abort_step, preferred_of(before), rate_hz)
    if isinstance(ended, Failed):
        raise OverweaveError(ended.reason)
    if ended is None:
        return INTERRUPTED
    lines = [f"aborted: {version_text(done.phases[-1][0])}" if done.phases else "no change is in progress", *done.finished]
    put("".join(f"{line}\n" for line in lines).encode())
    return 0
