"""The drain of a broker's own clients before it stops."""

import asyncio
from collections.abc import Sequence

from overweave.contract.requests import ClientEntry
from overweave.drivers.drain import Drain
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.operator_requests import OperatorRequests

#: The clients that move per second.
_RATE_HZ = 100.0


class _OwnClients:
    """The clients of this broker as a `DrainPort`."""

    def __init__(self, requests: OperatorRequests) -> None:
        self._requests = requests

    async def clients(self) -> list[ClientEntry]:
        """See `DrainPort.clients`."""
        return self._requests.clients()

    async def migrate(self, client: str, to: str) -> str | None:
        """See `DrainPort.migrate`."""
        return await self._requests.migrate(client, to)


async def drain_clients(requests: OperatorRequests, neighbours: Sequence[str], limit_s: float, log: Log) -> None:
    """Move all clients to neighbours, equal numbers to each, until the time limit; their own loads are not known here."""
    if not neighbours:
        log.warning("drain-failed", text="no neighbour is connected; clients stay")
        return
    drain = Drain(dict.fromkeys(neighbours, 0), _RATE_HZ)
    log.info("drain", clients=len(requests.clients()), limit_s=limit_s)
    try:
        async with asyncio.timeout(limit_s):
            await drain.run(_OwnClients(requests))
    except TimeoutError:
        log.warning("drain-timeout", text=f"expected all clients to move within {limit_s:g} s")
    for client, reason in drain.stayed.items():
        log.warning("client-stayed", client=client, text=reason)
    log.info("drained", moved=len(drain.moved), stayed=len(requests.clients()))
