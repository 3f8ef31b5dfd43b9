"""Broker processes of a network that changes: those of ``overweave up``, or others that the operator starts and stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from overweave.cli.operators import Target
from overweave.cli.terminal import say
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.apply import Processes
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.drivers.tcp.supervisor_protocol import SupervisorError

_CONNECT_S = 1.0


class SupervisedProcesses:
    """Processes of ``overweave up``."""

    def __init__(self, client: SupervisorClient) -> None:
        self._client = client
        #: Brokers start at the same time.
        self._starts: dict[str, asyncio.Task[None]] = {}

    async def running(self) -> frozenset[str]:
        """See `Processes.running`."""
        for broker, task in list(self._starts.items()):
            if task.done():
                del self._starts[broker]
                await task  # an error of the supervisor
        return frozenset(each.broker for each in await self._client.list() if each.state != "stopping") | self._starts.keys()

    async def start(self, broker: str, contact: str) -> None:
        """See `Processes.start`."""
        self._starts[broker] = asyncio.create_task(self._client.start(broker, contact))

    async def end(self) -> None:
        """Wait for no more answers; brokers that start go on."""
        for task in self._starts.values():
            task.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)

    async def stop(self, broker: str) -> bool:
        """See `Processes.stop`."""
        await self._client.stop(broker)
        return True


class ToldProcesses:
    """Processes that the operator starts and stops: each is named once."""

    def __init__(self, file: Path, network: Target) -> None:
        self._file, self._urls = file, dict(network.network.urls)
        self._started: set[str] = set()
        self._stopped: set[str] = set()

    async def running(self) -> frozenset[str]:
        """See `Processes.running`."""
        candidates = [id for id in self._urls if id not in self._stopped]
        answers = await asyncio.gather(*(_accepts(self._urls[id]) for id in candidates))
        return frozenset(id for id, answer in zip(candidates, answers, strict=True) if answer) | self._started

    async def start(self, broker: str, contact: str) -> None:
        """See `Processes.start`."""
        say(f"start broker {broker}: overweave broker --config {self._file} --id {broker} --join {contact}")
        self._started.add(broker)

    async def stop(self, broker: str) -> bool:
        """See `Processes.stop`."""
        say(f"broker {broker} has left the overlay: stop it")
        self._stopped.add(broker)
        self._started.discard(broker)
        return False


async def _accepts(url: str) -> bool:
    """Whether somebody listens at a URL."""
    host, port, _ = parse_address(url)
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # also a TimeoutError
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


@contextlib.asynccontextmanager
async def processes_of(file: Path, network: Target) -> AsyncIterator[Processes]:
    """The processes of the brokers of a network file."""
    client = SupervisorClient(file)
    try:
        await client.list()
    except SupervisorError:
        say("no 'overweave up' of this user runs the network file here: brokers are started and stopped by hand")
        yield ToldProcesses(file, network)
    else:
        processes = SupervisedProcesses(client)
        try:
            yield processes
        finally:
            await processes.end()
