"""The proxy of the chaos harness: every connection goes through it, and it breaks them on command.

A process of its own (``python -m overweave.testing.chaos.proxy``). Its first line of input is the routes as JSON, then every line
is a command: ``[kind, route, seconds]``.
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys
import threading

_RESET = struct.pack("ii", 1, 0)
_CHUNK = 1 << 16
_TRICKLE_BYTES, _TRICKLE_S = 7, 0.01


class Route:
    """One address that stands for another, and what is wrong with it now."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._until_s = {"stall": 0.0, "trickle": 0.0, "cut": 0.0}
        #: The next bytes are cut short, and the connection ends.
        self._truncate = False

    def inject(self, kind: str, for_s: float) -> None:
        """Inject a fault."""
        if kind in self._until_s:
            self._until_s[kind] = _now_s() + for_s
        if kind == "truncate":
            self._truncate = True
        if kind in ("reset", "cut"):
            for pair in list(self._pairs):
                _abort(pair)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on both directions of a new connection until one ends."""
        if self._is("cut"):
            writer.transport.abort()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = writer, other_writer
        self._pairs.add(pair)
        pumps = [asyncio.ensure_future(self._pump(reader, other_writer)), asyncio.ensure_future(self._pump(other_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for each in pair:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            while self._is("stall"):
                await asyncio.sleep(0.02)
            if self._truncate and len(data) > 1:
                self._truncate = False
                writer.write(data[: len(data) // 2])
                await writer.drain()
                return
            while data and self._is("trickle"):
                writer.write(data[:_TRICKLE_BYTES])
                data = data[_TRICKLE_BYTES:]
                await asyncio.sleep(_TRICKLE_S)
            writer.write(data)
            await writer.drain()

    def _is(self, kind: str) -> bool:
        return _now_s() < self._until_s[kind]


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _abort(pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
    for writer in pair:
        with contextlib.suppress(OSError):
            # With nothing lingering the peer gets a reset, not an end.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()


async def serve(routes: dict[str, tuple[int, int]]) -> None:
    """Listen for all routes (by name: where, and for whom) and obey, until standard input ends."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    by_name = {name: Route(target) for name, (_, target) in routes.items()}
    servers = [await asyncio.start_server(by_name[name].accept, "127.0.0.1", port) for name, (port, _) in routes.items()]

    def obey() -> None:
        for line in sys.stdin:
            kind, name, for_s = json.loads(line)
            loop.call_soon_threadsafe(by_name[name].inject, kind, for_s)
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=obey, daemon=True).start()
    print("ready", flush=True)
    await done.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.stdin.readline())))
