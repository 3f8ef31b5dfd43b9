"""A drain: all clients of one broker move to other brokers at a given rate; failed ones are tried a second time."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from overweave.contract.requests import ClientEntry
from overweave.errors import OverweaveError

#: The attempts to move one client.
ATTEMPTS = 2
#: The most migrations in progress.
_IN_PROGRESS_MAX = 256
#: The interval between two lists of clients, and how long a client that has moved may stay in the list.
_LIST_S, _DETACH_S = 0.25, 40.0
#: The delay before the second attempt: the client may reconnect meanwhile.
_RETRY_S = 1.0


class DrainPort(Protocol):
    """The broker to drain."""

    async def clients(self) -> list[ClientEntry]:
        """All clients, without operators."""

    async def migrate(self, client: str, to: str) -> str | None:
        """Order a migration and wait for its end; the reason if the client stays."""


class Drain:
    """The drain of one broker; ``loads`` has the number of clients of each broker that may get some.

    >>> drain = Drain({"B2": 5, "B3": 3}, 100.0)
    >>> [drain.next_target(None) for _ in range(4)]
    ['B3', 'B3', 'B2', 'B3']
    """

    def __init__(self, loads: Mapping[str, int], rate_hz: float, on_progress: Callable[["Drain"], None] = lambda _: None) -> None:
        self._loads, self._interval_s, self._on_progress = dict(loads), 1.0 / rate_hz, on_progress
        #: The clients that moved, with their brokers, and the reasons why others stayed so far.
        self.moved: dict[str, str] = {}
        self.stayed: dict[str, str] = {}
        #: The clients found so far.
        self.found: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._last_target: dict[str, str] = {}
        self._moved_s: dict[str, float] = {}
        self._failed_s: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._next_s = 0.0

    def next_target(self, avoided: str | None) -> str:
        """The broker with the fewest clients, which has one more now; ``avoided`` only if there is no other."""
        choice = [each for each in self._loads if each != avoided] or list(self._loads)
        target = min(choice, key=lambda each: (self._loads[each], list(self._loads).index(each)))
        self._loads[target] += 1
        return target

    async def run(self, port: DrainPort) -> bool:
        """Move all clients; whether none is left. Cancelled, it orders no more migrations."""
        try:
            while (listed := await port.clients()) or self._tasks:
                pending = self._pending(listed)
                if not (pending or self._tasks or self._awaited(listed)):
                    names = {entry.name for entry in listed}
                    self.stayed = {name: reason for name, reason in self.stayed.items() if name in names}
                    return False
                for client in pending:
                    await self._pace()
                    self._tasks[client] = asyncio.get_running_loop().create_task(self._move(port, client))
                await asyncio.sleep(_LIST_S)
        finally:
            await _cancel(self._tasks.values())
        return True

    def _pending(self, listed: Iterable[ClientEntry]) -> list[str]:
        """The clients to move now; a client that came back after its migration is moved again."""
        now_s, pending = time.monotonic(), []
        for entry in listed:
            name = entry.name
            self.found.add(name)
            if name in self._tasks or now_s - self._moved_s.get(name, -_DETACH_S) < _DETACH_S:
                continue
            if self._attempts.get(name, 0) < ATTEMPTS and now_s - self._failed_s.get(name, -_RETRY_S) >= _RETRY_S:
                pending.append(name)
        return pending

    def _awaited(self, listed: Iterable[ClientEntry]) -> bool:
        """Whether clients that have moved are about to leave this broker, or others get a second attempt."""
        now_s = time.monotonic()
        return any(
            now_s - self._moved_s.get(entry.name, -_DETACH_S) < _DETACH_S or self._attempts.get(entry.name, 0) < ATTEMPTS
            for entry in listed
        )

    async def _pace(self) -> None:
        """Wait for the next migration's time, and until few enough are in progress."""
        now_s = time.monotonic()
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)
        self._next_s = max(self._next_s, now_s) + self._interval_s
        while len(self._tasks) >= _IN_PROGRESS_MAX:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)

    async def _move(self, port: DrainPort, client: str) -> None:
        to = self.next_target(self._last_target.get(client))
        self._last_target[client] = to
        self._attempts[client] = self._attempts.get(client, 0) + 1
        try:
            error = await port.migrate(client, to)
        except OverweaveError as lost:
            error = str(lost)
        finally:
            self._tasks.pop(client, None)
        if error is None:
            self.moved[client], self._moved_s[client] = to, time.monotonic()
            self.stayed.pop(client, None)
        else:
            self._loads[to] -= 1
            self.stayed[client], self._failed_s[client] = error, time.monotonic()
        self._on_progress(self)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in (pending := list(tasks)):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*pending, return_exceptions=True)
