"""The checker of chaos runs finds each kind of violation, and rules exclude what they say and nothing else."""

import msgspec
import pytest

from overweave.testing.chaos.checker import check
from overweave.testing.chaos.configurations import CONFIGURATIONS, configuration
from overweave.testing.chaos.history import (
    Flushed,
    Got,
    History,
    Publishing,
    Subscribing,
    SubscriptionReturned,
    Trouble,
    Unsubscribing,
    Writer,
    read_history,
)
from overweave.testing.chaos.rules import EXPIRED, KEPT, LEFT, UNREACHABLE, InjectedFault, Rules
from overweave.testing.chaos.schedule import LASTING_S, link_routes, make_schedule

GOOD = [
    Subscribing(1.0, "s", "subscribers0", "B3", "[class,eq,'C0'],[x,>,5]"),
    SubscriptionReturned(1.5, "s"),
    Publishing(2.0, "p", "B1", 0, "C0", 7),
    Publishing(2.1, "p", "B1", 1, "C0", 3),
    Publishing(2.2, "p", "B1", 2, "C0", 8),
    Got(2.4, "s", 0, "C0", 7),
    Got(2.5, "s", 2, "C0", 8),
    Flushed(2.6, "p", 2),
]


def judged(*changes, without=(), rule=lambda *_: None):
    """The verdict on the good history without some of its events and with others."""
    history = History()
    history.add([event for event in GOOD if not isinstance(event, tuple(without))] + list(changes))
    return check(history, rule)


def counts(verdict):
    names = ("lost", "duplicated", "wrong", "order_violations", "unsettled")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


def test_a_good_history():
    verdict = judged()
    assert not verdict.failed
    assert (verdict.publications, verdict.acknowledged, verdict.expected) == (3, 3, 2)
    assert counts(verdict) == {}


def test_what_does_not_arrive_is_lost():
    verdict = judged(without=[Got])
    assert verdict.failed
    assert counts(verdict) == {"lost": 2}
    assert "lost: 0 of p at B1" in verdict.examples[0]


def test_what_a_rule_excludes_is_counted_by_rule():
    verdict = judged(without=[Got], rule=lambda sent, _: "a rule" if sent.number == 2 else None)
    assert (verdict.lost, verdict.excluded) == (1, {"a rule": 1})


def test_a_rule_is_not_asked_about_what_arrives():
    assert judged(rule=lambda *_: "a rule").excluded == {}


@pytest.mark.parametrize(
    ("found", "event"),
    [
        ({"duplicated": 1}, Got(2.6, "s", 2, "C0", 8)),
        ({"wrong": 1}, Got(2.6, "s", 1, "C0", 3)),
        ({"wrong": 1}, Got(2.6, "s", 0, "C0", 9)),
        ({"wrong": 1}, Got(2.6, "s", 9, "C0", 9)),
        ({"wrong": 1}, Got(2.6, "nobody", 2, "C0", 8)),
        ({"unsettled": 1}, Publishing(3.0, "p", "B1", 3, "C0", 3)),
    ],
)
def test_each_violation_is_found(found, event):
    verdict = judged(event)
    assert verdict.failed
    assert counts(verdict) == found


def test_order_is_counted_apart():
    verdict = judged(Got(2.6, "s", 2, "C0", 8), Got(2.7, "s", 0, "C0", 7), without=[Got])
    assert counts(verdict) == {"order_violations": 1}
    assert not verdict.failed


@pytest.mark.parametrize(
    "late",
    [
        [SubscriptionReturned(2.3, "s")],
        [SubscriptionReturned(1.5, "s"), Unsubscribing(2.55, "s")],
        [],
    ],
)
def test_what_is_not_due(late):
    assert judged(*late, without=[Got, SubscriptionReturned]).expected == 0


def test_who_leaves_after_the_acknowledgement_must_have_it():
    assert judged(Unsubscribing(2.7, "s"), without=[Got]).lost == 2


def test_histories_are_read_as_they_were_written(tmp_path):
    writer = Writer(tmp_path / "one.jsonl")
    events = [*GOOD, Unsubscribing(3.0, "s", "slow-consumer"), Trouble(3.1, "s", "why")]
    for event in events:
        writer.write(event)
    writer.close()
    history = read_history([tmp_path / "one.jsonl"])
    expected = History()
    expected.add(events)
    assert history == expected
    assert history.interests["s"].reason == "slow-consumer"


# ---- rules


def excluded(*injected, name="filter-chain", changes=(), **options):
    chosen = msgspec.structs.replace(configuration(name), **options)
    return judged(
        *changes, without=[Got], rule=Rules(chosen, chosen.protocols[0], list(injected), link_timeout_s=2.0, session_s=30.0)
    ).excluded


