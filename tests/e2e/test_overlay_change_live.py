"""The overlay of live brokers changes under traffic: a guest becomes a member, links open and close, and restarts follow it."""

import asyncio

import pytest

from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase
from overweave.contract.stimuli import ChangeOverlay
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.language.headers import OverlayEpoch
from overweave.overlay.graph import Overlay
from overweave.testing.live import joined, joining_settings, network_settings, running, until, with_changes

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
#: The same brokers and B4 in other trees, with its contact as a neighbour and without: a link of the chain is gone.
STAYS, GOES = (("B1", "B3"), ("B2", "B3"), ("B1", "B4")), (("B1", "B3"), ("B2", "B3"), ("B2", "B4"))
#: The same with B4 as an inner broker, between its contact and the others.
INNER = (("B1", "B4"), ("B3", "B4"), ("B2", "B3"))
WITHIN_S = 30


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=120))


def states(first, guest, url, links):
    """The states of a change from the file's tree to another one."""
    old, version = first.trees[0], first.version.epoch + 1
    new = EpochTree(OverlayEpoch(version), (*old.brokers, guest), links)
    members = (*first.members, Member(guest, url, len(first.members)))

    def state(phase, trees, current):
        return OverlayState(OverlayVersion(version, phase), members, trees, current, "a plan")

    yield state(Phase.PREPARED, (old, new), old.epoch)
    yield state(Phase.USED, (old, new), new.epoch)
    yield state(Phase.CLOSED, (new,), new.epoch)
    yield state(Phase.TRIMMED, (new,), new.epoch)


def is_adopted(nodes, state):
    """Whether all brokers have a state, are synchronised in its epochs, and have nothing of others in flight."""
    for node in nodes.values():
        status = node.core.overlay_status()
        if status.version != state.version or status.synced != state.epochs or set(status.unsettled) != set(state.epochs):
            return False
        if any(count for epoch, count in status.unsettled.items() if epoch != state.current):
            return False
    return True


def neighbours(nodes):
    return {frozenset((id, other)) for id, node in nodes.items() for other in node.links.neighbours}


async def change(nodes, guest, links):
    for state in states(nodes["B1"].core.overlay_state(), "B4", guest.settings.listen, links):
        nodes["B2"].handle(ChangeOverlay(state))
        await until(lambda state=state: is_adopted(nodes, state), WITHIN_S, f"that all are at {state.version}")


class Numbers:
    """Numbers that are published until `stop`."""

    def __init__(self, publisher):
        self._publisher, self._task, self.count = publisher, None, 0

    async def __aenter__(self):
        self._task = asyncio.create_task(self._publish())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _publish(self):
        while True:
            await self._publisher.publish({"n": self.count})
            self.count += 1
            await asyncio.sleep(0.002)


async def collected(numbers, found):
    async for each in numbers:
        found.append(each["n"])


