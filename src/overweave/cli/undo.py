"""``overweave undo``: the overlay and the places of clients from before the last change."""

from pathlib import Path
from typing import Annotated

import typer

from overweave.cli.apply_run import RATE_HZ, ApplyRun, observed
from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import target_of
from overweave.contract.observation import Observation
from overweave.drivers.tcp.overlay_file import read_backup
from overweave.errors import OverweaveError
from overweave.reweave.states import IN_PROGRESS
from overweave.reweave.target import Target, target_of_backup

EXAMPLE = "overweave undo --network network.toml --dry-run"


def undo(
    network: Annotated[Path, typer.Option("--network", metavar="FILE", help="Network file of the running network.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the difference and change nothing.")] = False,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Clients to move per second at most.")] = RATE_HZ,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON object.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
) -> int:
    """Return to the overlay and the places of clients from before the last change, while traffic flows.

    The state comes from FILE.before-EPOCH, which 'overweave apply' keeps. Clients that came later stay where they can. To undo
    an undo is to apply the plan again.
    """
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    state = observed(target).state
    is_own = state.change.startswith("undo-")
    if state.version.phase in IN_PROGRESS and state.change and not is_own:
        raise OverweaveError(f"change {state.change!r} is in progress: complete it, or 'overweave apply --abort'")
    # An undo in progress goes on with the state from before the change that it undoes.
    is_resumed = is_own and state.version.phase in IN_PROGRESS
    backup = read_backup(network, state.version.epoch - is_resumed)

    def restored(found: Observation) -> Target:
        return target_of_backup(backup.network.overlay, backup.clients, found)

    return ApplyRun(network, target, restored, rate, json=json).run(yes=yes, dry_run=dry_run)
