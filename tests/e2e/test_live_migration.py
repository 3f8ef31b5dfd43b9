"""Live clients that move between brokers: nothing is lost or repeated, whatever happens to the brokers meanwhile."""

import asyncio
import contextlib
import itertools
import os

import pytest
import trustme

from overweave.contract.effects import MigrationEnded
from overweave.contract.frames import BarrierKind, Migrate
from overweave.contract.stimuli import MigrateClient
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import Refused, SessionLost
from overweave.overlay.graph import Overlay
from overweave.testing.live import BrokerProcess, network_settings, running, until, with_changes

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
RING = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3"), ("B3", "B1")])
MOVES = int(os.environ.get("OVERWEAVE_MOVES", "10"))
WITHIN_S = 30
TOKENS = itertools.count()


def run(work, within_s=120 + 3 * MOVES):
    asyncio.run(asyncio.wait_for(work, timeout=within_s))


def watch(nodes):
    """The results of migrations by token."""
    results = {}
    for node in nodes.values():

        def ended(effect, perform=node._runner._perform[MigrationEnded]):
            results[effect.token] = effect.error
            perform(effect)

        node._runner._perform[MigrationEnded] = ended
    return results


def home(nodes, client):
    """The broker that a client publishes to."""
    return nodes[client.broker]


async def move(nodes, results, client, to, **order):
    """Order a migration at the client's broker; its result."""
    token = f"t{next(TOKENS)}"
    home(nodes, client).handle(MigrateClient(token, client.name, to, **order))
    await until(lambda: token in results, WITHIN_S, f"that {client.name} has moved to {to}")
    return results[token]


class Traffic:
    """A publisher of numbers, about 3,000 per second, and a subscriber that checks them."""

    def __init__(self, publisher, subscription):
        self._publisher, self._subscription = publisher, subscription
        self.sent, self.received, self.stopped = 0, [], False

    async def publish(self):
        while not self.stopped:
            for _ in range(30):
                await self._publisher.publish({"n": self.sent})
                self.sent += 1
            await asyncio.sleep(0.01)
        await asyncio.wait_for(self._publisher.flush(), WITHIN_S)

    async def receive(self):
        async for publication in self._subscription:
            self.received.append(publication["n"])

    def check(self):
        assert sorted(self.received) == list(range(self.sent))  # those of two brokers may overtake each other


@contextlib.asynccontextmanager
async def traffic(publisher, subscriber):
    """Numbers from one client to another while the body runs, without a gap or repetition."""
    await publisher.advertise("[n,>=,0]")
    async with subscriber.subscribe("[n,>=,0]") as subscription:
        flow = Traffic(publisher, subscription)
        publishing, receiving = asyncio.create_task(flow.publish()), asyncio.create_task(flow.receive())
        try:
            yield flow
            flow.stopped = True
            await publishing
            await until(lambda: len(flow.received) >= flow.sent, WITHIN_S, "that everything has arrived")
            await asyncio.sleep(0.2)
            flow.check()
        finally:
            for task in (publishing, receiving):
                task.cancel()
            await asyncio.gather(publishing, receiving, return_exceptions=True)


@pytest.mark.parametrize(("overlay", "routing"), [(CHAIN, "filter"), (RING, "destination")])
def test_clients_move_back_and_forth_under_traffic(overlay, routing):
    async def work():
        async with running(network_settings(overlay, routing=routing)) as nodes, contextlib.AsyncExitStack() as stack:
            results = watch(nodes)
            publisher = await stack.enter_async_context(connect(nodes["B1"].settings.listen, name="p"))
            subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen, name="s"))
            async with traffic(publisher, subscriber) as flow:
                for number in range(MOVES):
                    for client, brokers in ((subscriber, ("B3", "B1", "B2")), (publisher, ("B1", "B3", "B2"))):
                        to = brokers[(number + 1) % 3]
                        assert await move(nodes, results, client, to) is None
                        assert client.broker == to
                        await asyncio.sleep(0.1)
                assert flow.sent > 150 * MOVES
            await until(lambda: [len(each.attachments) for each in (publisher, subscriber)] == [1, 1])
            for id, node in nodes.items():
                expected = {each.name for each in (publisher, subscriber) if each.broker == id}
                await until(lambda node=node, expected=expected: set(node.core.clients()) == expected)

    run(work())


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05])
def test_a_target_that_crashes_during_a_move_leaves_no_gap(delay_s, tmp_path):
    """The client completes the move when the broker is back, or stays where it was."""

    async def work():
        settings = network_settings(CHAIN, state=tmp_path)
        target = BrokerProcess(settings.pop("B1"))
        await asyncio.to_thread(target.start)
        try:
            async with running(settings) as nodes, contextlib.AsyncExitStack() as stack:
                results = watch(nodes)
                publisher = await stack.enter_async_context(connect(nodes["B2"].settings.listen, name="p"))
                subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen, name="s"))
                async with traffic(publisher, subscriber):
                    moving = asyncio.create_task(move(nodes, results, subscriber, "B1"))
                    await asyncio.sleep(delay_s)
                    await asyncio.to_thread(target.kill)
                    await asyncio.to_thread(target.start)
                    assert await moving is None
                    assert subscriber.broker == "B1"
        finally:
            await asyncio.to_thread(target.stop)

    run(work())


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.02])
def test_an_old_broker_that_restarts_during_a_move_leaves_no_gap(delay_s, tmp_path):
    """The client completes the move, or goes on at the old broker, which has it in its journal."""

    async def work():
        settings = network_settings(CHAIN, state=tmp_path)
        async with running(settings) as nodes, contextlib.AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(connect(nodes["B2"].settings.listen, name="p"))
            subscriber = await stack.enter_async_context(connect(nodes["B1"].settings.listen, name="s"))
            async with traffic(publisher, subscriber):
                nodes["B1"].handle(MigrateClient("t", "s", "B3"))
                await asyncio.sleep(delay_s)
                await nodes.pop("B1").stop()
                nodes["B1"] = BrokerNode(settings["B1"])
                await nodes["B1"].start()
                await asyncio.sleep(1.0)
                await until(lambda: not subscriber.host.core.is_migrating, WITHIN_S, "that the move has ended")
            at = {id for id, node in nodes.items() if "s" in node.core.clients()}
            assert at == {subscriber.broker}

    run(work())


