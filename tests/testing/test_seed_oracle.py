"""The oracle of simulated seeds finds what is wrong, in histories made by hand and in networks that were broken."""

import pytest

from overweave.broker.client import ClientCore
from overweave.broker.client_control import ClientControl
from overweave.broker.lifecycle import PeerLifecycle
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.performers import EffectPerformers
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.routing import PROTOCOLS
from overweave.testing.seeds import FAULT_CLASSES, draw, run_seed
from overweave.testing.seeds.checks import Delivered, History, Published, Subscribed, check
from overweave.testing.seeds.reach import Reach
from overweave.testing.seeds.runner import main

CONTENT = Publication({"class": "C0", "x": 5, "n": 0})


def history(delivered=((1.1, CONTENT),), fresh=False, filter="[x,>,3]", **subscribed):
    times = {"said_s": 0.1, "in_force_s": 0.2} | subscribed
    return History(
        {0: Published(number=0, client="p", broker="B1", content=CONTENT, at_s=1.0, settled_s=1.2, fresh=fresh)},
        {"s": Subscribed(id="s", broker="B2", filter=parse_filter(filter), **times)},
        [Delivered(at_s, "s", int(content["n"]), content) for at_s, content in delivered],
    )


def wrong(history, excused=lambda *_: False):
    return [failure.property for failure in check(history, excused)]


def test_a_good_history():
    assert wrong(history()) == []


@pytest.mark.parametrize(
    ("property", "what"),
    [
        ("in-force", {"delivered": ()}),
        ("in-force", {"delivered": (), "ends_s": 1.3}),
        ("convergence", {"delivered": (), "fresh": True}),
        ("convergence", {"delivered": (), "fresh": True, "in_force_s": None}),
        ("once", {"delivered": [(1.1, CONTENT), (1.2, CONTENT)]}),
        ("once", {"filter": "[x,>,7]"}),
        ("once", {"delivered": [(1.1, CONTENT), (1.1, Publication({"class": "C0", "x": 5, "n": 1}))]}),
        ("once", {"delivered": [(1.1, Publication({"class": "C0", "x": 6, "n": 0}))]}),
        ("settlement", {"delivered": [(1.3, CONTENT)]}),
    ],
)
def test_every_kind_of_violation_is_found(property, what):
    assert wrong(history(**what)) == [property]


@pytest.mark.parametrize("what", [{"in_force_s": None}, {"in_force_s": 1.1}, {"ends_s": 1.1}, {"filter": "[x,>,7]"}])
def test_what_need_not_arrive(what):
    assert wrong(history(delivered=(), **what)) == []


def test_what_a_rule_excuses_need_not_arrive():
    assert wrong(history(delivered=()), excused=lambda *_: True) == []


def failing(seeds=range(6), **options):
    return {failure.property for seed in seeds for failure in run_seed(seed, "flooding", **options).failures}


def test_good_networks_fail_nothing():
    assert failing() == set()


def test_lost_and_doubled_deliveries_are_found(monkeypatch):
    deliver = EffectPerformers._deliver
    monkeypatch.setattr(EffectPerformers, "_deliver", lambda self, effect: None)
    assert failing() == {"in-force", "convergence"}
    monkeypatch.setattr(EffectPerformers, "_deliver", lambda self, effect: [deliver(self, effect) for _ in range(2)])
    assert failing() == {"once"}


def test_clients_that_never_settle_are_found(monkeypatch):
    monkeypatch.setattr(ClientCore, "unsettled", lambda self: 1)
    assert "settlement" in failing(range(1))


def test_brokers_that_forget_to_forget_are_found(monkeypatch):
    monkeypatch.setattr(ClientControl, "withdraw_slice", lambda self: None)
    assert "state" in failing()


def test_errors_of_cores_are_found(monkeypatch):
    monkeypatch.setattr(PeerLifecycle, "on_left", lambda self, stimulus: 1 / 0)
    assert "error" in failing()


def test_the_same_seed_gives_the_same_run():
    assert [run_seed(seed) for seed in range(8)] == [run_seed(seed) for seed in range(8)]


def test_all_protocols_and_faults_are_drawn_and_overlays_fit():
    drawn = [draw(seed) for seed in range(300)]
    assert {each.protocol for each in drawn} == set(PROTOCOLS)
    assert set().union(*(each.classes for each in drawn)) == set(FAULT_CLASSES)
    assert all(each.overlay.is_tree() for each in drawn if PROTOCOLS[each.protocol].acyclic)
    assert any(not each.overlay.is_tree() for each in drawn)
    assert draw(5, classes=()).faults == Faults(
        **{
            name: getattr(draw(5).faults, name)
            for name in ("delay_spike_s", "cut_s", "crash_s", "partition_s", "pause_s", "until_s")
        }
    )


def test_who_is_cut_off_is_excused_and_nobody_else():
    scenario = draw(1, protocol="destination", classes=())
    chain = type(scenario)(**{name: getattr(scenario, name) for name in scenario.__struct_fields__} | {"overlay": draw_chain()})
    network = SimulatedNetwork(chain.overlay, PROTOCOLS["destination"].make, 1, config=chain.config)
    reach = Reach(chain.overlay, "destination", chain.config.link_timeout_s, network, until_s=40.0)
    network.scheduler.run(10.0)
    network.cut_link(("B1", "B2"), for_s=3.0)
    network.scheduler.run(40.0)
    assert reach.excuses("B1", "B3", 11.0)
    assert not reach.excuses("B2", "B3", 11.0)
    assert not reach.excuses("B1", "B3", 30.0)


def draw_chain():
    from overweave.overlay.shapes import make_overlay

    return make_overlay("chain", brokers=3)


def test_the_runner_lists_what_fails_and_how_to_see_it_again(monkeypatch, capsys):
    arguments = ["--seeds", "3", "--jobs", "1", "--protocol", "flooding", "--faults", "none"]
    assert main(arguments) == 0
    monkeypatch.setattr(EffectPerformers, "_deliver", lambda self, effect: None)
    assert main([*arguments, "--property", "once"]) == 0
    capsys.readouterr()
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "3 seeds" in said
    assert "--first 1 --seeds 1 --protocol flooding --faults none" in said


def test_the_runner_uses_processes(capsys):
    assert main(["--seeds", "3", "--jobs", "2", "--protocol", "flooding", "--property", "once"]) == 0
    assert "3 seeds" in capsys.readouterr().out


def test_an_interrupted_runner_says_what_is_done(monkeypatch, capsys):
    def interrupt(seed, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("overweave.testing.seeds.runner.run_seed", interrupt)
    assert main(["--seeds", "3", "--jobs", "1"]) == 130
    assert "interrupted" in capsys.readouterr().out
