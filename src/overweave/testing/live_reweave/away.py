"""Clients that are away during a change: their connections go through relays that are cut, and their brokers stop meanwhile."""

import asyncio
import time
from pathlib import Path

import msgspec

from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.testing.chaos.proxy import Route
from overweave.testing.live_reweave.commands import Run
from overweave.testing.live_reweave.network import ClientProcess, LiveNetwork
from overweave.testing.live_reweave.orders import ClientOrders, Command, Subscriber

#: How long some are away; the others return when their broker has stopped.
_BRIEFLY_S, _FOR_EVER_S, _RETURN_S, _FAILOVER_S = 3.0, 1e6, 90.0, 30.0


class Away:
    """Clients at brokers that a plan stops: half of them return soon, the others after it, to an address where nobody is."""

    def __init__(self, network: LiveNetwork, count: int) -> None:
        self._network, self._count = network, count
        self._servers: list[asyncio.Server] = []
        self._brief: list[Route] = []
        self._long: list[Route] = []
        self._processes: list[ClientProcess] = []

    async def enter(self, plan: Path) -> None:
        """Connect them to brokers that will stop."""
        ended = await Run(["apply", str(plan), "--network", str(self._network.file), "--dry-run", "--json"]).end()
        if ended.status:
            raise OverweaveError(f"dry run: {ended.text}")
        stopped = msgspec.json.decode(ended.output)["difference"]["stopped"]
        urls = read_network(self._network.file).urls
        brief: list[Subscriber] = []
        long: list[Subscriber] = []
        for number in range(self._count):
            route = Route(parse_address(urls[stopped[number % len(stopped)]]).port)
            server = await asyncio.start_server(route.accept, "127.0.0.1", 0)
            self._servers.append(server)
            url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            client = Subscriber(f"away{number}", url, self._network.interests(number))
            (brief if number % 2 else long).append(client)
            (self._brief if number % 2 else self._long).append(route)
        for name, clients, may_lose in (("long away", long, True), ("briefly away", brief, False)):
            if clients:
                orders = ClientOrders(subscribers=tuple(clients), may_lose=may_lose, failover_s=_FAILOVER_S)
                self._processes.append(await self._network.add(name, orders))
        await asyncio.sleep(2.0)

    def leave(self) -> None:
        """Cut their connections."""
        for routes, time_s in ((self._brief, _BRIEFLY_S), (self._long, _FOR_EVER_S)):
            for route in routes:
                route.inject("cut", time_s)

    async def result(self) -> tuple[bool, str]:
        """Let the others return, and wait until all have their subscriptions again."""
        for route in self._long:
            route.inject("cut", -_FOR_EVER_S)
        start_s = time.monotonic()
        while True:
            told, open_ = [], []
            for process in self._processes:
                found = await process.ask(Command(windows=True))
                told.append(found.told)
                closed = {window for window in found.windows if window.until_s is not None}
                open_.append(len(found.windows) - len(closed))
            filters = self._network.size.filters
            expected = [len(process.orders.subscribers) * filters for process in self._processes]
            is_back = open_ == expected and told[0] == expected[0]
            if is_back or time.monotonic() - start_s > _RETURN_S:
                break
            await asyncio.sleep(0.5)
        text = f"{told[0]} of {expected[0]} subscriptions told of the gap, {sum(told[1:])} of those briefly away"
        return is_back, f"{text}; after {time.monotonic() - start_s:.0f} s"
