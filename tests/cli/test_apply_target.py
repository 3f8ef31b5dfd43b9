"""Plans that the options of the routing protocol rule out are rejected before anything changes."""

from types import SimpleNamespace

import pytest

from overweave.cli.apply_run import check_target
from overweave.errors import InvalidInput
from overweave.routing.options import RootOptions


def test_a_plan_without_the_configured_root_is_rejected() -> None:
    target = SimpleNamespace(brokers=("B2", "B3"), links=(("B2", "B3"),))
    for options in (None, RootOptions(), RootOptions(root="B2")):
        check_target(SimpleNamespace(network=SimpleNamespace(routing_options=options)), target)
    network = SimpleNamespace(network=SimpleNamespace(routing_options=RootOptions(root="B1")))
    with pytest.raises(InvalidInput, match=r"^routing\.root: unknown 'B1', .* among the brokers of the plan"):
        check_target(network, target)
