"""CROC (THESIS 6.1): an operator at any broker that observes the whole network, profiles it, and changes its overlay."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import msgspec

from overweave.contract.observation import CHANGE, COLLECTOR, OBSERVE, Observation
from overweave.contract.overlay_state import OverlayState
from overweave.contract.profiles import (
    BITS,
    PROFILE_LIMIT,
    PROFILE_READ,
    PROFILE_START,
    PROFILE_STOP,
    PROFILE_WINDOWS,
    VECTORS_BYTES_MAX,
    Collected,
    ProfileAnswer,
    ProfileRequest,
    ProfilesChanged,
    PublisherWindows,
    SubscriptionProfiles,
)
from overweave.drivers.profile_tables import ProfileMerge, ProfileTables, limits_of
from overweave.drivers.tcp.operator import Operator
from overweave.errors import OverweaveError

#: The lease of a profile: without its operator it ends after this time; and the interval at which it is extended.
LEASE_S, EXTEND_S = 30.0, 5.0
#: The time until which requests and publications have arrived everywhere.
ARRIVAL_S = 1.0
#: A long answer takes its time on the way to the operator, after all brokers have answered.
_TRANSFER_S = 20.0
_C = TypeVar("_C", bound=Collected)


class Croc:
    """Requests to the collectors of all brokers, through one of them."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def observe(self) -> Observation:
        """All brokers as they are now."""
        body = await self._operator.ask(COLLECTOR, OBSERVE)
        return msgspec.msgpack.decode(body, type=Observation)

    async def change(self, state: OverlayState) -> None:
        """Publish a state of the overlay."""
        await self._operator.ask(COLLECTOR, CHANGE, msgspec.msgpack.encode(state))

    @contextlib.asynccontextmanager
    async def profiling(self, bits: int = BITS, lease_s: float = LEASE_S) -> AsyncIterator["Profiling"]:
        """A profile of all brokers during the body."""
        request = ProfileRequest(f"profile-{secrets.token_hex(6)}", bits, lease_s)
        profiling = Profiling(self._operator, request)
        try:
            await profiling.start()
            yield profiling
        finally:
            with contextlib.suppress(OverweaveError):  # its lease ends
                await profiling.stop()


class Profiling:
    """A profile in progress."""

    def __init__(self, operator: Operator, request: ProfileRequest) -> None:
        self._operator, self._request = operator, request
        self._merge = ProfileMerge(request.bits)
        #: The brokers that have begun the profile so far, and how often they restarted it.
        self.brokers: set[str] = set()
        self.restarts = 0

    async def start(self) -> None:
        """Begin the profile at all brokers that have none, or extend its lease.

        Where brokers begin, such as those that have restarted, the windows of all publishers restart: all profiles of one
        publisher have one window.
        """
        changed = await self._ask(PROFILE_START, ProfilesChanged)
        if changed.busy:
            broker, name = min(changed.busy.items())
            raise OverweaveError(f"broker {broker} is being profiled by another operator ({name})")
        if changed.brokers:
            self.restarts += bool(self.brokers)
            self.brokers |= set(changed.brokers)
            windows = await self._ask(PROFILE_WINDOWS, PublisherWindows)
            self._merge.begin(windows)

    async def wait(self, window_s: float, progress: Callable[[float], None] = lambda _: None) -> None:
        """Keep the profile for some time; ``progress`` gets the seconds left."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + window_s
        extend_s = loop.time() + EXTEND_S
        while (left_s := end_s - loop.time()) > 0:
            progress(left_s)
            await asyncio.sleep(min(left_s, 1.0))
            if loop.time() >= extend_s:
                await self.start()
                extend_s = loop.time() + EXTEND_S

    async def read(self, arrival_s: float = ARRIVAL_S) -> ProfileTables:
        """The tables of the profile, which ends: what is published from now on is not in it."""
        limits = limits_of(await self._ask(PROFILE_WINDOWS, PublisherWindows), arrival_s)
        await self._ask(PROFILE_LIMIT, ProfilesChanged, limits)
        await asyncio.sleep(2 * arrival_s)
        windows = await self._ask(PROFILE_WINDOWS, PublisherWindows)
        profiles = await self._ask(PROFILE_READ, SubscriptionProfiles)
        _check_complete((*windows.idle, *profiles.idle), "has restarted during the window: expected a profile of all of it")
        if profiles.dropped:
            pairs = f"{profiles.dropped:,} (subscription, publisher) pairs were not profiled"
            raise OverweaveError(f"{pairs}: brokers are limited to {VECTORS_BYTES_MAX / 1e6:g} MB of profiles each")
        return self._merge.tables(windows, profiles)

    async def stop(self) -> None:
        """End the profile at all brokers."""
        await self._ask(PROFILE_STOP, ProfilesChanged)

    async def _ask(self, kind: str, type: type[_C], limits: dict[str, int] | None = None) -> _C:
        body = msgspec.msgpack.encode(msgspec.structs.replace(self._request, limits=limits or {}))
        within_s = self._request.deadline_s + _TRANSFER_S
        answer = msgspec.msgpack.decode(await self._operator.ask(COLLECTOR, kind, body, within_s), type=ProfileAnswer)
        _check_complete(answer.missing, "did not answer in time")
        assert isinstance(answer.found, type), f"the answer to {kind}"
        return answer.found


def _check_complete(brokers: Iterable[str], reason: str) -> None:
    named = sorted(set(brokers))
    if named:
        others = f" and {len(named) - 1} others" if len(named) > 1 else ""
        raise OverweaveError(f"broker {named[0]}{others} {reason}")
