"""``overweave apply`` and ``overweave undo`` against live brokers in a thread."""

import asyncio
import contextlib
import io
import json
import os
import signal
import threading

import msgspec
import pyarrow as pa
import pytest
from planned import put, words

from overweave.cli.client_options import Credentials
from overweave.cli.operators import operator_at, operator_of, target_of
from overweave.cli.plan_files import read_plan
from overweave.cli.plan_profiles import mark
from overweave.cli.reweave import Reweaver
from overweave.cli.reweave_history import history_path
from overweave.contract.overlay_state import EpochTree, Phase, first_state
from overweave.drivers.tcp import apply as drivers_apply
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.apply import LiveApply
from overweave.drivers.tcp.blocking import connect_blocking
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.overlay_file import LiveFile, backup_paths, locked, read_backup
from overweave.drivers.tcp.overlay_operators import OverlayOperators
from overweave.drivers.tcp.ports import free_ports
from overweave.errors import OverweaveError
from overweave.planning.evidence import evidence_of
from overweave.planning.make import make_plan
from overweave.planning.plan import Before, BrokerLoad
from overweave.planning.planned_for import PlannedFor
from overweave.reweave.hysteresis import Limits
from overweave.routing import registry
from overweave.routing.base import Engine
from overweave.routing.flooding import Flooding
from overweave.routing.registry import RoutingProtocol
from overweave.testing.live import running
from overweave.testing.planning import random_problem

TOKENS = """
[[client]]
name = "market"
token = "all"
publish = ["*"]
subscribe = ["*"]
[[client]]
name = "ops"
token = "operate"
control = true
""" + "".join(f'[[broker]]\nid = "B{n}"\ntoken = "broker"\n' for n in (1, 2, 3))


@contextlib.contextmanager
def live(directory, more="", routing="filter", ports=None, capacities=("", "", "")):
    """A chain of three brokers in a thread; their network file and URLs."""
    file, ports = directory / "network.toml", ports or free_ports(3)
    brokers = "".join(
        f'[[broker]]\nid = "B{n}"\nlisten = "tcp://127.0.0.1:{port}"\n{capacities[n - 1]}' for n, port in enumerate(ports, 1)
    )
    links = "".join(f'[[link]]\nbetween = ["B{n}", "B{n + 1}"]\n' for n in (1, 2))
    file.write_text(f'[network]\nrouting = "{routing}"\n{brokers}{links}{more}')
    found, started = read_network(file), threading.Event()
    loop, stopped = asyncio.new_event_loop(), asyncio.Event()

    async def serve():
        async with running({id: found.settings(id) for id in found.overlay.ids}):
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    try:
        yield file, found.urls
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


def plan_for(file, brokers, clients, publishers=None, links=(), load=0.4):
    """A plan file for the network of a file."""
    overlay, problem = read_network(file).overlay, random_problem(1, brokers=4, clients=6, fill=0.3)
    known = {
        each.id: (each.output_bandwidth_bytes_per_s, each.matching_delay_base_s, each.matching_delay_per_subscription_s)
        for each in overlay.brokers
    }
    plan = msgspec.structs.replace(
        make_plan(problem, seed=1, evidence=evidence_of(problem)),
        brokers=brokers, links=links, clients=clients, subscribers={}, publishers=publishers or {}, changes=(), before=None,
        load={id: BrokerLoad(10.0, 1000.0, 0.1, load) for id in brokers},
        network=PlannedFor(brokers=known, links=tuple(sorted(link.ends for link in overlay.links))),
    )  # fmt: skip
    (file.parent / "plan.json").write_bytes(plan.encode())
    return file.parent / "plan.json"


