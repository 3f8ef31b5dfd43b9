"""The outbound handshake of a broker."""

import asyncio
import gc

import msgspec

from overweave.contract.wire import Disconnect
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.outbound_handshake import OutboundHandshake
from overweave.overlay.graph import Overlay
from overweave.testing.live import joining_settings, network_settings, until


class HandshakeOwner:
    def lost(self, connection):
        pass


def test_a_handshake_that_nobody_waits_for_fails_without_a_word():
    said = []

    async def work():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
        handshake = OutboundHandshake(HandshakeOwner(), "B2")
        handshake.lost(None)
        del handshake
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(work())
    assert said == []


def test_a_broker_that_leaves_says_so_to_a_contact_that_has_not_answered_yet():
    """The contact may have made it a guest already, and would wait for its return."""
    received = []

    async def work():
        ended = asyncio.Event()

        async def accept(reader, writer):
            frames = FrameReader()
            while data := await reader.read(1000):
                received.extend(frames.feed(data))
            writer.close()
            ended.set()

        contact = await asyncio.start_server(accept, "127.0.0.1", 0)
        host, port = contact.sockets[0].getsockname()
        settings = network_settings(Overlay(["B1"]))
        node = BrokerNode(
            joining_settings({"B1": msgspec.structs.replace(settings["B1"], listen=f"tcp://{host}:{port}")}, "B2", "B1")
        )
        await node.start()
        await until(lambda: received, what="that the contact is dialled")
        node.leave()
        await asyncio.wait_for(ended.wait(), 10)
        await node.stop()
        contact.close()

    asyncio.run(work())
    assert (received[0].name, received[0].guest, received[1:]) == ("B2", True, [Disconnect()])