def down(target, from_s, until_s, kind="kill"):
    return InjectedFault(kind=kind, target=target, from_s=from_s, until_s=until_s)


CRASH, AWAY = down("B3", 2.3, 5.0), down("subscribers0", 1.9, 3.0, "stop-clients")


def test_without_a_reason_nothing_is_excluded():
    assert excluded(CRASH, AWAY) == {}
    assert excluded(name="destination-graph") == {}


def test_who_was_told_is_excluded():
    assert excluded(changes=[Unsubscribing(2.7, "s", "slow-consumer")]) == {"subscriber told slow-consumer": 2}
    assert excluded(changes=[Unsubscribing(2.7, "s")]) == {}
    assert excluded(changes=[Unsubscribing(2.7, "s", "bad-frame")]) == {}


def test_who_was_away_for_too_long_is_excluded():
    assert excluded(down("subscribers0", 1.0, 40.0, "stop-clients")) == {EXPIRED: 2}
    assert excluded(down("subscribers1", 1.0, 40.0, "stop-clients")) == {}


def test_what_was_kept_by_a_broker_that_crashed_is_excluded():
    assert excluded(CRASH, AWAY, stall_timeout_s=0.5) == {KEPT: 2}
    assert excluded(CRASH, stall_timeout_s=0.5) == {}
    assert excluded(AWAY, stall_timeout_s=0.5) == {}
    assert excluded(down("B3", 1.0, 1.9), AWAY, stall_timeout_s=0.5) == {}


def test_who_left_while_its_broker_kept_something_for_it_is_excluded():
    leaves = [Unsubscribing(2.7, "s")]
    assert excluded(AWAY, changes=leaves, stall_timeout_s=0.5) == {LEFT: 2}
    assert excluded(AWAY, changes=leaves, stall_timeout_s=None) == {}
    assert excluded(changes=leaves, stall_timeout_s=0.5) == {}
    assert excluded(down("subscribers0", 0.1, 0.5, "stop-clients"), changes=leaves, stall_timeout_s=0.5) == {}


@pytest.mark.parametrize(
    ("rule", "injected"),
    [
        ({UNREACHABLE: 2}, [down("B3", 1.0, 4.0)]),
        ({}, [down("B3", 1.0, 1.5)]),  # before anybody noticed
        ({}, [down("B1", 1.0, 4.0)]),  # the publisher's own broker is no excuse
        ({}, [down("B2", 1.0, 4.0)]),  # there is another way round
        ({UNREACHABLE: 2}, [down("B2", 1.0, 4.0), down("B4", 1.0, 4.0)]),
        ({UNREACHABLE: 2}, [down("B2", 1.0, 4.0), down("B4>B1", 1.0, 4.0, "cut")]),
        ({}, [down("B3", 10.0, 14.0)]),
    ],
)
def test_whose_broker_cannot_be_reached_is_excluded_where_routing_finds_paths(rule, injected):
    assert excluded(*injected, name="destination-pauses", stall_timeout_s=None) == rule
    assert excluded(*injected, name="general-ring") == {}


# ---- schedules


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_schedules_follow_from_their_seed_and_hit_what_there_is(name):
    chosen = configuration(name)
    schedule = make_schedule(chosen, 3, 180.0)
    assert schedule == make_schedule(chosen, 3, 180.0) != make_schedule(chosen, 4, 180.0)
    assert {fault.kind for fault in schedule.faults} >= {
        "kill",
        "stop",
        "stop-clients",
        "cut",
        "trickle",
        "stall",
        "truncate",
        "reset",
    }
    links = {f"{one}>{other}" for one, other in link_routes(chosen)}
    for fault in schedule.faults:
        assert 0 < fault.at_s < 180
        assert (fault.for_s == 0) == (fault.kind not in LASTING_S) or fault.kind in ("kill", "restart-all")
        if fault.kind in ("kill", "stop"):
            assert fault.target in chosen.overlay.ids
        elif ">" in fault.target:
            assert fault.target in links or fault.target.split(">")[1] in chosen.overlay.ids


def test_there_are_fourteen_and_they_cover_every_protocol():
    from overweave.routing import PROTOCOLS

    assert len(CONFIGURATIONS) == 14
    assert {protocol for each in CONFIGURATIONS.values() for protocol in each.protocols} == set(PROTOCOLS)
    for each in CONFIGURATIONS.values():
        assert each.overlay.is_tree() or not any(PROTOCOLS[protocol].acyclic for protocol in each.protocols), each.name
