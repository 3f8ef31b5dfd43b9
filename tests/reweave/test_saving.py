"""What a plan still saves, before and after it is applied."""

import msgspec
import pytest
from fake_network import answer, stable
from test_target import plan_of

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import Phase
from overweave.planning.plan import Before, BrokerLoad
from overweave.reweave import states
from overweave.reweave.saving import is_applied, saving_of
from overweave.reweave.target import Target, digest_of

LINKS = (("B1", "B2"),)


def planned(rate_before):
    """A plan for two of three brokers with a rate of 20 per second, and its target with ten clients."""
    load = {id: BrokerLoad(10.0, 0.0, 0.1, 0.1) for id in ("B1", "B2")}
    plan = plan_of(1)
    before = Before(links=(), load={"B1": BrokerLoad(rate_before, 0.0, 0.1, 0.1)}, totals=plan.totals)
    plan = msgspec.structs.replace(plan, brokers=("B1", "B2"), links=LINKS, load=load, before=before)
    target = Target(
        change=digest_of(plan.encode()), brokers=("B1", "B2"), links=LINKS, clients={f"c{i}": "B1" for i in range(10)}
    )
    return plan, target


def observed(state):
    return Observation(state, {member.id: answer(member.id, state) for member in state.members})


def test_before_the_tree_is_there_a_plan_saves_brokers_or_messages_whichever_is_more():
    old = observed(stable(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]))
    for rate_before, saved in ((40.0, 0.5), (20.0, 1 / 3), (10.0, 1 / 3)):
        plan, target = planned(rate_before)
        assert not is_applied(plan, target, old)
        assert saving_of(plan, target, old, 1) == pytest.approx(saved)
    plan, target = planned(1000.0)
    assert saving_of(plan, target, observed(stable(["B1"], [])), 1) == -1.0


def test_after_that_only_the_clients_that_are_elsewhere_count():
    plan, target = planned(40.0)
    now = observed(stable(["B1", "B2"], LINKS, epoch=1, change=target.change))
    assert is_applied(plan, target, now)
    assert [saving_of(plan, target, now, moves) for moves in (0, 1, 10, 20)] == pytest.approx([0.0, 0.05, 0.5, 0.5])


def test_the_same_tree_of_another_plan_and_a_change_taken_back_are_not_applied():
    plan, target = planned(40.0)
    other = observed(stable(["B1", "B2"], LINKS, epoch=1, change="other"))
    back = stable(["B1", "B2"], LINKS, epoch=1, change=target.change)
    back = observed(msgspec.structs.replace(back, version=states.OverlayVersion(1, Phase.REVERTED)))
    for found in (other, back):
        assert not is_applied(plan, target, found)
        assert saving_of(plan, target, found, 1) == pytest.approx(0.5)
