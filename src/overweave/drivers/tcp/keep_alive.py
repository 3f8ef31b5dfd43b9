"""Keep-alive of a live broker's connections: pings, and the end of connections whose peer is silent."""

import time

from overweave.contract.wire import Ping
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.peers import Peers
from overweave.drivers.tcp.server import Server

#: Ping intervals without a message after which a connection is closed.
_SILENT_INTERVALS = 3


async def keep_alive(server: Server, peers: Peers, interval_s: float, log: Log) -> None:
    """Ping peers that are idle for half an interval, and close the connections of silent ones, for ever."""
    while True:
        was_paused = await absence.sleep(interval_s / 2)
        now_s = time.monotonic()
        for connection in list(peers.values()):
            if was_paused:
                # Messages that arrived during the pause are not read yet, and no ping was sent.
                connection.received_s = now_s
                connection.send(Ping())
            elif now_s - connection.received_s > _SILENT_INTERVALS * interval_s and not connection.held:
                log.warning("silent", peer=connection.peer)
                connection.abort()
            elif now_s - connection.sent_s > interval_s / 2:
                connection.send(Ping())
        for connection in server.unauthenticated:
            _check_unauthenticated(connection, now_s, interval_s, was_paused=was_paused)


def _check_unauthenticated(connection: Connection, now_s: float, interval_s: float, *, was_paused: bool) -> None:
    if was_paused:
        connection.made_s = now_s
    elif now_s - connection.made_s > _SILENT_INTERVALS * interval_s:
        connection.abort()
