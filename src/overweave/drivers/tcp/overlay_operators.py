"""Operators of the brokers of a network whose members change: connections on demand, by URLs that observations bring."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import msgspec

from overweave.contract.observation import CHANGE, COLLECTOR, OBSERVE, Observation, ObserveRequest
from overweave.contract.overlay_state import OverlayState
from overweave.drivers.tcp.client_keys import TAKEN_OVER
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.unavailable import UNAVAILABLE
from overweave.errors import OverweaveError, Refused

#: The time limit of an observation: a broker waits some seconds for each silent neighbour.
_OBSERVE_S = 12.0
#: Rejections that end one connection only: another operator may have taken its name over.
_PASSING = UNAVAILABLE | {TAKEN_OVER}
_decoder = msgspec.msgpack.Decoder(Observation)


class OverlayOperators:
    """All operators of one change; an asynchronous context manager. ``make`` makes the operator of a URL."""

    def __init__(self, urls: dict[str, str], make: Callable[[str], Operator]) -> None:
        self._urls, self._make = dict(urls), make
        self._open: dict[str, Operator] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        #: The broker that answered last: it is asked first.
        self._last = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in list(self._open):
            await self.close(broker)

    async def observe(self, preferred: Iterable[str], delays_s: float = 0.0) -> Observation:
        """An observation by the first broker that answers: one of those ``preferred`` if possible. See `ObserveRequest`."""
        candidates = list(dict.fromkeys([*([self._last] if self._last in set(preferred) else []), *preferred, *self._urls]))
        reasons = []
        for broker in candidates:
            try:
                found = await self._observed_by(broker, delays_s)
            except Refused as refused:
                await self.close(broker)
                if refused.code not in _PASSING:
                    raise
                reasons.append(str(refused))
            except OverweaveError as error:
                reasons.append(f"{broker}: {error}")
                await self.close(broker)
            else:
                self._last = broker
                self._urls |= {id: each.url for id, each in found.brokers.items() if each.url}
                return found
        raise OverweaveError(f"no broker answers: {'; '.join(reasons[:3]) or 'none is known'}")

    async def observe_again(self, delays_s: float) -> Observation:
        """An observation by the broker that answered last, beside other requests: whatever happens, connections stay open."""
        return await self._observed_by(self._last, delays_s)

    async def publish(self, state: OverlayState) -> None:
        """Have the broker that was observed last adopt a state; one that knows a later state rejects it."""
        operator = await self.of(self._last)
        await operator.ask(COLLECTOR, CHANGE, msgspec.msgpack.encode(state))

    async def migrate(self, client: str, source: str, to: str, within_s: float) -> str | None:
        """Order a migration and wait for its end; the broker's reason if the client stays. A lost connection is an error."""
        try:
            operator = await self.of(source)
            async with asyncio.timeout(within_s):
                return await operator.migrate(client, to)
        except TimeoutError:
            return f"no result within {within_s:g} s"
        except OverweaveError:
            await self.close(source)
            raise

    async def _observed_by(self, broker: str, delays_s: float) -> Observation:
        operator = await self.of(broker)
        body = msgspec.msgpack.encode(ObserveRequest(delays_s)) if delays_s else b""
        return _decoder.decode(await operator.ask(COLLECTOR, OBSERVE, body, _OBSERVE_S))

    async def of(self, broker: str) -> Operator:
        """The operator of a broker."""
        if broker not in self._urls:
            raise OverweaveError(f"broker {broker}: no URL is known")
        async with self._locks.setdefault(broker, asyncio.Lock()):
            if broker not in self._open:
                operator = self._make(self._urls[broker])
                await operator.__aenter__()
                self._open[broker] = operator
                if operator.broker != broker:
                    await self.close(broker)
                    raise OverweaveError(f"{self._urls[broker]}: expected broker {broker}, found {operator.broker}")
        return self._open[broker]

    async def close(self, broker: str) -> None:
        """Close the connection to a broker; it is opened again when it is needed."""
        operator = self._open.pop(broker, None)
        if operator is not None:
            with contextlib.suppress(OverweaveError):
                await operator.__aexit__(None, None, None)