@pytest.mark.parametrize("routing", ["filter", "destination", "merc"])
def test_a_plan_is_applied_while_a_client_publishes(run, tmp_path, routing):
    with live(tmp_path, routing=routing) as (file, urls):
        stopped, sent = threading.Event(), []

        def publish():
            with connect_blocking(urls["B3"], name="market") as market:
                market.advertise("[x,>=,0]")
                while not stopped.wait(0.005):
                    market.publish({"x": len(sent)})
                    sent.append(len(sent))
                market.flush()

        with (
            connect_blocking(urls["B1"], name="near") as near,
            connect_blocking(urls["B3"], name="far") as far,
            near.subscribe("[x,>=,0]") as at_near,
            far.subscribe("[x,>=,0]") as at_far,
        ):
            thread = threading.Thread(target=publish)
            thread.start()
            places = {"near": "B1", "far": "B2", "market": "B1"}
            plan = plan_for(file, ("B1", "B2"), {"near": "B1", "far": "B2"}, {"market": "B1"}, (("B1", "B2"),))
            status, out, _ = run("apply", plan, "--network", file, "--dry-run")
            assert status == 0
            assert "brokers     3 now, 2 afterwards, 1 stop" in out
            status, out, err = run("apply", plan, "--network", file, "--yes", "--json")
            assert status == 0, err
            report = json.loads(out)
            assert report["applied"]
            assert list(report["phases"]) == ["1 prepared", "1 used", "1 closed", "1 trimmed"]
            # Equal brokers may stand for each other: the places of the plan need not be those of its names.
            assert set(report["moved"].items()) <= set(places.items()) | {("near", "B2"), ("far", "B3"), ("market", "B3")}
            assert len(read_network(file).overlay.ids) == 2
            status, out, _ = run("apply", plan, "--network", file, "--yes")
            assert (status, out) == (0, "the network is as planned: nothing to do\n")
            status, out, _ = run("apply", "--abort", "--network", file)
            assert (status, out) == (0, "no change is in progress\n")
            status, out, _ = run("apply", "--status", "--network", file)
            assert "overlay epoch 1, phase trimmed; publications travel in epoch 1" in out
            stopped.set()
            thread.join()
            for found in (at_near, at_far):
                assert [found.get(timeout_s=10)["x"] for _ in sent] == sent
                with pytest.raises(TimeoutError):
                    found.get(timeout_s=0.3)


def test_a_file_that_is_written_anew_is_always_kept(tmp_path):
    """Also where the change was begun with another copy of the file, as on another machine."""
    file = tmp_path / "network.toml"
    file.write_text('[network]\nshape = "chain"\nbrokers = 3\nport = 7400\n')
    before, first = file.read_bytes(), first_state(read_network(file).overlay, {}, epoch=1)
    star = EpochTree(first.current, ("B1", "B2", "B3"), (("B1", "B2"), ("B1", "B3")))
    LiveFile(file).write(msgspec.structs.replace(first, trees=(star,)))
    assert file.read_bytes() != before
    assert backup_paths(file, 1)[0].read_bytes() == before
    LiveFile(file).write(first)
    assert backup_paths(file, 1)[0].read_bytes() == before
    assert read_backup(file, 1).clients == {}


def test_plans_for_another_network_and_overloads_are_rejected_by_name(run, tmp_path):
    with live(tmp_path) as (file, _):
        plan = plan_for(file, ("B1",), {})
        other = json.loads(plan.read_text())
        other["network"]["brokers"]["B9"] = [1.0, 1.0, 1.0]
        (tmp_path / "other.json").write_text(json.dumps(other))
        status, _, err = run("apply", tmp_path / "other.json", "--network", file, "--yes")
        assert status == 2
        assert "made for another network: broker 'B9' is not in it" in err
        status, _, err = run("apply", plan_for(file, ("B1",), {}, load=1.4), "--network", file, "--yes")
        assert status == 2
        assert "expected a utilisation of at most 100%, estimated 140.0%" in err
        status, _, err = run("apply", plan_for(file, ("B1", "B2"), {}, links=(("B1", "B2"),)), "--network", file)
        assert status == 2
        assert "--yes: expected, because standard input is not a terminal" in err
        status, _, err = run("undo", "--network", file, "--yes")
        assert status == 2
        assert "nothing can be undone" in err
    status, _, err = run("apply", plan, "--network", file)
    assert status == 1
    assert "no broker answers" in err


