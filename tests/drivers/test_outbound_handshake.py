"""The outbound handshake of a broker."""

import asyncio
import gc

from overweave.drivers.tcp.outbound_handshake import OutboundHandshake


class Caller:
    def lost(self, connection):
        pass


def test_a_handshake_that_nobody_waits_for_fails_without_a_word():
    said = []

    async def work():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
        handshake = OutboundHandshake(Caller(), "B2")
        handshake.lost(None)
        del handshake
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(work())
    assert said == []
