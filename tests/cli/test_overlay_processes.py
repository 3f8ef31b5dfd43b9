"""The processes of a change: which brokers are started, and which of them somebody else runs."""

import asyncio
import socket

from overweave.cli import overlay_processes
from overweave.cli.client_options import Credentials
from overweave.cli.operators import Target
from overweave.cli.overlay_processes import SupervisedProcesses, ToldProcesses
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.supervisor_protocol import ProcessEntry

AT = "tcp://127.0.0.1:1"


class Client:
    """A supervisor that runs B1, and B2 until its process has ended."""

    def __init__(self):
        self.states, self.started = {"B1": "ready", "B2": "stopping"}, []

    async def list(self):
        return tuple(ProcessEntry(broker, 1, state) for broker, state in self.states.items())

    async def start(self, broker, contact):
        assert broker not in self.states
        self.states[broker] = "ready"
        self.started.append(broker)


def listening(port):
    """Somebody who listens there."""
    return socket.create_server(("127.0.0.1", port))


def test_a_broker_that_is_stopping_starts_when_its_process_has_ended(monkeypatch):
    monkeypatch.setattr(overlay_processes, "_STOPPING_S", 0.01)

    async def work():
        client = Client()
        processes = SupervisedProcesses(client, {"B2": AT})
        assert await processes.running() == {"B1"}
        await processes.start("B2", AT)
        await asyncio.sleep(0.05)
        assert (await processes.running(), client.started) == ({"B1", "B2"}, [])
        del client.states["B2"]
        await asyncio.sleep(0.05)
        assert (await processes.running(), client.started) == ({"B1", "B2"}, ["B2"])

    asyncio.run(work())


def test_a_broker_that_somebody_else_runs_is_not_started_again(capsys):
    async def work():
        client, (port,) = Client(), free_ports(1)
        processes = SupervisedProcesses(client, {"B3": f"tcp://127.0.0.1:{port}"})
        with listening(port):
            for broker in ("B3", "B4"):
                await processes.start(broker, AT)
            assert await processes.running() == {"B1", "B3", "B4"}
            assert not await processes.stop("B4")
            assert await processes.running() == {"B1", "B3"}
        assert await processes.running() == {"B1"}
        await processes.start("B3", AT)
        assert await processes.running() == {"B1", "B3"}
        await asyncio.sleep(0.05)
        assert client.started == ["B3"]

    asyncio.run(work())
    err = capsys.readouterr().err
    assert "broker B3 does not answer, and 'overweave up' does not start it: something else listens at tcp://" in err
    assert "broker B4 does not answer, and 'overweave up' does not start it: it is not in the network file" in err
    assert "broker B4 has left the overlay: stop it" in err


def test_without_a_supervisor_a_broker_is_named_again_when_it_has_stopped_again(tmp_path, capsys):
    async def work():
        (port,) = free_ports(1)
        file = tmp_path / "network.toml"
        file.write_text(f'[network]\n[[broker]]\nid = "B1"\nlisten = "tcp://127.0.0.1:{port}"\n')
        processes = ToldProcesses(file, Target(read_network(file), Credentials()))
        assert await processes.running() == set()
        await processes.start("B1", AT)
        assert await processes.running() == {"B1"}
        with listening(port):
            assert await processes.running() == {"B1"}
        assert await processes.running() == set()
        await processes.stop("B1")
        await processes.start("B1", AT)
        with listening(port):
            assert await processes.running() == {"B1"}

    asyncio.run(work())
    assert capsys.readouterr().err.count(f"start broker B1, unless it runs: overweave broker --config {tmp_path}") == 2
