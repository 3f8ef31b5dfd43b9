"""Live brokers with a journal: kill -9 right after an acknowledgement, and a full disk."""

import asyncio
import contextlib
import errno
import json
import os
import random
import subprocess
import urllib.error
import urllib.request

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.tcp import journal_writer
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.journal import JournalFile
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import OverweaveError, Refused, SessionLost
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes, running, until

ONE = Overlay(("B1",))
CONFIG = BrokerConfig(SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005), slow_consumer_timeout_s=5.0)


def in_journal(state):
    file = JournalFile(state, "B1")
    try:
        return {id for _, id in file.open()}
    finally:
        file.close()


class Churn:
    """Tasks of one client that advertise and withdraw all the time, and what is certain of each advertisement."""

    def __init__(self, client):
        self._client = client
        self.acknowledged, self.withdrawn = set(), set()

    async def run(self, draw):
        mine = []
        while True:
            if mine and draw.random() < 0.4:
                id = mine.pop(draw.randrange(len(mine)))
                self.acknowledged.discard(id)  # from now on nobody knows
                await self._client.unadvertise(id)
                self.withdrawn.add(id)
            else:
                id = await self._client.advertise(f"[x,>,{draw.randrange(100)}]")
                mine.append(id)
                self.acknowledged.add(id)


def test_what_was_acknowledged_is_in_the_journal_of_a_broker_that_is_killed_at_any_time(tmp_path):
    async def work(broker, draw):
        acknowledged, withdrawn = set(), set()
        for round in range(3):
            client = await connect(broker.url, name=f"c{round}").__aenter__()
            churn = Churn(client)
            tasks = [asyncio.create_task(churn.run(draw)) for _ in range(8)]
            await asyncio.sleep(draw.uniform(0.1, 0.5))
            broker.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()  # it cannot say anything again
            assert len(churn.acknowledged) > 5
            acknowledged |= churn.acknowledged
            withdrawn |= churn.withdrawn
            found = in_journal(tmp_path)
            assert not acknowledged - found
            assert not withdrawn & found
            assert len(found - acknowledged) <= 8 * (round + 1)  # what was in flight
            await asyncio.to_thread(broker.start)

    with processes(network_settings(ONE, state=tmp_path, config=CONFIG)) as brokers:
        asyncio.run(asyncio.wait_for(work(brokers["B1"], random.Random(3)), 120))


def test_the_broker_that_comes_back_has_the_subscription_and_its_client_gets_what_is_published(tmp_path):
    async def work(broker):
        async with connect(broker.url, name="s") as subscriber, connect(broker.url, name="p") as publisher:
            await publisher.advertise("[x,>=,0]")
            async with subscriber.subscribe("[x,>=,0]") as numbers:
                broker.kill()
                await asyncio.to_thread(broker.start)
                await publisher.publish({"x": 7})
                assert (await anext(aiter(numbers)))["x"] == 7
            await publisher.flush()

    with processes(network_settings(ONE, state=tmp_path, config=CONFIG)) as brokers:
        asyncio.run(asyncio.wait_for(work(brokers["B1"]), 60))


def test_a_client_learns_that_a_journal_has_lost_some_of_its_subscriptions(tmp_path):
    """Records at the end of the file are gone, which nobody can see in the file alone."""

    async def work(broker):
        async with connect(broker.url, name="s") as client, contextlib.AsyncExitStack() as stack:
            several = [await stack.enter_async_context(client.subscribe(f"[x,=,{number}]")) for number in range(8)]
            journal = next(tmp_path.rglob("*.journal"))
            broker.kill()
            records = journal.read_bytes().splitlines(keepends=True)
            journal.write_bytes(b"".join(records[:-4]))
            broker.start()
            for each in several:
                with pytest.raises(SessionLost, match="has lost subscriptions"):
                    await asyncio.wait_for(anext(aiter(each)), 20)

    with processes(network_settings(ONE, state=tmp_path, config=CONFIG)) as brokers:
        asyncio.run(asyncio.wait_for(work(brokers["B1"]), 60))


def health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class Disk:
    """A disk that is full when told so."""

    def __init__(self, monkeypatch):
        self.full = False
        pwrite = os.pwrite

        def write(*arguments):
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return pwrite(*arguments)

        monkeypatch.setattr(os, "pwrite", write)


