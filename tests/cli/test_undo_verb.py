"""``overweave undo`` and ``overweave apply --abort`` against live brokers that start and stop, each also when it is killed."""

import asyncio
import contextlib

import msgspec
import pytest
from live_network import live_network
from test_apply_verb import plan_for

from overweave.broker.modules import collector
from overweave.cli import apply, apply_run
from overweave.cli.apply_run import observed, operators_of
from overweave.cli.client_options import Credentials
from overweave.cli.operators import target_of
from overweave.cli.plan_files import read_plan
from overweave.cli.reweave import Reweaver
from overweave.contract.overlay_state import Phase
from overweave.drivers.tcp.blocking import connect_blocking
from overweave.drivers.tcp.network_file import read_network
from overweave.reweave.coordinator import Done, Failed, MoveClients, PublishState, StartBroker, StopBroker, WriteNetworkFile
from overweave.reweave.hysteresis import Limits
from overweave.reweave.states import current_tree, links_of

NOTHING = "the network is as planned: nothing to do\n"


def present(network):
    """The processes, the brokers and links of the tree, and the places of clients."""
    found = observed(target_of(network.file, Credentials()))
    tree = current_tree(found.state)
    places = {each.name: id for id, broker in found.brokers.items() for each in broker.clients}
    return set(network.nodes), set(tree.brokers), links_of(tree), places


def written(network):
    """The brokers and links of the network file."""
    overlay = read_network(network.file).overlay
    return set(overlay.ids), {link.ends for link in overlay.links}


@contextlib.contextmanager
def killed_before(monkeypatch, module, name, point):
    """A coordinator that ends before it performs a command: one of a type, or the publication of a phase."""
    step = getattr(module, name)

    def until_killed(*arguments):
        found = step(*arguments)
        kind = found.state.version.phase if isinstance(found, PublishState) else type(found)
        return Failed("killed") if kind is point else found

    with monkeypatch.context() as patch:
        patch.setattr(module, name, until_killed)
        yield


@contextlib.contextmanager
def clients(network):
    """Two subscribers and a publisher, and a check that all of them still talk."""
    urls, numbers = network.urls, iter(range(100))
    with (
        connect_blocking(urls["B1"], name="near") as near,
        connect_blocking(urls["B3"], name="far") as far,
        connect_blocking(urls["B2"], name="market") as market,
        near.subscribe("[x,>=,0]") as at_near,
        far.subscribe("[x,>=,0]") as at_far,
    ):
        market.advertise("[x,>=,0]")

        def talk():
            number = next(numbers)
            market.publish({"x": number})
            market.flush()
            assert [found.get(timeout_s=10)["x"] for found in (at_near, at_far)] == [number, number]

        talk()
        yield talk


def plan_of(network):
    """A plan that starts B4, stops a broker, and moves clients."""
    return plan_for(network.file, ("B1", "B2", "B4"), {"near": "B4", "far": "B1"}, {"market": "B2"}, (("B1", "B2"), ("B2", "B4")))


@pytest.fixture
def network(tmp_path, monkeypatch):
    with live_network(tmp_path, monkeypatch) as made:
        yield made


def test_continuous_planning_does_not_apply_again_what_was_undone(run, network):
    with clients(network):
        plan = plan_of(network)
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        assert run("undo", "--network", network.file, "--yes").status == 0
        limits = Limits(saving_min=-1.0)
        reweaver = Reweaver(plan, network.file, target_of(network.file, Credentials()), limits, 50.0, act=False)
        found = reweaver.round()
        assert (found.action, "undone" in found.reason) == ("held", True), found
        plan.touch()
        found = reweaver.round()
        assert found.action == "would-act", found


@pytest.mark.parametrize("point", [Phase.TRIMMED, WriteNetworkFile, StopBroker])
def test_continuous_planning_completes_a_change_that_was_stopped_late(run, network, monkeypatch, point):
    """Nothing is left to save then: neither saving nor budget can hold it."""
    with clients(network) as talk:
        plan = plan_of(network)
        with killed_before(monkeypatch, apply_run, "next_step", point):
            assert run("apply", plan, "--network", network.file, "--yes").status == 1
        limits = Limits(saving_min=0.9, moves_per_hour_max=0)
        reweaver = Reweaver(plan, network.file, target_of(network.file, Credentials()), limits, 50.0, act=True)
        found = reweaver.round()
        assert (found.action, found.reason) == ("acted", "the change in progress is complete")
        running, brokers, links, _ = present(network)
        assert running == brokers
        assert len(brokers) == 3
        assert "B4" in brokers
        assert written(network) == (brokers, links)
        found = reweaver.round()
        assert (found.action, found.reason) == ("held", "the network is as planned")
        assert run("apply", plan, "--network", network.file, "--yes")[:2] == (0, NOTHING)
        talk()


