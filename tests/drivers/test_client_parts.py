"""Parts of the client: the outbox, and names that are kept for older programs."""

import asyncio

import pytest

from overweave.batches.row_codec import encode_rows
from overweave.contract.effects import Detach
from overweave.drivers.tcp import outbox as outbox_module
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.attachment import ClientIdentity
from overweave.drivers.tcp.client import Receipt, connect
from overweave.drivers.tcp.client_host import ClientHost
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
        assert [outbox.add(row) for _ in range(3)] == [False, True, False]  # the third does not fit
        assert (sent, outbox.count) == ([(2, 2 * len(row))], 1)
        assert outbox.add(row)
        await asyncio.sleep(0)
        assert (sent[1:], outbox.count) == ([(2, 2 * len(row))], 0)

    asyncio.run(work())


def test_publish_rows_is_a_deprecated_name():
    async def work():
        async with running(network_settings(Overlay(["B1"]))) as nodes, connect(nodes["B1"].settings.listen) as client:
            with pytest.deprecated_call(match="publish_encoded"):
                await client.publish_rows(client.encode([{"n": 1}]))
            assert await client.flush() == Receipt(1, 1)

    asyncio.run(asyncio.wait_for(work(), 60))


class NoReader:
    """A receiver of no publications."""

    def deliver(self, effect):
        """See `DeliveryHandler`."""

    def notify(self):
        """See `DeliveryHandler`."""


def test_whoever_waits_for_a_broker_that_the_client_leaves_checks_again():
    """The other brokers may be silent then."""

    async def work():
        host = ClientHost(Address("127.0.0.1", 1), None, ClientIdentity("c", None, "key", is_named=False), NoReader())
        waiting = asyncio.create_task(host.wait_for_progress())
        await asyncio.sleep(0)
        assert not waiting.done()
        host.attachments.detach(Detach(""))
        await asyncio.wait_for(waiting, 5)

    asyncio.run(work())


def test_waiting_is_a_deprecated_name():
    async def work():
        async with (
            running(network_settings(Overlay(["B1"]))) as nodes,
            connect(nodes["B1"].settings.listen) as client,
            client.subscribe("[n,>,0]") as subscription,
        ):
            await client.publish({"n": 1})
            await client.flush()
            with pytest.deprecated_call(match="pending"):
                assert subscription.waiting == subscription.pending == 1

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_broker_that_restarted_its_core_can_reload_its_tokens():
    async def work():
        async with running(network_settings(Overlay(["B1"]))) as nodes, connect(nodes["B1"].settings.listen, name="c"):
            nodes["B1"].restart_core(0)
            nodes["B1"].reload()

    asyncio.run(asyncio.wait_for(work(), 60))
