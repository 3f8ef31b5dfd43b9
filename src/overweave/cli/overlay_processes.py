"""Broker processes of a network that changes: those of ``overweave up``, or others that the operator starts and stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from overweave.cli.operators import Target
from overweave.cli.terminal import say
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.apply import Processes
from overweave.drivers.tcp.supervisor_client import SupervisorClient
from overweave.drivers.tcp.supervisor_protocol import SupervisorError

_CONNECT_S = 1.0
#: The interval at which a process that stops is looked at, before it is started again.
_STOPPING_S = 0.2


class SupervisedProcesses:
    """Processes of ``overweave up``."""

    def __init__(self, client: SupervisorClient, urls: Mapping[str, str]) -> None:
        self._client, self._urls = client, urls
        #: Brokers start at the same time.
        self._starts: dict[str, asyncio.Task[None]] = {}
        #: Those that somebody else runs, and that did not answer.
        self._foreign: set[str] = set()

    async def running(self) -> frozenset[str]:
        """See `Processes.running`."""
        for broker, task in list(self._starts.items()):
            if task.done():
                del self._starts[broker]
                await task  # an error of the supervisor
        self._foreign = {broker for broker in self._foreign if await self._is_foreign(broker)}
        own = frozenset(each.broker for each in await self._client.list() if each.state != "stopping")
        return own | self._starts.keys() | self._foreign

    async def start(self, broker: str, contact: str) -> None:
        """See `Processes.start`. One that runs without ``overweave up`` is not started again."""
        if await self._is_foreign(broker):
            at = f"something else listens at {self._urls[broker]}" if broker in self._urls else "it is not in the network file"
            say(f"broker {broker} does not answer, and 'overweave up' does not start it: {at}")
            self._foreign.add(broker)
        else:
            self._starts[broker] = asyncio.create_task(self._start(broker, contact))

    async def _start(self, broker: str, contact: str) -> None:
        while broker in await self._listed():  # it stops
            await asyncio.sleep(_STOPPING_S)
        await self._client.start(broker, contact)

    async def _listed(self) -> frozenset[str]:
        return frozenset(each.broker for each in await self._client.list())

    async def _is_foreign(self, broker: str) -> bool:
        """Whether somebody else runs a broker of the network file here, or one that the file does not have."""
        if broker in await self._listed():
            return False
        return broker not in self._urls or await _accepts(self._urls[broker])

    async def end(self) -> None:
        """Wait for no more answers; brokers that start go on."""
        for task in self._starts.values():
            task.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)

    async def stop(self, broker: str) -> bool:
        """See `Processes.stop`."""
        if broker in self._foreign:
            self._foreign.discard(broker)
            say(f"broker {broker} has left the overlay: stop it")
            return False
        await self._client.stop(broker)
        return True


class ToldProcesses:
    """Processes that the operator starts and stops: each is named once, and again when it has stopped since then."""

    def __init__(self, file: Path, network: Target) -> None:
        self._file, self._urls = file, dict(network.network.urls)
        self._started: set[str] = set()
        self._stopped: set[str] = set()

    async def running(self) -> frozenset[str]:
        """See `Processes.running`."""
        candidates = [id for id in self._urls if id not in self._stopped]
        answers = await asyncio.gather(*(_accepts(self._urls[id]) for id in candidates))
        found = frozenset(id for id, answer in zip(candidates, answers, strict=True) if answer)
        self._started -= found  # one that stops again is named again
        return found | self._started

    async def start(self, broker: str, contact: str) -> None:
        """See `Processes.start`."""
        say(f"start broker {broker}, unless it runs: overweave broker --config {self._file} --id {broker} --join {contact}")
        self._started.add(broker)
        self._stopped.discard(broker)

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
        processes = SupervisedProcesses(client, network.network.urls)
        try:
            yield processes
        finally:
            await processes.end()
