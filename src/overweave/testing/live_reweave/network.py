"""A live network for plans: brokers, processes of publishers and subscribers, and the check of what arrived."""

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from overweave.drivers.tcp.monitor import Snapshot, fetch_snapshot
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.testing.counts import Verdict
from overweave.testing.line_process import LineProcess
from overweave.testing.live_reweave.brokers import Brokers
from overweave.testing.live_reweave.orders import SLOTS, ClientOrders, Command, Interest, Places, Response, Subscriber, Window

_MODULE = "overweave.testing.live_reweave.client"
#: The time limit for publications to arrive that are acknowledged.
_ARRIVE_S = 30.0
_PUBLISHERS_EACH, _SUBSCRIBERS_EACH = 20, 100
#: Publishers of one group have subscribers in common.
GROUPS = 4


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a network and its traffic."""

    brokers: int
    clients: int
    filters: int
    publishers: int
    rate_hz: float
    away: int = 0

    @property
    def publisher_names(self) -> list[str]:
        """The names of the publishers."""
        return [f"p{number}" for number in range(self.publishers)]


class Measured(msgspec.Struct, frozen=True):
    """Measurements of clients since the last time."""

    pauses_s: tuple[float, ...]
    delay_p99_s: float
    delay_max_s: float
    deliveries: int
    churned: int
    told: int


class ClientProcess:
    """A process of clients."""

    def __init__(self, name: str, orders: ClientOrders) -> None:
        self.name, self.orders = name, orders
        self._process = LineProcess(_MODULE, name)

    async def start(self) -> None:
        """Start it, and wait until its clients are in force."""
        await self._process.start(msgspec.json.encode(self.orders))

    async def ask(self, command: Command) -> Response:
        """The response to a command."""
        return msgspec.json.decode(await self._process.ask(msgspec.json.encode(command)), type=Response)

    async def end(self) -> None:
        """Let its clients leave."""
        await self.ask(Command(end=True))
        await self._process.wait()

    async def kill(self) -> None:
        """End it as a crash would."""
        await self._process.kill()


class LiveNetwork:
    """Clients of running brokers."""

    def __init__(self, file: Path, brokers: Brokers, size: Size, seed: int) -> None:
        self.file, self.brokers, self.size = file, brokers, size
        self._dice = random.Random(seed)
        self._processes: list[ClientProcess] = []

    # ---- clients

    async def enter(self) -> None:
        """Start all clients at random brokers: first those that publish, then those that subscribe."""
        size, urls = self.size, list(read_network(self.file).running_urls.values())
        names = size.publisher_names
        placed = [(name, self._dice.choice(urls)) for name in names]
        count = -(-len(placed) // _PUBLISHERS_EACH)
        publishers = [ClientOrders(publishers=tuple(placed[at::count])) for at in range(count)]
        await asyncio.gather(*(self.add(f"publishers {number}", each) for number, each in enumerate(publishers)))
        subscribers = [
            Subscriber(f"s{number}", self._dice.choice(urls), self.interests(number)) for number in range(size.clients)
        ]
        groups = [subscribers[at : at + _SUBSCRIBERS_EACH] for at in range(0, len(subscribers), _SUBSCRIBERS_EACH)]
        for number, group in enumerate(groups):
            await self.add(f"subscribers {number}", ClientOrders(subscribers=tuple(group), seed=number))

    def interests(self, number: int) -> tuple[Interest, ...]:
        """The filters of a client: publishers of its group mostly."""
        names = self.size.publisher_names
        own = names[number % GROUPS :: GROUPS] or names
        found = []
        for _ in range(self.size.filters):
            low = self._dice.randrange(SLOTS - 1)
            found.append(
                Interest(self._dice.choice(own if self._dice.random() < 0.9 else names), low, low + self._dice.choice((1, 2)))
            )
        return tuple(found)

    async def add(self, name: str, orders: ClientOrders) -> ClientProcess:
        """Start a process of clients."""
        process = ClientProcess(name, orders)
        self._processes.append(process)
        await process.start()
        return process

    async def ask_all(self, command: Command) -> list[Response]:
        """The responses of all processes."""
        return list(await asyncio.gather(*(each.ask(command) for each in self._processes)))

    async def publish(self, rate_hz: float, weights: Sequence[float] = ()) -> None:
        """Publish at a rate from now on, in equal shares or by weight; 0: pause until everything is acknowledged."""
        names = self.size.publisher_names
        shares = weights or [1.0] * len(names)
        rates = {name: rate_hz * share / sum(shares) for name, share in zip(names, shares, strict=True)}
        await self.ask_all(Command(rates=rates))

    async def churn(self, count: int) -> None:
        """Set the number of all subscriptions that come and go."""
        takers = [each for each in self._processes if each.orders.subscribers and not each.orders.may_lose]
        counts = [count // len(takers) + (at < count % len(takers)) for at in range(len(takers))]
        await asyncio.gather(
            *(each.ask(Command(churn=own)) for each, own in zip(takers, counts, strict=True) if own or not count)
        )

    async def measured(self) -> Measured:
        """The measurements since the last call."""
        found = await self.ask_all(Command(measure=False))
        await self.ask_all(Command(measure=True))
        return Measured(
            tuple(pause for each in found for pause in each.pauses_s),
            max(each.delay_p99_s for each in found),
            max(each.delay_max_s for each in found),
            sum(each.deliveries for each in found),
            sum(each.churned for each in found),
            sum(each.told for each in found),
        )

    # ---- the oracle

    async def check(self) -> Verdict:
        """Pause publishers, and wait until everything acknowledged has arrived, or it is late."""
        await self.publish(0.0)
        verdict, end_s = await self._compared(), time.monotonic() + _ARRIVE_S
        while verdict.lost and time.monotonic() < end_s:
            await asyncio.sleep(0.5)
            verdict = await self._compared()
        return verdict

    async def _compared(self) -> Verdict:
        windows = sorted({window for each in await self.ask_all(Command(windows=True)) for window in each.windows}, key=str)
        places = await self._places(windows)
        verdict = Verdict()
        for each in self._processes:
            if each.orders.subscribers:
                own = set((await each.ask(Command(windows=True))).windows)
                answer = await each.ask(Command(check=tuple((window, places[window]) for window in own)))
                assert answer.verdict is not None
                verdict.add(answer.verdict)
        return verdict

    async def _places(self, windows: Iterable[Window]) -> dict[Window, Places]:
        found: dict[Window, Places] = {}
        for each in self._processes:
            names = {name for name, _ in each.orders.publishers}
            own = tuple(window for window in windows if window.publisher in names)
            found |= dict(zip(own, (await each.ask(Command(resolve=own))).places, strict=True))
        return found

    # ---- brokers

    async def snapshots(self) -> dict[str, Snapshot]:
        """What each running broker says of itself."""
        network = read_network(self.file)
        ids = list(network.urls)
        assert network.metrics_port is not None
        running = await self.brokers.running()
        found = await asyncio.gather(*(fetch_snapshot(f"127.0.0.1:{network.metrics_port + 1 + ids.index(id)}") for id in running))
        return dict(zip(running, found, strict=True))

    async def inputs_hz(self, seconds: float) -> dict[str, float]:
        """The publications per second that arrive at each broker."""
        before, start_s = await self.snapshots(), time.monotonic()
        await asyncio.sleep(seconds)
        after, lasted_s = await self.snapshots(), time.monotonic() - start_s
        return {
            id: (each.statistics.publications_in - before[id].statistics.publications_in) / lasted_s
            for id, each in after.items()
            if id in before
        }

    # ---- the end

    async def leave(self) -> None:
        """Let all clients leave."""
        await asyncio.gather(*(each.end() for each in self._processes))
        self._processes.clear()

    async def left(self, within_s: float) -> list[str]:
        """What is left in the tables of brokers when all clients have left."""
        end_s = time.monotonic() + within_s
        while True:
            try:
                found = [
                    f"{id} has {tables}, unsettled {each.statistics.unsettled}"
                    for id, each in (await self.snapshots()).items()
                    if (tables := {name: size for name, size in each.statistics.tables.items() if size})
                    or any(each.statistics.unsettled.values())
                ]
            except OverweaveError as error:
                found = [str(error)]
            if not found or time.monotonic() > end_s:
                return found
            await asyncio.sleep(0.5)

    async def kill(self) -> None:
        """End the processes that are left."""
        await asyncio.gather(*(each.kill() for each in self._processes))
