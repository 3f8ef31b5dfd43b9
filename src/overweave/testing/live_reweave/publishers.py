"""The publishers of a process: each publishes on a schedule and notes when; their pauses are measured."""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection

from overweave.drivers.tcp.client import Client
from overweave.testing.live_reweave.orders import SLOTS, Places, Window

_TICK_S, _FLUSH_EVERY_S = 0.01, 0.2
#: The interval between two looks at the publishers.
_LOOK_S = 0.005


class PauseMeter:
    """The longest time in which the publications of a client were buffered: `publish` returns meanwhile.

    >>> meter = PauseMeter()
    >>> for now_s, is_paused in ((7.0, False), (7.005, True), (7.01, True), (7.305, False)):
    ...     meter.look(now_s, is_paused=is_paused)
    >>> round(meter.longest_s, 3)
    0.305
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self.longest_s = 0.0

    def look(self, now_s: float, *, is_paused: bool) -> None:
        """Take into account whether publications are buffered now; a pause may have begun any time since the last look."""
        if self._since_s is None and is_paused:
            self._since_s = now_s - _LOOK_S
        if self._since_s is not None:
            self.longest_s = max(self.longest_s, now_s - self._since_s)
        if not is_paused:
            self._since_s = None


class TimedPublisher:
    """One publisher."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._interval_s: float | None = None
        self._due_s = self._last_s = 0.0
        #: When each publication began.
        self._begun_s: list[float] = []
        #: The times of acknowledgements, with the number of publications that are acknowledged.
        self._acknowledged_s: list[float] = []
        self._acknowledged: list[int] = []
        self._longest_wait_s, self._meter = 0.0, PauseMeter()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Advertise, and wait for a rate."""
        await self.client.advertise(f"[from,eq,'{self.client.name}'],[slot,>=,0],[slot,<,{SLOTS}],[n,>=,0]")
        self.tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._flush())]

    async def set_rate(self, rate_hz: float) -> None:
        """Publish at another rate; 0: pause and wait until everything is acknowledged."""
        self._interval_s = None if rate_hz == 0 else 1 / rate_hz
        self._due_s, self._last_s = time.time() + (self._interval_s or 0.0), 0.0
        if self._interval_s is None:
            await self._acknowledge()

    @property
    def longest_pause_s(self) -> float:
        """The longest pause: publications were buffered, or `publish` did not return in time."""
        return max(self._meter.longest_s, self._longest_wait_s)

    def forget_pauses(self) -> None:
        """Begin the measurement again; a pause that lasts counts from its beginning."""
        self._meter.longest_s = self._longest_wait_s = 0.0

    def look(self) -> None:
        """See whether publications are buffered."""
        self._meter.look(time.monotonic(), is_paused=self.client.host.core.view.is_publishing_paused)

    def places(self, window: Window) -> Places:
        """The places of a window."""
        at = len(self._acknowledged) if window.until_s is None else bisect_right(self._acknowledged_s, window.until_s)
        end = self._acknowledged[at - 1] if at else 0
        return Places(min(bisect_left(self._begun_s, window.since_s), end), end)

    def check(self) -> None:
        """Raise the error that has ended the publisher."""
        for task in self.tasks:
            if task.done():
                task.result()

    async def _publish(self) -> None:
        while True:
            now_s = time.time()
            if self._interval_s is None or now_s < self._due_s:
                wait_s = _TICK_S if self._interval_s is None else self._due_s - now_s
                await asyncio.sleep(min(wait_s, 0.1))
                continue
            place = len(self._begun_s)
            self._begun_s.append(now_s)
            await self.client.publish({"from": self.client.name, "slot": place % SLOTS, "n": place // SLOTS})
            ended_s = time.time()
            if self._last_s and self._interval_s is not None:
                self._longest_wait_s = max(self._longest_wait_s, ended_s - self._last_s - self._interval_s)
            self._last_s = ended_s
            if self._interval_s is not None:
                self._due_s += self._interval_s

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            await self._acknowledge()

    async def _acknowledge(self) -> None:
        count = len(self._begun_s)
        await self.client.flush()
        if not self._acknowledged or count >= self._acknowledged[-1]:
            self._acknowledged_s.append(time.time())
            self._acknowledged.append(count)


async def watch_pauses(publishers: Collection[TimedPublisher]) -> None:
    """Look at publishers again and again."""
    while True:
        for publisher in publishers:
            publisher.look()
        await asyncio.sleep(_LOOK_S)
