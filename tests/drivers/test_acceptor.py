"""The acceptor waits when there are no file descriptors, and says so once."""

import asyncio
import os
import resource
import socket

from overweave.drivers.tcp.acceptor import RETRY_S, Acceptor
from overweave.testing.live import until


class Host:
    def __init__(self):
        self.connections, self.errors, self.room = [], [], True

    def connected(self, connection):
        self.connections.append(connection)

    def received(self, connection, message):
        pass

    def lost(self, connection):
        self.connections.remove(connection)

    def may_accept(self):
        return self.room

    def exhausted(self, error):
        self.errors.append(error)


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=20))


async def listening(host):
    acceptor = Acceptor(host, None)
    await acceptor.listen("127.0.0.1", 0)
    return acceptor, acceptor._listeners[0].getsockname()


def test_without_file_descriptors_it_waits_and_says_so_once():
    async def work():
        host = Host()
        acceptor, address = await listening(host)
        attempts, accept = [], acceptor._accept
        acceptor._accept = lambda listener: (attempts.append(1), accept(listener))
        for listener in acceptor._listeners:
            asyncio.get_running_loop().add_reader(listener, acceptor._accept, listener)
        peers = [socket.create_connection(address) for _ in range(5)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            await asyncio.sleep(1.5 * RETRY_S)
            assert not host.connections
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(host.errors) == 1
        assert len(attempts) == 2
        await until(lambda: len(host.connections) == 5)
        acceptor.close()
        for peer in peers:
            peer.close()
        await until(lambda: not host.connections)

    run(work())


def test_a_host_without_room_closes_at_once():
    async def work():
        host = Host()
        acceptor, address = await listening(host)
        host.room = False
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        assert (host.connections, acceptor.opening) == ([], 0)
        writer.close()
        host.room = True
        _, writer = await asyncio.open_connection(*address)
        await until(lambda: len(host.connections) == 1)
        writer.close()
        await until(lambda: not host.connections)
        acceptor.close()

    run(work())


def test_a_connection_that_is_accepted_as_the_acceptor_closes_is_closed():
    """Its task has not begun then, and a task that is cancelled before it begins closes nothing."""

    async def work():
        acceptor, address = await listening(Host())
        with socket.create_connection(address, timeout=5) as peer:
            acceptor._accept(acceptor._listeners[0])
            assert acceptor.opening == 1
            acceptor.close()
            await asyncio.sleep(0)
            assert peer.recv(1) == b""

    run(work())
