"""``overweave up`` with brokers that come and go on request: clients of a started one are served, and moved when it stops."""

import asyncio
import signal
import subprocess
import sys
import tempfile

import pytest

from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.drivers.tcp.supervisor_protocol import SupervisorError
from overweave.testing.live import until


def network_file(directory):
    tables = []
    for number, port in enumerate(free_ports(3), 1):
        tables += ["[[broker]]", f'id = "B{number}"', f'listen = "tcp://127.0.0.1:{port}"', "spare = true" if number == 3 else ""]
    file = directory / "network.toml"
    file.write_text("\n".join(["[network]", 'state = "state"', *tables, "[[link]]", 'between = ["B1", "B2"]']) + "\n")
    return file


async def scenario(file, up):
    supervisor, urls = SupervisorClient(file), read_network(file).urls
    await until(lambda: (file.parent / "ready").exists() or up.poll() is not None, 120, "that the network is up")
    assert up.poll() is None
    await supervisor.start("B3", join=urls["B1"])
    assert [each.broker for each in await supervisor.list()] == ["B1", "B2", "B3"]
    async with connect(urls["B3"], name="s") as subscriber, connect(urls["B2"], name="p") as publisher:
        await publisher.advertise("[n,>=,0]")
        async with subscriber.subscribe("[n,>=,0]") as numbers:
            received = aiter(numbers)
            for number in range(3):
                await publisher.publish({"n": number})
            assert [(await asyncio.wait_for(anext(received), 20))["n"] for _ in range(3)] == [0, 1, 2]
            assert "B3" in list(subscriber.attachments[0].book) or subscriber.attachments[0].broker == "B3"
            await supervisor.stop("B3", drain_s=20.0)
            assert subscriber.attachments[0].broker == "B1", "it was moved to the contact"
            assert [each.broker for each in await supervisor.list()] == ["B1", "B2"]
            await publisher.publish({"n": 3})
            assert (await asyncio.wait_for(anext(received), 20))["n"] == 3
    second = subprocess.run([*COMMAND, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert (second.returncode, f"'overweave up' runs it already, process {up.pid}" in second.stderr) == (1, True), second.stderr
    with pytest.raises(SupervisorError, match="it does not run"):
        await supervisor.stop("B3")


COMMAND = [sys.executable, "-m", "overweave", "up"]


@pytest.fixture
def runtime_directory():
    """A short path: that of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        yield directory


def test_a_broker_is_started_and_stopped_while_clients_talk(tmp_path, runtime_directory, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_directory)
    file = network_file(tmp_path)
    with subprocess.Popen([*COMMAND, str(file), "--ready-file", str(tmp_path / "ready")], stdout=subprocess.DEVNULL) as up:
        try:
            asyncio.run(asyncio.wait_for(scenario(file, up), 120))
        finally:
            up.send_signal(signal.SIGTERM)
            assert up.wait(30) == 0