def test_ctrl_c_stops_after_the_current_step_and_the_same_command_resumes(run, tmp_path, monkeypatch):
    publish = LiveApply._publish

    async def interrupted(self, state, observation):
        if state.version.phase == Phase.USED:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.2)  # the signal is handled here, in the middle of a step
        await publish(self, state, observation)

    with live(tmp_path) as (file, urls), connect_blocking(urls["B3"], name="far") as far, far.subscribe("[x,>=,0]"):
        plan = plan_for(file, ("B1", "B2"), {"far": "B2"}, links=(("B1", "B2"),))
        before = file.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(LiveApply, "_publish", interrupted)
            status, out, err = run("apply", plan, "--network", file, "--yes")
        assert status == 130
        assert "stopping after the current step" in err
        assert out.endswith("stopped after the current step; the same command resumes\n")
        assert file.read_bytes() == before
        assert "overlay epoch 1, phase used; publications travel in epoch 1" in run("apply", "--status", "--network", file).out
        status, out, err = run("apply", plan, "--network", file, "--yes")
        assert status == 0, err
        assert out.startswith("resuming a change in progress\n")
        assert "overlay epoch 1, phase trimmed" in run("apply", "--status", "--network", file).out


class Terminal(io.BytesIO):
    def isatty(self):
        return True


def test_a_change_that_is_not_confirmed_changes_nothing(run, tmp_path):
    with live(tmp_path) as (file, _):
        plan, before = plan_for(file, ("B1", "B2"), {}, links=(("B1", "B2"),)), file.read_bytes()
        for answer in (b"n\n", b"\n", b""):
            status, out, err = run("apply", plan, "--network", file, stdin=Terminal(answer))
            assert status == 1
            assert "brokers     3 now, 2 afterwards, 1 stop" in out
            assert "apply? [y/N] " in err
            assert "nothing was changed" in err
            assert file.read_bytes() == before
            unchanged = run("apply", "--status", "--network", file).out
            assert "overlay epoch 0, phase trimmed; publications travel in epoch 0" in unchanged
        status, _, err = run("apply", plan, "--network", file, stdin=Terminal(b"y\n"))
        assert status == 0, err
        assert len(read_network(file).overlay.ids) == 2


def test_a_second_change_on_this_machine_is_refused(run, tmp_path):
    with live(tmp_path) as (file, _):
        plan = plan_for(file, ("B1", "B2"), {}, links=(("B1", "B2"),))
        for verb in (["apply", plan], ["undo"], ["apply", "--abort"]):
            with locked(file):
                status, _, err = run(*verb, "--network", file, *([] if "--abort" in verb else ["--yes"]))
            assert status == 1, verb
            assert f"{file}: another change of this network is running" in err
        assert run("apply", plan, "--network", file, "--yes").status == 0


def test_a_client_that_may_publish_everything_cannot_apply(run, tmp_path):
    (tmp_path / "tokens.toml").write_text(TOKENS)
    with live(tmp_path, '[security]\ntokens = "tokens.toml"\ntoken = "broker"\n') as (file, urls):
        plan = plan_for(file, ("B1", "B2"), {}, links=(("B1", "B2"),))
        at = ["--network", file]
        for verb in (
            ["apply", plan, *at], ["undo", *at], ["apply", "--abort", *at], ["apply", "--status", *at],
            ["drain", "B1", file], ["move", "market", "--to", "B2", file], ["plan", urls["B1"], "--window", "1"],
        ):  # fmt: skip
            status, _, err = run(*verb, "--name", "market", "--token", "all")
            assert status == 1, verb
            assert "not-allowed: client 'market~" in err, verb
            assert "it needs the permission control" in err, verb
        status, _, _ = run("apply", "--status", "--network", file, "--name", "ops", "--token", "operate")
        assert status == 0


