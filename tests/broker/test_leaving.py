"""Clients leave in slices: the end is the same as if they had left at once, whoever comes back meanwhile."""

import random
from itertools import pairwise

import pytest

from overweave.broker import leaving
from overweave.broker.leaving import Leaving
from overweave.contract.effects import SetTimer
from overweave.contract.frames import ControlFrame, Hello, SessionEpoch, SyncEnd
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerLeft, TimerFired
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

MANY = 5 * leaving.SLICE + 3
STOCK = parse_filter("[class,eq,'STOCK'],[x,isPresent,0]")


def test_slices_are_in_order_and_leave_out_what_is_kept():
    due = Leaving()
    keys = [("subscription", f"s{i}") for i in range(leaving.SLICE)] + [("advertisement", "a")]
    due.add("c", keys)
    due.add("d", [])
    due.keep("c", ("subscription", "s1"))
    due.keep("unknown", ("subscription", "s1"))
    first, done = due.next_slice()
    assert first == [("c", Unsubscribe(id)) for _, id in keys[:-1] if id != "s1"] + [("c", Unadvertise("a"))]
    assert done == ["c", "d"]
    assert not due
    due.add("c", keys)
    assert len(due.next_slice()[0]) == leaving.SLICE
    assert due
    due.cancel("c")
    assert not due


def network(protocol):
    made = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS[protocol].make)
    for client, broker in (("p", "B2"), ("s", "B1"), ("other", "B1")):
        made.add_client(client, broker)
    made.say("p", Advertise("a", STOCK))
    made.say("other", Subscribe("other/1", parse_filter("[x,>,0]")))
    for number in range(MANY):
        made.say("s", Subscribe(f"s/{number}", parse_filter(f"[class,eq,'STOCK'],[x,=,{number}]")))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 1)
    return made


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_last_slice_leaves_nothing_and_no_slice_is_long(protocol, monkeypatch):
    made = network(protocol)
    core = made.broker("B1")
    before = core.registration_count("subscription")
    assert before == MANY + 1
    counts = [before]
    handle = core.handle

    def counted(stimulus, now_s):
        effects = handle(stimulus, now_s)
        counts.append(core.registration_count("subscription"))
        core.validate()
        return effects

    monkeypatch.setattr(core, "handle", counted)
    made.scheduler.run(made.scheduler.now_s + 0.001)
    effects = core.handle(PeerLeft("s"), made.scheduler.now_s)
    slices = 1
    while any(isinstance(effect, SetTimer) and effect.name == leaving.LEAVE for effect in effects):
        assert "s" in core.clients()
        effects = core.handle(TimerFired(leaving.LEAVE), made.scheduler.now_s)
        slices += 1
    assert slices == 6
    assert max(a - b for a, b in pairwise(counts)) <= leaving.SLICE
    assert core.registration_count("subscription") == 1
    assert core.registration_count("subscription", "s") == 0
    assert "s" not in core.clients()


def test_publications_for_a_client_that_is_leaving_are_for_nobody():
    made = network("filter")
    core = made.broker("B1")
    core.handle(PeerLeft("s"), made.scheduler.now_s)
    assert core.registration_count("subscription", "s") > 0
    made.publish("p", parse_publication(f"[class,'STOCK'],[x,{MANY - 1}]"))
    made.run_until_quiescent()
    assert made.deliveries == {("p", 0, "other/1"): 1}
    assert not made.broker("B2").statistics().unsettled


@pytest.mark.parametrize("protocol", ["filter", "simple", "destination", "filter-general"])
@pytest.mark.parametrize("seed", range(3))
def test_who_comes_back_while_it_leaves_has_what_it_says_then(protocol, seed):
    made, dice = network(protocol), random.Random(seed)
    made.remove_client("s")
    if seed:
        made.scheduler.run(made.scheduler.now_s + 0.0001)
    assert seed or made.broker("B1").registration_count("subscription", "s") > 0
    made.add_client("s", "B1")
    wanted = {}
    for number in dice.sample(range(MANY), 100):
        # The same id may stand for another filter now, and some are withdrawn again.
        wanted[f"s/{number}"] = value = number if dice.random() < 0.7 else number + 1
        made.say("s", Subscribe(f"s/{number}", parse_filter(f"[class,eq,'STOCK'],[x,=,{value}]")))
        if dice.random() < 0.2:
            made.say("s", Unsubscribe(f"s/{number}"))
            del wanted[f"s/{number}"]
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 2)
    core = made.broker("B1")
    core.validate()
    assert core.registration_count("subscription", "s") == len(wanted)
    made.publish("p", *(parse_publication(f"[class,'STOCK'],[x,{x}]") for x in range(1, MANY + 1)))
    made.run_until_quiescent()
    expected = {("p", x - 1, "other/1") for x in range(1, MANY + 1)}
    expected |= {("p", value - 1, id) for id, value in wanted.items() if value}
    assert set(made.deliveries) == expected
    assert set(made.deliveries.values()) == {1}


def test_what_a_client_says_while_its_old_messages_are_withdrawn_stays():
    core = network("filter").broker("B1")
    core._parts.clients._leave("s", core._registry.keys_of("s"))
    rest = core.registration_count("subscription", "s")
    session = core._sessions["s"]
    again = Subscribe(f"s/{MANY - 1}", parse_filter(f"[class,eq,'STOCK'],[x,=,{MANY - 1}]"))
    frame = ControlFrame(session.peer_epoch, session.epoch, session.inbound.expected, 0, again)
    core.handle(FrameArrived("s", frame), 1e6)
    while core._parts.clients.leaving:
        core.handle(TimerFired(leaving.LEAVE), 1e6)
    assert rest == MANY - leaving.SLICE
    assert core.registration_count("subscription", "s") == 1
    assert "s" in core.clients()
    core.validate()


def test_of_a_client_that_is_back_nothing_is_withdrawn_before_it_has_said_all():
    core = network("filter").broker("B1")
    core.handle(PeerLeft("s"), 1e6)
    core.handle(PeerConnected("s", client=True), 1e6)
    session = core._sessions["s"]
    core.handle(FrameArrived("s", Hello(SessionEpoch(9, 0), session.epoch, 0, 0, True)), 1e6)
    rest = core.registration_count("subscription", "s")
    core.handle(TimerFired(leaving.LEAVE), 1e6)
    assert core.registration_count("subscription", "s") == rest == MANY - leaving.SLICE
    core.handle(FrameArrived("s", ControlFrame(SessionEpoch(9, 0), session.epoch, 0, 0, SyncEnd())), 1e6)
    while core._parts.clients.leaving:
        core.handle(TimerFired(leaving.LEAVE), 1e6)
    assert core.registration_count("subscription", "s") == 0
    assert "s" in core.clients()
