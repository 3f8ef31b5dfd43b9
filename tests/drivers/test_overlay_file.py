"""Backups of a network file, with the names of all clients: as private as the file, and whole or as before."""

import os

import msgspec
import pytest

from overweave.contract.modules import Capacity
from overweave.contract.observation import BrokerObservation, Observation, ObservedClient
from overweave.contract.overlay_state import OverlayStatus, first_state
from overweave.drivers.tcp import atomic_file
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.overlay_file import LiveFile, backup_paths, has_backup, locked, read_backup
from overweave.errors import OverweaveError

FILE = """\
[network]
shape = "chain"
brokers = 2
port = 7400
"""


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "network.toml"
    found.write_text(FILE)
    found.chmod(0o600)
    return found


def observed(path, client):
    state = first_state(read_network(path).overlay, {}, epoch=1)
    status = OverlayStatus(state.version, "", state.current, (state.current,), {}, {})
    return Observation(state, {"B2": BrokerObservation("B2", "", Capacity(), status, (ObservedClient(client, True, 1, 0),))})


@pytest.fixture(params=[0o000, 0o077])
def mask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
@pytest.mark.usefixtures("mask")
def test_backups_are_as_private_as_the_network_file(path, mode):
    path.chmod(mode)
    seen = observed(path, "alice")
    LiveFile(path).write(msgspec.structs.replace(seen.state, version=seen.state.version._replace(epoch=2)))
    LiveFile(path).back_up(seen, 3)
    assert has_backup(path, 2)
    assert read_backup(path, 3).clients == {"alice": "B2"}
    kept = {each.name: each.stat().st_mode & 0o777 for epoch in (2, 3) for each in backup_paths(path, epoch) if each.exists()}
    assert kept == dict.fromkeys(["network.toml.before-2", "network.toml.before-3", "network.toml.before-3.clients"], mode)


def test_a_change_that_began_before_this_copy_of_the_file_has_one_backup(path):
    seen = observed(path, "alice")
    LiveFile(path).back_up(seen, 2)
    LiveFile(path).write(msgspec.structs.replace(seen.state, version=seen.state.version._replace(epoch=3)))
    assert [has_backup(path, epoch) for epoch in (1, 2, 3)] == [False, True, False]


@pytest.mark.usefixtures("mask")
def test_a_backup_is_private_from_its_first_byte(path, monkeypatch):
    """Whoever opens a file while it is readable may read all that is written later."""
    modes = []
    monkeypatch.setattr(
        atomic_file.os, "fsync", lambda _: modes.extend(each.stat().st_mode & 0o777 for each in path.parent.iterdir())
    )
    LiveFile(path).back_up(observed(path, "alice"), 2)
    assert set(modes) == {0o600}


def test_a_backup_that_cannot_be_written_is_as_before(path, monkeypatch):
    LiveFile(path).back_up(observed(path, "alice"), 2)

    def fail(_):
        raise OSError("no space left")

    monkeypatch.setattr(atomic_file.os, "fsync", fail)
    with pytest.raises(OverweaveError, match=r"network\.toml\.before-2\.clients: cannot be written: no space left"):
        LiveFile(path).back_up(observed(path, "bob"), 2)
    assert read_backup(path, 2).clients == {"alice": "B2"}
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "network.toml", "network.toml.before-2", "network.toml.before-2.clients",
    ]  # fmt: skip


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    with (
        pytest.raises(OverweaveError, match=r"none/\.network\.toml\.lock: cannot be written"),
        locked(tmp_path / "none" / "network.toml"),
    ):
        pass