def test_a_plan_that_moves_clients_only_is_not_applied_again_when_it_was_undone(run, network):
    """The tree stays, so that the network file differs by the name of the change alone."""
    with clients(network):
        before = present(network)
        plan = plan_for(
            network.file, ("B1", "B2", "B3"), {"near": "B2", "far": "B3"}, {"market": "B3"}, (("B1", "B2"), ("B2", "B3"))
        )
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        assert present(network) != before
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before
        limits = Limits(saving_min=-1.0, cooldown_s=0.0)
        reweaver = Reweaver(plan, network.file, target_of(network.file, Credentials()), limits, 50.0, act=True)
        found = reweaver.round()
        assert (found.action, "undone" in found.reason) == ("held", True), found


def test_a_network_that_restarts_without_journals_knows_its_last_change(run, network):
    with clients(network):
        plan = plan_of(network)
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
    network.restart()
    assert run("apply", plan, "--network", network.file, "--yes")[:2] == (0, NOTHING)
    assert run("undo", "--network", network.file, "--yes").status == 0
    found = present(network)
    network.restart()
    assert run("undo", "--network", network.file, "--yes")[:2] == (0, NOTHING)
    assert present(network) == found
    limits = Limits(saving_min=-1.0)
    reweaver = Reweaver(plan, network.file, target_of(network.file, Credentials()), limits, 50.0, act=True)
    assert "undone" in reweaver.round().reason


def test_continuous_planning_begins_nothing_after_a_signal(network):
    with clients(network):
        before = present(network)
        reweaver = Reweaver(
            plan_of(network), network.file, target_of(network.file, Credentials()), Limits(saving_min=-1.0), 50.0, act=True,
            is_stopped=lambda: True,
        )  # fmt: skip
        assert reweaver.round().action == "stopped"
        assert present(network) == before


def test_an_undo_restores_brokers_links_and_places_and_a_second_one_does_nothing(run, network):
    with clients(network) as talk:
        before, plan = present(network), plan_of(network)
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        after = present(network)
        assert after[0] == after[1] != before[1]
        assert after[3] != before[3]
        talk()
        status, out, err = run("undo", "--network", network.file, "--yes")
        assert status == 0, err
        assert "3 brokers" in out
        assert present(network) == before
        assert written(network) == before[1:3]
        talk()
        for options in (["--yes"], ["--dry-run"]):
            assert run("undo", "--network", network.file, *options)[:2] == (0, NOTHING)
            assert present(network) == before
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        assert present(network) == after
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before
        talk()


def move(network, client, source, to):
    """A client comes back elsewhere."""

    async def order():
        async with operators_of(target_of(network.file, Credentials())) as operators:
            await operators.observe((source,))
            assert await operators.migrate(client, source, to, 30.0) is None

    asyncio.run(order())


@pytest.mark.parametrize("point", [WriteNetworkFile, Done])
def test_an_undo_after_a_change_that_began_again_restores_what_was_before_it(run, network, monkeypatch, point):
    """A client comes back at its first URL, before the file is written or after the end, and the same plan moves it again."""
    with clients(network) as talk:
        before, plan = present(network), plan_of(network)
        with killed_before(monkeypatch, apply_run, "next_step", point):
            assert run("apply", plan, "--network", network.file, "--yes").status == 1
        _, brokers, links, places = present(network)
        move(network, "near", places["near"], min(brokers - {places["near"]}))
        for _ in range(2):
            status, _, err = run("apply", plan, "--network", network.file, "--yes")
            assert status == 0, err
        after = present(network)
        assert after == (brokers, brokers, links, places)
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before
        assert run("undo", "--network", network.file, "--yes")[:2] == (0, NOTHING)
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        assert present(network) == after
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before
        talk()


def test_a_change_that_was_taken_back_and_begins_later_is_undone_to_that_moment(run, network, monkeypatch):
    with clients(network):
        plan = plan_of(network)
        with killed_before(monkeypatch, apply_run, "next_step", Phase.USED):
            assert run("apply", plan, "--network", network.file, "--yes").status == 1
        assert run("apply", "--abort", "--network", network.file).status == 0
        move(network, "near", "B1", "B2")
        before = present(network)
        assert run("apply", plan, "--network", network.file, "--yes").status == 0
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before


@pytest.mark.parametrize("point", [Phase.USED, Phase.TRIMMED, WriteNetworkFile, StopBroker])
def test_an_undo_that_is_killed_resumes(run, network, monkeypatch, point):
    with clients(network) as talk:
        before = present(network)
        assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 0
        with killed_before(monkeypatch, apply_run, "next_step", point):
            status, _, err = run("undo", "--network", network.file, "--yes")
            assert (status, "killed" in err) == (1, True)
        status, out, err = run("undo", "--network", network.file, "--yes")
        assert status == 0, err
        assert out.splitlines()[-1].startswith("done in ")
        assert present(network) == before
        assert written(network) == before[1:3]
        talk()


