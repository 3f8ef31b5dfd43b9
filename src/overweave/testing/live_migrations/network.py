"""A live network for migrations: brokers with journals, publishers and subscribers, each in a process of its own."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from overweave.contract.overlay_state import OverlayRecord
from overweave.contract.requests import ClientEntry
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.journal import JournalFile, read_journal
from overweave.drivers.tcp.monitor import MonitorError, fetch_snapshot
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import OverweaveError
from overweave.overlay.graph import Overlay
from overweave.testing.counts import Due, Verdict
from overweave.testing.line_process import LineProcess
from overweave.testing.live import BrokerProcess, network_settings
from overweave.testing.live_migrations.client import ClientOrders, Command, Response

#: The time limit for publications to arrive that are acknowledged.
ARRIVE_S = 20.0
#: How long brokers keep the session of a client that has crashed.
EXPIRY_S = 10.0
#: The directory of the journals, in that of the network.
STATE = "state"


class ClientProcess:
    """A process of clients, with the numbers that it must get by life of a publisher."""

    def __init__(self, orders: ClientOrders) -> None:
        self.orders = orders
        #: By life: the first number published when its subscriptions were in force.
        self.first: dict[str, int] = {}
        self._process = LineProcess("overweave.testing.live_migrations.client", orders.names[0])

    @property
    def name(self) -> str:
        """The name of its first client."""
        return self.orders.names[0]

    @property
    def life(self) -> str:
        """Its present life as a publisher."""
        return f"{self.name}/{self.orders.life}"

    async def start(self) -> None:
        """Start the process, and wait until its clients are in force."""
        await self._process.start(msgspec.json.encode(self.orders))

    async def ask(self, command: Command) -> Response:
        """The response to a command."""
        return msgspec.json.decode(await self._process.ask(msgspec.json.encode(command)), type=Response)

    @property
    def exit_status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.exit_status

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._process.kill()

    async def end(self) -> None:
        """Let its clients leave."""
        await self.ask(Command(end=True))
        await self._process.wait()

    def acknowledged(self) -> int:
        """The numbers below this one are acknowledged."""
        with contextlib.suppress(FileNotFoundError):
            lines = Path(self.orders.log).read_bytes().split(b"\n")
            return int(lines[-2]) if len(lines) > 1 else 0
        return 0


def left_in_journal(directory: Path, broker: str) -> str | None:
    """What is wrong with the journal of a broker when all clients have left; the broker may run."""
    if not JournalFile(directory, broker).path.exists():
        return f"{broker} has no journal in {directory}"
    left = [id for (_, id), value in read_journal(directory, broker).items() if not isinstance(value, OverlayRecord)]
    return f"the journal of {broker} has {len(left)} registrations: {left[:3]}" if left else None


class LiveNetwork:
    """Brokers and clients; an asynchronous context manager."""

    def __init__(self, overlay: Overlay, directory: Path, routing: str = "filter") -> None:
        self.overlay, self.directory = overlay, directory
        settings = network_settings(overlay, routing=routing, state=directory / STATE, session_expiry_s=EXPIRY_S)
        ports = dict(zip(overlay.ids, free_ports(len(overlay.ids)), strict=True))
        self._metrics = {id: f"127.0.0.1:{port}" for id, port in ports.items()}
        self.settings = {id: msgspec.structs.replace(each, metrics=self._metrics[id]) for id, each in settings.items()}
        self.brokers = {id: BrokerProcess(each) for id, each in self.settings.items()}
        self.clients: dict[str, ClientProcess] = {}
        #: By life: the numbers below are acknowledged, and must have arrived.
        self._ended: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            await asyncio.to_thread(broker.wait_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients.values():
            await client.kill()
        for broker in self.brokers.values():
            await asyncio.to_thread(broker.stop)

    # ---- clients

    async def add_publisher(self, name: str, broker: str, kinds: Iterable[str]) -> None:
        """Start a publisher of all kinds."""
        await self._start_publisher(name, broker, tuple(kinds), 0)

    async def add_subscribers(self, names: Iterable[str], broker: str, kinds: Iterable[str]) -> None:
        """Start a process of subscribers, one kind each in turn."""
        url = self.settings[broker].listen
        client = ClientProcess(ClientOrders(names=tuple(names), url=url, kinds=tuple(kinds), publishes=False))
        self.clients[client.name] = client
        await client.start()

    async def kill_client(self, name: str) -> None:
        """Kill the process of a client."""
        client = self.clients[name]
        await client.kill()
        if client.orders.publishes:
            self._ended[client.life] = client.acknowledged()

    async def return_client(self, name: str, broker: str) -> None:
        """Start a killed client again: it must get what is published from when its subscription is in force."""
        orders = self.clients[name].orders
        if orders.publishes:
            await self._start_publisher(name, broker, orders.kinds, orders.life + 1)
            return
        await self.add_subscribers(orders.names, broker, orders.kinds)
        client = self.clients[name]
        client.first = dict.fromkeys(self._ended, 1 << 62)
        for publisher in self._publishers():
            client.first[publisher.life] = (await publisher.ask(Command())).published

    async def _start_publisher(self, name: str, broker: str, kinds: tuple[str, ...], life: int) -> None:
        log, url = str(self.directory / f"{name}-{life}.log"), self.settings[broker].listen
        client = ClientProcess(ClientOrders(names=(name,), url=url, kinds=kinds, publishes=True, life=life, log=log))
        self.clients[name] = client
        await client.start()

    def _publishers(self) -> list[ClientProcess]:
        return [each for each in self.clients.values() if each.orders.publishes]

    async def publish(self, rate_hz: float) -> None:
        """Publish at a rate from now on, divided among the publishers; 0: flush, and pause."""
        publishers = self._publishers()
        await asyncio.gather(*(each.ask(Command(rate_hz=rate_hz / len(publishers))) for each in publishers))

    async def published(self) -> int:
        """The number of publications so far, of all kinds; of the present life of each publisher."""
        each = [((await publisher.ask(Command())).published, len(publisher.orders.kinds)) for publisher in self._publishers()]
        return sum(numbers * kinds for numbers, kinds in each)

    async def check(self) -> Verdict:
        """Pause the publishers, and wait until everything acknowledged has arrived, or it is late."""
        await self.publish(0.0)
        ends = self._ended | {each.life: each.acknowledged() for each in self._publishers()}
        verdict, end_s = await self._compare(ends), time.monotonic() + ARRIVE_S
        while verdict.lost and time.monotonic() < end_s:
            await asyncio.sleep(0.2)
            verdict = await self._compare(ends)
        return verdict

    async def _compare(self, ends: Mapping[str, int]) -> Verdict:
        subscribers = [each for each in self.clients.values() if not each.orders.publishes]
        verdict = Verdict()
        for each in subscribers:
            due = {life: Due(each.first.get(life, 0), end) for life, end in ends.items()}
            response = await each.ask(Command(check=dict.fromkeys(each.orders.kinds, due)))
            assert response.verdict is not None
            verdict.add(response.verdict)
        return verdict

    # ---- operators

    @contextlib.asynccontextmanager
    async def operator(self, broker: str) -> AsyncIterator[Operator]:
        """An operator of one broker."""
        async with Operator(parse_address(self.settings[broker].listen), None) as operator:
            yield operator

    async def move(self, client: str, source: str, to: str) -> str | None:
        """Order a migration and wait for its result; the reason if the client stays."""
        async with self.operator(source) as operator:
            return await operator.migrate(client, to)

    async def homes(self) -> dict[str, list[str]]:
        """The brokers that each client is connected to, and ``?`` if one cannot be asked."""
        found: dict[str, list[str]] = {name: [] for client in self.clients.values() for name in client.orders.names}
        for broker in self.brokers:
            try:
                for entry in await self._entries(broker):
                    found[entry.name].append(broker if entry.connected and entry.moving_to is None else f"{broker}?")
            except OverweaveError:
                found = {name: [*homes, "?"] for name, homes in found.items()}
        return found

    async def settled_homes(self, within_s: float) -> dict[str, str]:
        """The broker of each client once each is connected to one, and no order is left."""
        end_s = time.monotonic() + within_s
        while True:
            homes = await self.homes()
            if all(len(each) == 1 and not each[0].endswith("?") for each in homes.values()):
                return {name: broker for name, (broker,) in homes.items()}
            if time.monotonic() > end_s:
                late = {name: each for name, each in homes.items() if len(each) != 1 or each[0].endswith("?")}
                raise OverweaveError(f"clients without one home after {within_s:g} s: {late}")
            await asyncio.sleep(0.1)

    def ended(self) -> list[str]:
        """The processes of clients that have ended by themselves."""
        codes = {client.name: client.exit_status for client in self.clients.values()}
        return [f"the process of {name} ended with {code}" for name, code in codes.items() if code is not None]

    async def _entries(self, broker: str) -> list[ClientEntry]:
        async with self.operator(broker) as operator:
            return await operator.clients()

    # ---- the end

    async def leave(self, within_s: float = 60.0) -> list[str]:
        """Let all clients leave; what is left in tables and journals then."""
        await asyncio.gather(*(client.end() for client in self.clients.values()))
        self.clients.clear()
        end_s = time.monotonic() + within_s
        while left := [text for id in self.brokers async for text in self._left(id)]:
            if time.monotonic() > end_s:
                return left
            await asyncio.sleep(0.5)
        return []

    async def _left(self, broker: str) -> AsyncIterator[str]:
        try:
            snapshot = await fetch_snapshot(self._metrics[broker])
        except MonitorError as error:
            yield f"{broker}: {error}"
            return
        left = {name: size for name, size in snapshot.statistics.tables.items() if size}
        if left or snapshot.migrations or any(snapshot.statistics.unsettled.values()):
            yield f"{broker} has {left}, unsettled {snapshot.statistics.unsettled}, migrations {snapshot.migrations}"
        if text := left_in_journal(self.directory / STATE, broker):
            yield text

    def mistakes(self) -> list[str]:
        """The errors that brokers have logged."""
        found = []
        for id, broker in self.brokers.items():
            said = broker.errors()
            at = min(
                (at for each in ("Traceback", "AssertionError", "never retrieved") if (at := said.find(each)) >= 0), default=-1
            )
            if at >= 0:
                found.append(f"{id}: {said[max(at - 200, 0) : at + 2000]}")
        return found
