"""The proxy of the chaos harness passes bytes on, and breaks connections as told."""

import asyncio
import contextlib

import pytest

from overweave.drivers.tcp.ports import free_ports
from overweave.testing.chaos.proxy import Route

DATA = bytes(range(256)) * 40


async def through(kind=None, for_s=0.0, data=DATA):
    """What an echo through the proxy gives back until it ends, and after how long."""
    target, port = free_ports(2)

    async def echo(reader, writer):
        with contextlib.suppress(ConnectionError):
            while some := await reader.read(1 << 16):
                writer.write(some)
        writer.close()

    route = Route(target)
    loop = asyncio.get_running_loop()
    servers = [await asyncio.start_server(echo, "127.0.0.1", target), await asyncio.start_server(route.accept, "127.0.0.1", port)]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"!")
        await reader.readexactly(1)
        start_s = loop.time()
        if kind is not None:
            route.inject(kind, for_s)
        writer.write(data)
        got = b""
        while len(got) < len(data) and (some := await reader.read(1 << 16)):
            got += some
        return got, loop.time() - start_s
    finally:
        writer.close()
        for server in servers:
            server.close()
        await asyncio.sleep(0.05)  # transports close in the next turn


def test_bytes_pass():
    assert asyncio.run(through())[0] == DATA


def test_truncated():
    got, _ = asyncio.run(through("truncate"))
    assert len(got) < len(DATA)
    assert DATA.startswith(got)


@pytest.mark.parametrize("kind", ["reset", "cut"])
def test_reset_and_cut(kind):
    with pytest.raises(ConnectionResetError):
        asyncio.run(through(kind, 1.0))


@pytest.mark.parametrize("kind", ["stall", "trickle"])
def test_late_but_whole(kind):
    got, took_s = asyncio.run(through(kind, 0.3))
    assert got == DATA
    assert took_s >= 0.25


def test_while_it_is_cut_nobody_gets_through():
    async def knock():
        target, port = free_ports(2)
        route = Route(target)
        server = await asyncio.start_server(route.accept, "127.0.0.1", port)
        route.inject("cut", 5.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await reader.read(1)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            server.close()
            await asyncio.sleep(0.05)

    assert asyncio.run(knock()) == b""
