"""``overweave undo``: the overlay and the places of clients from before the last change."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from overweave.cli.apply_run import RATE_HZ, ApplyRun
from overweave.cli.client_options import CaFile, Certificate, Credentials, Key, Name, Token
from overweave.cli.operators import target_of
from overweave.contract.observation import Observation
from overweave.contract.overlay_state import OverlayState
from overweave.drivers.tcp.overlay_file import has_backup, read_backup
from overweave.errors import OverweaveError
from overweave.reweave.states import IN_PROGRESS
from overweave.reweave.target import Target, is_undo, target_of_backup, undo_name

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

    The state comes from FILE.before-EPOCH, which 'overweave apply' keeps. Clients that joined later stay if their broker
    does. The same command resumes an interrupted undo; when it is complete, it does nothing. To revert an undo, apply the plan
    again.
    """
    target = target_of(network, Credentials(name, token, cafile, certificate, key))
    return ApplyRun(network, target, partial(restored, network), rate, json=json).run(yes=yes, dry_run=dry_run)


def restored(file: Path, found: Observation) -> Target:
    """The target from before the last change of an observed network; an undo, complete or not, is resumed."""
    state = found.state
    if state.version.phase in IN_PROGRESS and state.change and not is_undo(state.change):
        raise OverweaveError(f"change {state.change!r} is in progress: complete it, or 'overweave apply --abort'")
    epoch = _epoch_to_undo(file, state)
    backup = read_backup(file, epoch)
    later = [read_backup(file, each) for each in range(epoch + 1, state.version.epoch + 1) if has_backup(file, each)]
    brokers = {id for each in later for id in each.network.overlay.ids}
    return target_of_backup(backup.network.overlay, backup.clients, found, brokers)


def _epoch_to_undo(file: Path, state: OverlayState) -> int:
    """The epoch whose backup is restored: that of the last change, or of the change that the last one undoes.

    A change that has begun again, for clients that came back, has a backup of its first epoch only. An undo has a backup of its
    own, of the network before it. To restore that would be to apply the plan again.
    """
    kept = [epoch for epoch in range(state.version.epoch, 0, -1) if has_backup(file, epoch)]
    if not is_undo(state.change):
        return kept[0] if kept else state.version.epoch
    for epoch in kept:
        backup = read_backup(file, epoch)
        if undo_name(backup.network.overlay, backup.clients) == state.change:
            return epoch
    raise OverweaveError(f"{file}: expected the network that change {state.change!r} restores, found none: undo where it began")
