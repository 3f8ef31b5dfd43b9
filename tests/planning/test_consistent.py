"""A plan that somebody changed by hand does not agree with itself, and is refused by name."""

import msgspec
import pytest

from overweave.errors import PlanningError
from overweave.planning.consistent import check_consistent
from overweave.planning.make import make_plan
from overweave.testing.planning import random_problem

PLAN = make_plan(random_problem(2, equal_brokers=True, fill=0.3), "fbf")


def test_a_plan_that_was_made_agrees():
    assert len(PLAN.brokers) > 1
    check_consistent(PLAN)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"clients": PLAN.clients | {"c1": "B99"}}, "clients: 'c1': expected one of the plan's brokers, found 'B99'"),
        ({"publishers": PLAN.publishers | {"P1": "B99"}}, "publishers: 'P1': expected one of the plan's brokers"),
        ({"load": {}}, "load: expected one for each of the plan's brokers"),
        ({"totals": msgspec.structs.replace(PLAN.totals, brokers=0)}, "load: expected one for each"),
        ({"links": ()}, "links: expected a tree over the plan's brokers"),
        ({"links": (*PLAN.links[1:], PLAN.links[0], ("B98", "B99"))}, "links: expected a tree"),
    ],
)
def test_a_changed_plan_is_refused(changed, text):
    with pytest.raises(PlanningError, match=text):
        check_consistent(msgspec.structs.replace(PLAN, **changed))
