"""A chain of brokers in a thread, with a spare one, whose brokers start and stop as those of ``overweave up`` do."""

import asyncio
import contextlib
import threading

from overweave.cli import apply_run
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports


class LiveNetwork:
    """The brokers of a network file; also the processes of a change (`overweave.drivers.tcp.apply.Processes`)."""

    def __init__(self, file):
        self.file, self.nodes = file, {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def urls(self):
        return read_network(self.file).urls

    def open(self):
        self._thread.start()
        for id in read_network(self.file).overlay.ids:
            self._call(self._start(id))

    def close(self):
        for id in list(self.nodes):
            self._call(self._stop(id))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def restart(self):
        """Stop all brokers, and start those of the network file: without journals, they know nothing else."""
        for id in list(self.nodes):
            self._call(self._stop(id))
        for id in read_network(self.file).overlay.ids:
            self._call(self._start(id))

    def start_guest(self, id, contact):
        """A broker that joins without being in the tree."""
        self._call(self._start(id, self.urls[contact]))

    def end(self, id):
        """End a broker as a crash does: its neighbours wait for it."""
        self._call(self.nodes.pop(id).stop())

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self, id, contact=None):
        self.nodes[id] = BrokerNode(read_network(self.file).settings(id, contact))
        await self.nodes[id].start()

    async def _stop(self, id):
        """As a process does at SIGTERM."""
        node = self.nodes.pop(id)
        await node.drain()
        node.leave()
        await node.stop()

    # ---- the processes of a change

    async def running(self):
        return frozenset(self.nodes)

    async def start(self, broker, contact):
        await asyncio.to_thread(self._call, self._start(broker, contact))

    async def stop(self, broker):
        await asyncio.to_thread(self._call, self._stop(broker))
        return True


@contextlib.contextmanager
def live_network(directory, monkeypatch, more=""):
    """Brokers B1, B2 and B3 in a chain, and a spare B4 that changes may start."""
    tables = [
        f'[[broker]]\nid = "B{n}"\nlisten = "tcp://127.0.0.1:{port}"\n{"spare = true" if n == 4 else ""}\n'
        for n, port in enumerate(free_ports(4), 1)
    ]
    links = "".join(f'[[link]]\nbetween = ["B{n}", "B{n + 1}"]\n' for n in (1, 2))
    file = directory / "network.toml"
    file.write_text(f"[network]\n{''.join(tables)}{links}{more}")
    network = LiveNetwork(file)

    @contextlib.asynccontextmanager
    async def processes_of(*_):
        yield network

    monkeypatch.setattr(apply_run, "processes_of", processes_of)
    network.open()
    try:
        yield network
    finally:
        network.close()
