"""The network file of a running network that changes: its backups with the places of clients, and its lock."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import OverlayState
from overweave.drivers.tcp.atomic_file import mode_of, write_atomically
from overweave.drivers.tcp.network_file import NetworkFile, read_network
from overweave.drivers.tcp.network_writer import change_of, write_network
from overweave.errors import InvalidInput, OverweaveError
from overweave.overlay.parts import link_ends


class NetworkBackup(msgspec.Struct, frozen=True):
    """A network before a change: its file, and the brokers of its clients."""

    network: NetworkFile
    clients: dict[str, str]


class LiveFile:
    """The network file of one change; see `overweave.drivers.tcp.apply.OverlayFile`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_current(self, state: OverlayState) -> bool:
        """See `OverlayFile.is_current`."""
        if not state.is_stable:
            return False
        network, tree = read_network(self._path), state.tree(state.current)
        links = {link_ends(*link) for link in tree.links}
        found = network.epoch, set(network.overlay.ids), {link.ends for link in network.overlay.links}
        return found == (state.current, set(tree.brokers), links) and change_of(state, network) == (
            network.version,
            network.change,
        )

    def named(self, observation: Observation) -> Observation:
        """See `OverlayFile.named`."""
        state = observation.state
        if state.change or not state.is_stable:
            return observation
        _, change = change_of(state, read_network(self._path))
        return msgspec.structs.replace(observation, state=msgspec.structs.replace(state, change=change))

    def write(self, state: OverlayState) -> None:
        """See `OverlayFile.write`. If a coordinator with another copy of the file began the change, this one has no backup.

        The backup of a change that has begun again is that of its first epoch.
        """
        network, epoch = read_network(self._path), state.version.epoch
        has_begun_again = bool(state.change) and network.change == state.change
        first = min(network.version + 1, epoch)
        if not has_begun_again and not any(has_backup(self._path, each) for each in range(first, epoch + 1)):
            self._keep_as(backup_paths(self._path, epoch)[0], self._path.read_bytes())
        with _named(self._path):
            write_network(self._path, state)

    def back_up(self, observation: Observation, epoch: int) -> None:
        """See `OverlayFile.back_up`."""
        clients = {each.name: id for id, broker in observation.brokers.items() for each in broker.clients}
        file, places = backup_paths(self._path, epoch)
        # The places first: `write` makes up for a missing file.
        self._keep_as(places, msgspec.json.format(msgspec.json.encode(clients, order="sorted"), indent=1) + b"\n")
        self._keep_as(file, self._path.read_bytes())

    def _keep_as(self, backup: Path, content: bytes) -> None:
        """Write a backup for those who may read the network file."""
        with _named(backup):
            write_atomically(backup, content, mode_of(self._path))


def backup_paths(path: Path, epoch: int) -> tuple[Path, Path]:
    """The backup of a network file from before an epoch, and the places of clients then.

    >>> [file.name for file in backup_paths(Path("network.toml"), 3)]
    ['network.toml.before-3', 'network.toml.before-3.clients']
    """
    file = path.with_name(f"{path.name}.before-{epoch}")
    return file, file.with_name(f"{file.name}.clients")


def has_backup(path: Path, epoch: int) -> bool:
    """Whether the network file from before an epoch is kept."""
    return backup_paths(path, epoch)[0].exists()


def read_backup(path: Path, epoch: int) -> NetworkBackup:
    """The network from before an epoch."""
    file, places = backup_paths(path, epoch)
    if not file.exists():
        raise InvalidInput(f"{file}: expected the network file from before epoch {epoch}, found none: nothing can be undone")
    clients: dict[str, str] = {}
    if places.exists():
        try:
            clients = msgspec.json.decode(places.read_bytes(), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{places}: expected the brokers of clients: {error}") from None
    return NetworkBackup(read_network(file), clients)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """A lock on a network file: the second change on this machine at the same time is an error."""
    lock = path.with_name(f".{path.name}.lock")
    with _named(lock):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OverweaveError(f"{path}: another change of this network is running") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn errors of the file system, such as a full disk, into errors that name the file."""
    try:
        yield
    except OSError as error:
        raise OverweaveError(f"{path}: cannot be written: {error.strerror or error}") from None