async def outlive_a_full_disk(settings, fill, clear):
    """Clients before, during and after; ``fill`` and ``clear`` make the disk full and not."""
    port = int(settings["B1"].metrics.rpartition(":")[2])
    async with contextlib.AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running(settings))
        url = nodes["B1"].settings.listen
        subscriber = await stack.enter_async_context(connect(url, name="s"))
        publisher = await stack.enter_async_context(connect(url, name="p"))
        await publisher.advertise("[x,>=,0]")
        numbers = await stack.enter_async_context(subscriber.subscribe("[x,>=,0]"))
        messages = aiter(numbers)
        assert (await asyncio.to_thread(health, port))[0] == 200
        fill()
        unlucky = await stack.enter_async_context(connect(url, name="u"))
        # Applied before anybody knows that the disk is full; long, because file systems give whole blocks.
        waiting = asyncio.create_task(unlucky.advertise(f"[y,eq,'{'y' * 10_000}']"))
        await until(lambda: nodes["B1"].health_problem() is not None)
        with pytest.raises(Refused, match="journal-unavailable"):  # it does not wait for what its client said before
            await asyncio.wait_for(unlucky.advertise("[z,>,2]"), 10)
        for number in range(3):
            for say in (subscriber.subscribe("[x,>,1]").__aenter__, lambda: publisher.advertise("[z,>,1]")):
                with pytest.raises(Refused, match=r"journal-unavailable: .* is not in force: .*No space left on device"):
                    await asyncio.wait_for(say(), 10)
            await publisher.publish({"x": number})
            await asyncio.wait_for(publisher.flush(), 10)
            assert (await asyncio.wait_for(anext(messages), 10))["x"] == number
        async with connect(url) as careless:
            await careless.advertise("[z,>,1]", wait=False)
            with pytest.raises(Refused, match="journal-unavailable"):
                await asyncio.wait_for(careless.flush(), 10)
        status, answer = await asyncio.to_thread(health, port)
        assert (status, answer["status"]) == (503, "unhealthy")
        assert answer["reason"].endswith("B1.journal cannot be written: No space left on device")
        assert not waiting.done()
        clear()
        await asyncio.wait_for(waiting, 10)
        assert (await asyncio.to_thread(health, port))[0] == 200
        again = await stack.enter_async_context(subscriber.subscribe("[x,>,1]"))
        await publisher.publish({"x": 9})
        assert [(await anext(aiter(each)))["x"] for each in (numbers, again)] == [9, 9]
        assert nodes["B1"].core.statistics().tables["subscriptions"] == 2
        await publisher.flush()


def with_health(state):
    return network_settings(ONE, state=state, config=CONFIG, metrics=f"127.0.0.1:{free_ports(1)[0]}")


def test_a_broker_outlives_a_full_disk(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.05)
    disk = Disk(monkeypatch)

    def set_full(full):
        disk.full = full

    asyncio.run(asyncio.wait_for(outlive_a_full_disk(with_health(tmp_path), lambda: set_full(True), lambda: set_full(False)), 60))
    events = [(each.levelname, each.getMessage()) for each in caplog.records if each.getMessage().startswith("journal")]
    assert events == [("ERROR", "journal-unavailable"), ("WARNING", "journal-recovered")]


def test_a_core_that_starts_again_while_the_disk_is_full_acknowledges_nothing_that_is_not_durable(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.05)
    disk = Disk(monkeypatch)

    async def work():
        async with running(network_settings(ONE, state=tmp_path)) as nodes:
            node = nodes["B1"]
            async with connect(node.settings.listen, name="c") as client, connect(node.settings.listen, name="d") as other:
                disk.full = True
                waiting = asyncio.create_task(client.advertise("[x,>,1]"))
                await until(lambda: node.health_problem() is not None)
                node.restart_core(0)
                await until(lambda: len(node.peers) == 2)
                await asyncio.sleep(0.3)
                assert not waiting.done()
                with pytest.raises(Refused, match="journal-unavailable"):
                    await asyncio.wait_for(other.advertise("[x,>,2]"), 10)
                disk.full = False
                await asyncio.wait_for(waiting, 10)

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, where this user may mount one."""
    target = tmp_path / "disk"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except OSError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip(f"no file system can be mounted: {done.stderr.decode(errors='replace').strip()}")
    yield target
    subprocess.run(["umount", str(target)], capture_output=True, timeout=10, check=True)


def test_a_broker_outlives_a_disk_that_is_really_full(small_disk, monkeypatch):
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.05)
    ballast = small_disk / "ballast"

    def fill():
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))

    asyncio.run(asyncio.wait_for(outlive_a_full_disk(with_health(small_disk / "state"), fill, ballast.unlink), 60))


def test_two_live_brokers_cannot_have_one_journal(tmp_path):
    async def work():
        settings = network_settings(ONE, state=tmp_path)
        async with running(settings):
            with pytest.raises(OverweaveError, match="no other broker has open"):
                BrokerNode(settings["B1"])

    asyncio.run(work())
