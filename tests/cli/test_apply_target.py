"""Plans that the network rules out are rejected before anything changes: without the configured root, with unknown brokers."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from overweave.cli.apply_run import check_target
from overweave.errors import InvalidInput
from overweave.routing.options import RootOptions


def target(*brokers):
    return SimpleNamespace(brokers=brokers, links=tuple(pairwise(brokers)))


def network(options=None, *, brokers=("B1", "B2", "B3")):
    return SimpleNamespace(network=SimpleNamespace(routing_options=options, urls=dict.fromkeys(brokers, "")))


def observation(brokers=(), members=()):
    state = SimpleNamespace(members=[SimpleNamespace(id=id) for id in members])
    return SimpleNamespace(brokers=dict.fromkeys(brokers), state=state)


def test_a_plan_without_the_configured_root_is_rejected() -> None:
    for options in (None, RootOptions(), RootOptions(root="B2")):
        check_target(network(options), target("B2", "B3"), observation())
    with pytest.raises(InvalidInput, match=r"^routing\.root: unknown 'B1', .* among the brokers of the plan"):
        check_target(network(RootOptions(root="B1")), target("B2", "B3"), observation())


def test_a_plan_with_a_broker_that_nobody_knows_is_rejected() -> None:
    wanted = target("B1", "B2", "B9")
    with pytest.raises(InvalidInput, match=r"^brokers: B9: expected brokers of the network file, or running guests$"):
        check_target(network(), wanted, observation(brokers=["B1", "B2"]))
    check_target(network(), wanted, observation(brokers=["B9"]))
    check_target(network(), wanted, observation(members=["B9"]))
    check_target(network(brokers=["B1", "B2", "B9"]), wanted, observation())
