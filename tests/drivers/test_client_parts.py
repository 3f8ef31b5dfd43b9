"""Parts of the client: the outbox, and names that are kept for older programs."""

import asyncio

import pytest

from overweave.batches.row_codec import encode_rows
from overweave.drivers.tcp import outbox as outbox_module
from overweave.drivers.tcp.client import Receipt, connect
from overweave.drivers.tcp.outbox import Outbox
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running


def test_the_outbox_sends_rows_of_one_turn_together_and_no_frame_is_too_large(monkeypatch):
    row = encode_rows((Publish(Publication({"n": 1}), Header("c")),))
    monkeypatch.setattr(outbox_module, "BYTES_MAX", 2 * len(row))
    sent = []

    async def work():
        outbox = Outbox(lambda rows: sent.append((rows.count, len(rows.data))))
        for _ in range(3):  # the third does not fit
            outbox.add(row)
        assert (sent, len(outbox), outbox.is_full) == ([(2, 2 * len(row))], 1, False)
        outbox.add(row)
        assert outbox.is_full
        await asyncio.sleep(0)
        assert (sent[1:], len(outbox)) == ([(2, 2 * len(row))], 0)

    asyncio.run(work())


def test_publish_rows_is_a_deprecated_name():
    async def work():
        async with running(network_settings(Overlay(["B1"]))) as nodes, connect(nodes["B1"].settings.listen) as client:
            with pytest.deprecated_call(match="publish_encoded"):
                await client.publish_rows(client.encode([{"n": 1}]))
            assert await client.flush() == Receipt(1, 1)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_broker_that_restarted_its_core_can_reload_its_tokens():
    async def work():
        async with running(network_settings(Overlay(["B1"]))) as nodes, connect(nodes["B1"].settings.listen, name="c"):
            nodes["B1"].restart_core(0)
            nodes["B1"].reload()

    asyncio.run(asyncio.wait_for(work(), 60))