def test_verbs_of_one_operator_do_not_disconnect_each_other(tmp_path):
    """A migration or a profile takes a while; a connection that is lost meanwhile ends it."""
    (tmp_path / "tokens.toml").write_text(TOKENS)

    async def ask_in_turn(network, url):
        credentials = network.credentials
        async with operator_at(network, url) as one, operator_of(credentials, parse_address(url)) as other:
            for operator in (one, other, one, other):
                await operator.clients()

    with live(tmp_path, '[security]\ntokens = "tokens.toml"\ntoken = "broker"\n') as (file, urls):
        asyncio.run(ask_in_turn(target_of(file, Credentials("ops", "operate")), urls["B1"]))


def test_an_operator_whose_name_was_taken_over_asks_again(tmp_path):
    """Another program with the same name does not end a change in progress."""
    (tmp_path / "tokens.toml").write_text(TOKENS)

    def operators_of(network):
        return OverlayOperators(network.network.urls, lambda url: Operator(parse_address(url), None, "ops", "operate"))

    async def observe_twice(network):
        async with operators_of(network) as operators, operators_of(network) as others:
            await operators.observe(("B1",))
            await others.observe(("B1",))
            assert (await operators.observe(("B1",))).brokers.keys() == {"B1", "B2", "B3"}

    with live(tmp_path, '[security]\ntokens = "tokens.toml"\ntoken = "broker"\n') as (file, _):
        asyncio.run(observe_twice(target_of(file, Credentials("ops", "operate"))))


