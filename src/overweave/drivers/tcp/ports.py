"""Ports to listen on that nobody else takes meanwhile."""

import contextlib
import random
import socket

#: Where systems do not look for the ports of outgoing connections: one of these could take a port before somebody listens there.
_FIRST, _END = 10_000, 32_000


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address, one after the other, that nobody uses at this moment.

    >>> first, second = free_ports(2)
    >>> second - first
    1
    """
    draw = random.SystemRandom()
    while True:
        first = draw.randrange(_FIRST, _END - count)
        ports = list(range(first, first + count))
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return ports