def test_an_undo_whose_backup_is_elsewhere_is_an_error(run, network):
    assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 0
    assert run("undo", "--network", network.file, "--yes").status == 0
    (network.file.parent / "network.toml.before-1").unlink()
    status, _, err = run("undo", "--network", network.file, "--yes")
    assert status == 1
    assert "expected the network that change 'undo-" in err


@pytest.mark.parametrize("point", [Phase.PREPARED, Phase.USED, Phase.CLOSED])
def test_an_abort_before_the_old_tree_is_closed_leads_back_and_stops_what_was_started(run, network, monkeypatch, point):
    with clients(network) as talk:
        before = present(network)
        with killed_before(monkeypatch, apply_run, "next_step", point):
            assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 1
        assert present(network)[0] == {"B1", "B2", "B3", "B4"}
        status, out, err = run("apply", "--abort", "--network", network.file)
        assert status == 0, err
        first = "no change is in progress" if point is Phase.PREPARED else "aborted: epoch 1, phase reverted"
        assert out.splitlines() == [first, "broker B4 stopped"]
        assert present(network) == before
        assert written(network) == before[1:3]
        talk()


@pytest.mark.parametrize("point", [MoveClients, Phase.TRIMMED])
def test_an_abort_after_that_ends_the_change_and_writes_the_file(run, network, monkeypatch, point):
    with clients(network) as talk:
        before = present(network)
        with killed_before(monkeypatch, apply_run, "next_step", point):
            assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 1
        status, out, err = run("apply", "--abort", "--network", network.file)
        assert status == 0, err
        assert out.splitlines() == ["aborted: epoch 1, phase trimmed", "network file written"]
        found = present(network)
        assert found[0] == found[1] == {"B1", "B2", "B3", "B4"}
        assert written(network) == found[1:3]
        talk()
        assert run("undo", "--network", network.file, "--yes").status == 0
        assert present(network) == before
        talk()


@pytest.mark.parametrize("verb", ["apply", "--abort"])
@pytest.mark.parametrize("point", [Phase.USED, MoveClients, WriteNetworkFile])
def test_a_change_goes_on_and_back_when_its_new_broker_no_longer_runs(run, network, monkeypatch, point, verb):
    """As after a reboot: 'overweave up' starts the brokers of the network file only, and that is still the old one."""
    monkeypatch.setattr(collector, "_OBSERVE_S", 1.0)
    before, plan = present(network), plan_of(network)
    with clients(network) if point is MoveClients else contextlib.nullcontext():
        with killed_before(monkeypatch, apply_run, "next_step", point):
            assert run("apply", plan, "--network", network.file, "--yes").status == 1
        network.end("B4")
        options = [plan, "--yes"] if verb == "apply" else ["--abort"]
        status, _, err = run("apply", *options, "--network", network.file)
        assert status == 0, err
        found = present(network)
        is_back = verb == "--abort" and point is Phase.USED
        assert found[0] == found[1]
        assert ("B4" in found[0]) != is_back
        assert written(network) == found[1:3]
        assert not is_back or found[:3] == before[:3]


@pytest.mark.parametrize("point", [Phase.REVERTED, StopBroker])
def test_an_abort_that_is_killed_resumes(run, network, monkeypatch, point):
    before = present(network)
    with killed_before(monkeypatch, apply_run, "next_step", Phase.CLOSED):
        assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 1
    with killed_before(monkeypatch, apply, "next_abort_step", point):
        assert run("apply", "--abort", "--network", network.file).status == 1
    assert run("apply", "--abort", "--network", network.file).status == 0
    assert present(network) == before


def test_an_abort_of_a_change_that_only_started_brokers_stops_them(run, network, monkeypatch):
    before = present(network)
    with killed_before(monkeypatch, apply_run, "next_step", StartBroker):
        assert run("apply", plan_of(network), "--network", network.file, "--yes").status == 1
    assert present(network) == before
    assert run("apply", "--abort", "--network", network.file)[:2] == (0, "no change is in progress\n")


def test_a_guest_of_the_network_goes_on(run, network):
    """The plan knows it: it was made from the running network."""
    network.start_guest("B4", "B1")
    path = plan_for(network.file, ("B1", "B2"), {}, links=(("B1", "B2"),))
    plan = read_plan(path)
    known = {**plan.network.brokers, "B4": plan.network.brokers["B1"]}
    path.write_bytes(msgspec.structs.replace(plan, network=msgspec.structs.replace(plan.network, brokers=known)).encode())
    status, out, err = run("apply", path, "--network", network.file, "--yes")
    assert status == 0, err
    assert "3 now, 2 afterwards, 1 stop (B3)" in out
    assert present(network)[:2] == ({"B1", "B2", "B4"}, {"B1", "B2"})