def test_continuous_planning_observes_and_acts_within_its_limits(tmp_path):
    with live(tmp_path) as (file, urls):
        plan = plan_for(file, ("B1", "B2"), {"reader": "B2"}, links=(("B1", "B2"),))
        network = target_of(file, Credentials())
        assert Reweaver(tmp_path / "none.json", file, network, Limits(), 50.0, act=True).round() is None
        with connect_blocking(urls["B3"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            observing = Reweaver(plan, file, network, Limits(saving_min=0.2), 50.0, act=False).round()
            assert (observing.action, round(observing.saving, 2)) == ("would-act", 0.33)
            strict = Reweaver(plan, file, network, Limits(saving_min=0.5), 50.0, act=True).round()
            assert strict.action == "held"
            assert "it would save 33.3%, at least 50.0% is needed" in strict.reason
            assert not history_path(file).exists()
            acting = Reweaver(plan, file, network, Limits(saving_min=0.2), 50.0, act=True)
            assert acting.round().action == "acted"
            found = acting.round()
            assert (found.action, found.reason) == ("held", "the network is as planned")
            assert len(read_network(file).overlay.ids) == 2
            (tmp_path / "plan.json").write_text("{")
            assert acting.round().action == "held"


def test_a_plan_that_moves_more_clients_than_the_budget_is_not_applied(tmp_path):
    with live(tmp_path) as (file, urls):
        plan = plan_for(file, ("B1",), {"one": "B1", "other": "B1"})
        network = target_of(file, Credentials())
        with (
            connect_blocking(urls["B1"], name="one") as one,
            connect_blocking(urls["B3"], name="other") as other,
            one.subscribe("[x,>=,0]"),
            other.subscribe("[x,>=,0]"),
        ):
            poor = Reweaver(plan, file, network, Limits(saving_min=0.2, moves_per_hour_max=0), 50.0, act=True).round()
            assert (poor.action, poor.reason) == ("held", "1 moves exceed the 0 that are left of this hour's budget")
            assert len(read_network(file).overlay.ids) == 3
            rich = Reweaver(plan, file, network, Limits(saving_min=0.2, moves_per_hour_max=1), 50.0, act=True).round()
            assert (rich.action, rich.moves_last_hour) == ("acted", 1)


def test_a_change_that_fails_counts_for_the_budget_of_moves(tmp_path, monkeypatch):
    def fail(*_):
        raise OverweaveError("no space left")

    monkeypatch.setattr(LiveFile, "write", fail)
    with live(tmp_path) as (file, urls):
        plan = plan_for(file, ("B1",), {"one": "B1", "other": "B1"})
        network = target_of(file, Credentials())
        with (
            connect_blocking(urls["B1"], name="one") as one,
            connect_blocking(urls["B3"], name="other") as other,
            one.subscribe("[x,>=,0]"),
            other.subscribe("[x,>=,0]"),
        ):
            reweaver = Reweaver(plan, file, network, Limits(saving_min=0.2, cooldown_s=0.0), 50.0, act=True)
            found = reweaver.round()
            assert (found.action, found.reason, found.moves_last_hour) == ("held", "no space left", 1)
            assert reweaver.round().reason == "the circuit breaker is open: the last change failed: no space left"


def test_budget_and_cooldown_survive_a_restart(tmp_path, capsys):
    with live(tmp_path) as (file, urls):
        plan = plan_for(file, ("B1", "B2"), {"reader": "B2"}, links=(("B1", "B2"),))

        def reweaver():
            return Reweaver(plan, file, target_of(file, Credentials()), Limits(saving_min=0.2), 50.0, act=True)

        with connect_blocking(urls["B3"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            history_path(file).write_text('[{"at_s": 1e12, "moves": 900}]')  # the clock was set back
            found = reweaver().round()
            assert (found.action, found.moves_last_hour) == ("held", 900)
            assert found.reason == "120 s of the cool-down are left"
            history_path(file).write_text("[{")
            assert reweaver().round().reason == "120 s of the cool-down are left"
            assert "network.toml.reweave: expected the changes of 'overweave reweave', found: " in capsys.readouterr().err
            history_path(file).unlink()
            assert reweaver().round().action == "acted"
            plan_for(file, ("B1",), {"reader": "B1"})
            found = reweaver().round()
            assert found.action == "held"
            assert "of the cool-down are left" in found.reason
        assert [each.name for each in tmp_path.glob("*.reweave*")] == ["network.toml.reweave"]


#: No broker can stand for another one.
UNLIKE = tuple(f"matching_delay_base_s = {n}e-5\n" for n in (1, 2, 3))


def plan_that_halves_the_rate(file, clients):
    """A plan that keeps the tree; its saving is that of the places of its clients."""
    path = plan_for(file, ("B1", "B2", "B3"), clients, links=(("B1", "B2"), ("B2", "B3")))
    plan = read_plan(path)
    load = {id: msgspec.structs.replace(each, input_hz=2 * each.input_hz) for id, each in plan.load.items()}
    before = Before(links=plan.links, load=load, totals=plan.totals)
    path.write_bytes(msgspec.structs.replace(plan, before=before).encode())
    return path


def test_a_plan_that_is_applied_saves_no_more_than_its_clients_that_are_elsewhere(tmp_path):
    """A client that comes back at its first URL is no reason for a change, and `undo` still undoes the plan."""
    with live(tmp_path, capacities=UNLIKE) as (file, urls), contextlib.ExitStack() as stack:
        plan = plan_that_halves_the_rate(file, dict.fromkeys(["reader", "c1", "c2", "c3", "c4"], "B2"))
        reweaver = Reweaver(plan, file, target_of(file, Credentials()), Limits(saving_min=0.2, cooldown_s=0.0), 50.0, act=True)
        for name in ("c1", "c2", "c3", "c4"):
            client = stack.enter_context(connect_blocking(urls["B1"], name=name))
            stack.enter_context(client.subscribe("[x,>=,0]"))
        with connect_blocking(urls["B3"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            found = reweaver.round()
            assert (found.action, found.reason, found.moves_last_hour) == ("acted", "it saves 50.0% for 5 moves", 5)
        with connect_blocking(urls["B3"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            found = reweaver.round()
            assert (found.action, found.moves) == ("held", 1)
            assert found.reason == "it would save 10.0%, at least 20.0% is needed"
            assert not list(tmp_path.glob("*.before-2"))


def test_clients_that_cannot_move_are_no_reason_for_another_change(tmp_path, monkeypatch):
    async def reject(*_):
        return "not now"

    monkeypatch.setattr(drivers_apply, "_REST_S", 0.0)
    with live(tmp_path, capacities=UNLIKE) as (file, urls):
        plan = plan_that_halves_the_rate(file, {"reader": "B2"})
        reweaver = Reweaver(plan, file, target_of(file, Credentials()), Limits(saving_min=0.2, cooldown_s=0.0), 50.0, act=True)
        with (
            monkeypatch.context() as patch,
            connect_blocking(urls["B3"], name="reader") as reader,
            reader.subscribe("[x,>=,0]"),
        ):
            patch.setattr(OverlayOperators, "migrate", reject)
            assert reweaver.round().action == "acted"
            found = reweaver.round()
            assert (found.action, found.reason) == ("held", "the network is as planned, except for 1 clients that stayed")
            assert not list(tmp_path.glob("*.before-2"))
        assert reweaver.round().reason == "the network is as planned"
        with connect_blocking(urls["B3"], name="reader") as reader, reader.subscribe("[x,>=,0]"):
            found = reweaver.round()
            assert (found.action, found.moves_last_hour) == ("acted", 1)


def test_the_breaker_opens_when_no_broker_answers(tmp_path):
    with live(tmp_path) as (file, _):
        plan = plan_for(file, ("B1", "B2"), {}, links=(("B1", "B2"),))
        reweaver = Reweaver(plan, file, target_of(file, Credentials()), Limits(saving_min=0.2), 50.0, act=False)
        assert reweaver.round().action == "would-act"
    found = reweaver.round()
    assert found.action == "held"
    assert "the circuit breaker is open: no broker answers: " in found.reason
    with live(tmp_path, ports=[int(url.rpartition(":")[2]) for url in read_network(file).urls.values()]):
        assert "the circuit breaker is open: no broker answers: " in reweaver.round().reason


def test_protocols_whose_overlay_cannot_change(run, tmp_path):
    file = tmp_path / "network.toml"
    file.write_text('[network]\nrouting = "filter-general"\nshape = "chain"\nbrokers = 3\nport = 7400\n')
    status, _, err = run("apply", plan_for(file, ("B1",), {}), "--network", file)
    assert status == 2
    assert "network.routing: 'filter-general': expected a protocol whose overlay can change" in err


@contextlib.contextmanager
def swap(directory):
    """Two clients that change places, and a plan for that: each broker has room for one of them, not for both.

    The brokers are not equal, so that none can stand for the other.
    """
    capacities = [
        f"output_bandwidth_bytes_per_s = {bandwidth}\nmatching_delay_base_s = 1e-5\nmatching_delay_per_subscription_s = 1e-7\n"
        for bandwidth in (1000.0, 5000.0, 1100.0)
    ]
    with live(directory, capacities=capacities) as (file, urls):
        places, links = {"one": "B1", "other": "B3"}, (("B1", "B2"), ("B2", "B3"))
        plan = plan_for(file, ("B1", "B2", "B3"), {"one": "B3", "other": "B1"}, {"market": "B2"}, links)
        with (
            connect_blocking(urls["B1"], name="one") as one,
            connect_blocking(urls["B3"], name="other") as other,
            one.subscribe("[x,>=,0]"),
            other.subscribe("[x,>=,0]"),
        ):
            put(
                directory / "plan.profiles" / "profiles",
                subscription=["s-one", "s-other"],
                publisher=["market", "market"],
                words=pa.array([words(range(64))] * 2, pa.list_(pa.int64())),
            )
            put(
                directory / "plan.profiles" / "publisher_profiles",
                publisher=["market"],
                broker=["B2"],
                publications=[64],
                rate_hz=[6.0],
                bytes_per_s=[600.0],
            )
            put(
                directory / "plan.profiles" / "subscription_lifetimes",
                subscription=["s-one", "s-other"],
                client=list(places),
                broker=list(places.values()),
                filter=["[x,>=,0]"] * 2,
            )
            yield file, plan


def test_a_plan_of_which_a_prefix_overloads_a_broker_is_rejected(run, tmp_path):
    error = "plan: step '1 of 2 moves': broker 'B1': expected a utilisation of at most 100%, predicted 120.0%"
    with swap(tmp_path) as (file, plan):
        profiles = tmp_path / "plan.profiles"
        status, out, err = run("apply", plan, "--network", file, "--dry-run")
        assert status == 0, err
        assert "utilisation estimated" in out, "profiles without a mark are of another plan"
        mark(profiles, str(plan))
        status, _, err = run("apply", plan, "--network", file, "--yes")
        assert status == 2
        assert error in err
        found = Reweaver(plan, file, target_of(file, Credentials()), Limits(saving_min=0.0), 50.0, act=True).round()
        assert found.action == "held"
        assert error in found.reason
        profiles.rename(tmp_path / "elsewhere")
        status, _, err = run("apply", plan, "--network", file, "--yes", "--profiles", tmp_path / "elsewhere")
        assert status == 2
        assert error in err
        plan_for(file, ("B1", "B2", "B3"), {"one": "B1", "other": "B1"}, {"market": "B2"}, (("B1", "B2"), ("B2", "B3")))
        status, _, err = run("apply", plan, "--network", file, "--yes", "--profiles", tmp_path / "elsewhere")
        assert status == 2
        assert "step '1 of 1 moves': broker 'B1'" in err


def test_the_highest_utilisation_of_each_step_is_shown(run, tmp_path):
    with swap(tmp_path) as (file, plan):
        mark(tmp_path / "plan.profiles", str(plan))
        plan_for(file, ("B1", "B2", "B3"), {"one": "B2", "other": "B3"}, {"market": "B2"}, (("B1", "B2"), ("B2", "B3")))
        mark(tmp_path / "plan.profiles", str(plan))
        status, out, err = run("apply", plan, "--network", file, "--dry-run")
        assert status == 0, err
        assert (
            "utilisation predicted, highest at each step: now 60.0% (B1); new tree 60.0% (B1);"
            " 1 of 1 moves 54.5% (B3); end 54.5% (B3)\n"
        ) in out


def test_a_protocol_for_trees_with_capabilities_is_refused(run, tmp_path, monkeypatch):
    """Its brokers have one table for both trees, which together have cycles."""
    flooding = Flooding()
    ticking = RoutingProtocol(lambda *_: Engine(flooding, ticks=lambda: ()))
    monkeypatch.setitem(registry.BUILT_IN, "ticking", ticking)
    file = tmp_path / "network.toml"
    file.write_text('[network]\nrouting = "ticking"\nshape = "chain"\nbrokers = 3\nport = 7400\n')
    status, _, err = run("apply", plan_for(file, ("B1",), {}), "--network", file)
    assert status == 2
    assert "network.routing: 'ticking': expected a protocol whose overlay can change" in err


def test_a_plan_does_not_know_clusters(run, tmp_path):
    file = tmp_path / "network.toml"
    file.write_text('[network]\nrouting = "merc"\nshape = "clustered-chain"\nbrokers = 5\nport = 7400\n')
    status, _, err = run("apply", plan_for(file, ("B1",), {}), "--network", file)
    assert status == 2
    assert "network.routing: 'merc': expected no clusters: plans do not support them" in err


def test_continuous_planning_holds_a_plan_without_the_configured_root(tmp_path):
    with live(tmp_path, '[routing]\nroot = "B1"\n', routing="hierarchical-simple") as (file, _):
        plan = plan_for(file, ("B2", "B3"), {}, links=(("B2", "B3"),))
        network = target_of(file, Credentials())
        found = Reweaver(plan, file, network, Limits(saving_min=0.0), 50.0, act=True).round()
        assert found.action == "held"
        assert "routing.root: unknown 'B1'" in found.reason
