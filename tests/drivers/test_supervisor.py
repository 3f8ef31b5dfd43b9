"""The supervisor: processes that come and go, who may ask for it, and only one per network file."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from overweave.cli.client_options import Credentials
from overweave.cli.operators import Target
from overweave.cli.overlay_processes import processes_of
from overweave.drivers.tcp import supervisor, supervisor_client, supervisor_protocol
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.processes import ProcessExited, supervise
from overweave.drivers.tcp.supervisor import Supervisor, supervisor_lock
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.drivers.tcp.supervisor_protocol import StopProcess, SupervisorError, record_path, socket_path

FILE = '[network]\nshape = "chain"\nbrokers = 2\nport = 7400\n[[broker]]\nid = "B3"\nspare = true\n'
#: It is ready at once, notes a request to drain, and stops at SIGTERM.
CHILD = """
import sys, time
from overweave.drivers.tcp.processes import stop_with_parent
stop_with_parent(0, on_drain=lambda limit_s: print("drains", limit_s, file=sys.stderr, flush=True))
print("ready", flush=True)
time.sleep(60)
"""
#: It writes down when it gets SIGTERM.
NOTE_END = """
import signal
def end(*_):
    print("ended", time.monotonic(), file=sys.stderr, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
"""
JOIN = "tcp://127.0.0.1:7401"


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="ow-") as directory:  # the path of a socket has at most 107 bytes
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "network.toml"
    path.write_text(FILE)
    return path


def child(code=CHILD):
    return [sys.executable, "-c", code]


def run(file, work, command=lambda *_: child()):
    """Supervise two children while ``work(client)`` runs; their lines."""
    lines, client = [], SupervisorClient(file)

    async def main():
        up = asyncio.Event()
        commands = {id: command(id, None, None) for id in ("B1", "B2")}
        control = Supervisor(file, command).control
        running = asyncio.create_task(supervise(commands, up.set, lambda *line: lines.append(line), 3.0, control))
        await asyncio.wait([running, asyncio.ensure_future(up.wait())], return_when=asyncio.FIRST_COMPLETED)
        try:
            await work(client)
            assert not running.done(), "it still runs"
        finally:
            if not running.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await running

    with supervisor_lock(file):
        asyncio.run(asyncio.wait_for(main(), 60))
    return lines


def names(processes):
    return [each.broker for each in processes]


def test_processes_start_and_stop_on_request(file):
    async def work(client):
        assert names(await client.list()) == ["B1", "B2"]
        await client.start("B3", JOIN)
        status = await client.status()
        assert (names(status.processes), status.pid, status.file) == (["B1", "B2", "B3"], os.getpid(), str(file))
        assert {each.state for each in status.processes} == {"ready"}
        await client.stop("B2")
        await client.stop("B3", drain_s=2.5)
        assert names(await client.list()) == ["B1"]
        await client.start("B2")
        await client.stop("B1")
        assert names(await client.list()) == ["B2"]

    lines = run(file, work)
    assert ("B3", "drains 2.5") in lines
    assert not any(name != "B3" for name, _ in lines), "only B3 was drained"


def test_processes_that_came_later_stop_before_the_first_ones(file):
    """A guest leaves its contact while that runs."""
    code = CHILD.replace("stop_with_parent(0", f"{NOTE_END}stop_with_parent(0")

    async def work(client):
        await client.start("B3", JOIN)

    ends_s = {name: float(line.split()[1]) for name, line in run(file, work, lambda *_: child(code)) if line.startswith("ended")}
    assert ends_s["B3"] < min(ends_s["B1"], ends_s["B2"]), ends_s


def test_wrong_requests_are_named(file):
    async def work(client):
        for broker, join, text in (
            ("B1", None, "it runs already"),
            ("B3", None, "it needs the URL of a broker to join at"),
            ("B33", None, "expected one of the network"),
            ("B33", JOIN, "listen: expected a URL"),
            ("B3", "B1", "join: expected tcp://"),
        ):
            with pytest.raises(SupervisorError, match=text):
                await client.start(broker, join)
        with pytest.raises(SupervisorError, match="'B7': it does not run"):
            await client.stop("B7")
        with pytest.raises(SupervisorError, match="drain: expected a time"):
            await client.stop("B1", -1.0)
        reader, writer = await asyncio.open_unix_connection(str(socket_path(file)))
        writer.write(b"nonsense\n")
        assert b"expected a request" in await reader.readline()
        writer.close()
        _, idle = await asyncio.open_unix_connection(str(socket_path(file)))
        idle.close()
        assert names(await client.list()) == ["B1", "B2"]

    run(file, work)


def test_a_broker_that_does_not_start_is_reported_and_the_others_go_on(file):
    failing = "import sys; print('no port', file=sys.stderr); sys.exit(3)"

    async def work(client):
        with pytest.raises(SupervisorError, match="B3 ended with status 3: no port"):
            await client.start("B3", JOIN)
        assert names(await client.list()) == ["B1", "B2"]

    run(file, work, lambda broker, *_: child(failing if broker == "B3" else CHILD))


def test_a_started_broker_that_dies_later_stops_all(file):
    async def work(client):
        await client.start("B3", JOIN)
        pid = next(each.pid for each in await client.list() if each.broker == "B3")
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(1)

    with pytest.raises((ProcessExited, AssertionError), match=r"B3 was ended by SIGKILL|it still runs"):
        run(file, work)


def test_one_that_does_not_stop_is_killed_after_its_drain(file):
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"

    async def work(client):
        begin_s = time.monotonic()
        await client.stop("B2", drain_s=0.1)
        assert 3.0 < time.monotonic() - begin_s < 20
        assert names(await client.list()) == ["B1"]

    run(file, work, lambda broker, *_: child(deaf if broker == "B2" else CHILD))


def test_a_second_supervisor_of_a_file_is_refused_and_names_the_first(file, tmp_path):
    code = f"""
import sys
from pathlib import Path
from overweave.drivers.tcp.supervisor import supervisor_lock
with supervisor_lock(Path({str(file)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(child(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        (tmp_path / "link.toml").symlink_to(file)
        for same in (file, tmp_path / "link.toml"):
            with pytest.raises(SupervisorError, match=f"runs it already, process {first.pid}$"), supervisor_lock(same):
                pass
        first.kill()
        first.wait()
        with supervisor_lock(file):
            pass


def test_a_socket_of_a_killed_supervisor_is_replaced_and_no_one_else_can_use_it(file):
    async def work(client):
        assert socket_path(file).stat().st_mode & 0o777 == 0o600
        assert len(await client.list()) == 2

    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stale:
        stale.bind(str(socket_path(file)))
    with pytest.raises(SupervisorError, match="no 'overweave up' of this user runs it"):
        asyncio.run(SupervisorClient(file).list())
    run(file, work)
    assert not socket_path(file).exists()
    with pytest.raises(SupervisorError, match="no 'overweave up' of this user runs it"):
        asyncio.run(SupervisorClient(file).list())


def test_a_socket_of_another_user_is_not_trusted(file, monkeypatch):
    async def work(client):
        there = socket_path(file)
        monkeypatch.setattr(supervisor_client, "socket_path", lambda _: there)
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
        with pytest.raises(SupervisorError, match="expected a socket of this user"):
            await client.list()
        monkeypatch.undo()
        assert there.exists()
        assert supervisor_protocol.socket_path(file).name

    run(file, work)


@pytest.fixture
def elsewhere(monkeypatch):
    """Makes another environment: that of a shell without the variables of a login, or with others."""
    with tempfile.TemporaryDirectory(prefix="ow-") as directory:

        def change():
            monkeypatch.delenv("XDG_RUNTIME_DIR")
            monkeypatch.setattr(tempfile, "tempdir", directory)

        yield change


def test_commands_in_another_environment_find_it(file, elsewhere):
    async def work(client):
        there = socket_path(file)
        elsewhere()
        assert socket_path(file) != there
        for found in (client, SupervisorClient(file)):
            assert names(await found.list()) == ["B1", "B2"]
        with pytest.raises(SupervisorError, match=f"runs it already, process {os.getpid()}$"), supervisor_lock(file):
            pass

    run(file, work)
    assert not record_path(file).exists()
    with pytest.raises(SupervisorError, match="no 'overweave up' of this user runs it"):
        asyncio.run(SupervisorClient(file).list())


def test_a_change_in_another_environment_starts_and_stops_the_brokers_itself(file, elsewhere, capsys):
    async def work(_):
        elsewhere()
        target = Target(read_network(file), Credentials())
        async with processes_of(file, target) as processes:
            assert await processes.running() == {"B1", "B2"}
            await processes.stop("B2")
            assert await processes.running() == {"B1"}

    run(file, work)
    assert "by hand" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"relative.sock\n", b"/nowhere/at.sock\n", b"/dev/null\n", b"\0\n", b"\xff\n"])
def test_a_record_of_something_else_is_ignored(file, content):
    record_path(file).write_bytes(content)
    with pytest.raises(SupervisorError, match="no 'overweave up' of this user runs it"):
        asyncio.run(SupervisorClient(file).list())

    async def work(client):
        assert names(await client.list()) == ["B1", "B2"]

    run(file, work)


def test_it_runs_in_a_directory_that_cannot_be_written(file, monkeypatch):
    def fail(*_):
        raise PermissionError("read only")

    async def work(client):
        assert names(await client.list()) == ["B1", "B2"]

    monkeypatch.setattr(supervisor, "write_atomically", fail)
    run(file, work)


def test_requests_survive_the_wire():
    request = StopProcess("B1", 3.0)
    decoded = msgspec.json.decode(msgspec.json.encode(request), type=supervisor_protocol.SupervisorRequest)
    assert decoded == request


def test_a_directory_that_is_too_long_for_a_socket_is_not_used(file, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("long" * 25)))
    assert socket_path(file).parent == Path("/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert socket_path(file).parent == Path("/run/user/1000")