def test_moves_that_are_refused_change_nothing():
    """To brokers outside the network, to one where the name is taken, or by a client's order."""

    async def work():
        async with running(network_settings(CHAIN)) as nodes, contextlib.AsyncExitStack() as stack:
            results = watch(nodes)
            publisher = await stack.enter_async_context(connect(nodes["B1"].settings.listen, name="p"))
            subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen, name="s"))
            await stack.enter_async_context(connect(nodes["B2"].settings.listen, name="s"))
            forger = connect(nodes["B3"].settings.listen, name="f")
            await forger.__aenter__()
            async with traffic(publisher, subscriber):
                assert "'B9' is not in the network" in await move(nodes, results, subscriber, "B9")
                assert "expected a name that nobody else has" in await move(nodes, results, subscriber, "B2")
                forged = Migrate("t", "B1", None, True, BarrierKind.STREAM)
                effects = []
                forger.host.core._attachments[""].session.send_control(forged, effects)
                forger.host._runner.run(effects)
                with pytest.raises(Refused, match="bad-frame: expected a control message of a client"):
                    await asyncio.wait_for(forger.flush(), WITHIN_S)
            assert (subscriber.broker, len(subscriber.attachments)) == ("B3", 1)
            await forger.close()

    run(work())


def test_a_client_with_tls_refuses_an_address_without(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "B1.pem"))

    async def work():
        one, other = network_settings(Overlay(["B1"]), scheme="tls"), network_settings(Overlay(["B2"]))
        urls = {id: each.listen for id, each in (one | other).items()}
        security = SecuritySettings(certificate=tmp_path / "B1.pem")
        async with running(with_changes(one, urls=urls, security=security)) as nodes, running(other) as plain:
            results = watch(nodes)
            async with connect(urls["B1"], authorities=tmp_path / "authority.pem", failover_s=0.1) as client:
                assert "broker 'B2' has no tls:// address" in await move(nodes, results, client, "B2")
                await nodes.pop("B1").stop()
                await asyncio.sleep(0.5)
                assert not plain["B2"].core.clients(), "it fails over to no such address either"
                assert plain["B2"].gauges()["connections"] == 0

    run(work())


@pytest.mark.parametrize(("overlay", "routing"), [(CHAIN, "filter"), (RING, "destination")])
def test_clients_fail_over_when_their_broker_stays_away(overlay, routing):
    """Nothing published is lost for others; their own subscriptions raise once that publications may be missing."""

    async def work():
        settings = network_settings(overlay, routing=routing)
        async with running(settings) as nodes, contextlib.AsyncExitStack() as stack:
            url, far = nodes["B1"].settings.listen, nodes["B3"].settings.listen
            publisher = await stack.enter_async_context(connect(url, name="p", failover_s=0.3))
            subscriber = await stack.enter_async_context(connect(url, name="s", failover_s=0.3))
            patient = await stack.enter_async_context(connect(url, name="w", failover_s=None))
            other = await stack.enter_async_context(connect(far, name="o"))
            own = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
            gaps, received = [], []

            async def receive():
                while True:
                    try:
                        async for publication in own:
                            received.append(publication["n"])  # noqa: PERF401 (it ends by an error)
                    except SessionLost as lost:
                        gaps.append(lost.code)

            receiving = asyncio.create_task(receive())
            async with traffic(publisher, other) as flow:
                await until(lambda: len(received) > 100)
                await nodes.pop("B1").stop()
                await until(lambda: publisher.broker == subscriber.broker == "B2", what="that the clients are at B2")
                await until(lambda: gaps == ["failed-over"])
                if overlay is CHAIN:  # trees wait for a broker with subscriptions
                    nodes["B1"] = BrokerNode(settings["B1"])
                    await nodes["B1"].start()
                count = len(flow.received)
                await until(lambda: len(flow.received) > count + 1000)
            await until(lambda: received[-1] == flow.sent - 1)
            assert sorted(set(received)) == received
            assert gaps == ["failed-over"]
            assert patient.broker == "B1"
            receiving.cancel()

    run(work())