@pytest.mark.parametrize(("routing", "links"), [("filter", GOES), ("filter", STAYS), ("destination", GOES)])
def test_a_change_under_traffic_loses_and_repeats_nothing(routing, links, tmp_path):
    async def work():
        settings = network_settings(CHAIN, routing=routing)
        settings = {id: with_changes({id: each}, state=tmp_path / id)[id] for id, each in settings.items()}
        about = joining_settings(settings, "B4", "B1", state=tmp_path / "B4")
        if routing == "destination":  # it numbers brokers: the file has to know those that join
            settings = with_changes(settings, urls=about.urls)
        async with running(settings) as nodes, joined(about) as guest:
            everyone = {**nodes, "B4": guest}
            async with (
                connect(settings["B1"].listen, name="one") as one,
                connect(guest.settings.listen, name="four") as four,
                connect(settings["B3"].listen, name="p") as publisher,
            ):
                await publisher.advertise("[n,>=,0]")
                async with one.subscribe("[n,>=,0]") as ones, four.subscribe("[n,>=,0]") as fours:
                    found = [], []
                    tasks = [asyncio.create_task(collected(*each)) for each in zip((ones, fours), found, strict=True)]
                    async with Numbers(publisher) as numbers:
                        await asyncio.sleep(0.3)
                        await change(everyone, guest, links)
                        await asyncio.sleep(0.3)
                    await publisher.flush()
                    await until(lambda: all(len(each) >= numbers.count for each in found), WITHIN_S, "that all has arrived")
                    await asyncio.sleep(0.2)
                    assert found[0] == found[1] == list(range(numbers.count))
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            await until(lambda: neighbours(everyone) == {frozenset(each) for each in links}, WITHIN_S, "that old links are gone")
            assert all(node.health_problem() is None for node in everyone.values())
            assert list(dict(nodes["B3"].directory.others())) == ["B4", "B1", "B2"]

    run(work())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_link_that_began_as_that_of_a_guest_is_dialled_again(is_restarted):
    """The connection breaks, or the contact restarts after the network file was written anew."""

    async def work():
        settings = network_settings(CHAIN)
        about = joining_settings(settings, "B4", "B1")
        async with running(settings) as nodes, joined(about) as guest:
            await change({**nodes, "B4": guest}, guest, INNER)
            if is_restarted:
                await nodes["B1"].stop()
                new = {"overlay": Overlay([*CHAIN.ids, "B4"], INNER), "epoch": 1, "urls": about.urls}
                nodes["B1"] = BrokerNode(with_changes({"B1": settings["B1"]}, **new)["B1"])
                await nodes["B1"].start()
            else:
                old = guest.peers["B1"]
                nodes["B1"].peers["B4"].close()
                await until(lambda: guest.peers.get("B1") is not old, WITHIN_S, "that it is lost")
            ends = (nodes["B1"], "B4"), (guest, "B1")
            await until(
                lambda: all(other in node.core.established_neighbours() for node, other in ends),
                WITHIN_S,
                "that the link is there again",
            )

    run(work())


def test_brokers_that_restart_have_the_present_overlay_not_that_of_their_file(tmp_path):
    async def work():
        settings = network_settings(CHAIN)
        stateful = {id: with_changes({id: each}, state=tmp_path / id)[id] for id, each in settings.items() if id != "B3"}
        settings = {**settings, **stateful}
        about = joining_settings(settings, "B4", "B1", state=tmp_path / "B4")
        nodes = {}
        async with running(settings) as first, joined(about) as guest:
            await change({**first, "B4": guest}, guest, STAYS)
            assert not any(node.links.get(each).guest for node in (*first.values(), guest) for each in node.links.neighbours)
        # B1 restarts after the network file was written anew, the others before.
        new = {"overlay": Overlay([*CHAIN.ids, "B4"], STAYS), "epoch": 1, "urls": about.urls}
        settings["B1"] = with_changes({"B1": settings["B1"]}, **new)["B1"]
        try:  # B3 has no journal: it knows the file only, in which its neighbour is B2
            for id, each in {**settings, "B4": about}.items():
                nodes[id] = BrokerNode(each)
                await nodes[id].start()
            await until(
                lambda: (
                    neighbours(nodes) == {frozenset(each) for each in STAYS}
                    and all(len(node.core.established_neighbours()) == len(node.links.neighbours) for node in nodes.values())
                ),
                WITHIN_S,
                "that the links of the change are there",
            )
            assert {node.core.overlay_state().change for node in nodes.values()} == {"a plan"}
            async with connect(settings["B1"].listen) as one, connect(about.listen) as four:
                await one.advertise("[n,>=,0]")
                async with four.subscribe("[n,>=,0]") as numbers:
                    await one.publish({"n": 7})
                    assert (await asyncio.wait_for(anext(aiter(numbers)), 20))["n"] == 7
        finally:
            for node in nodes.values():
                await node.stop()

    run(work())
