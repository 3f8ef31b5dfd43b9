"""The limits on the advertisements of a client that moves: generations of one advertisement are one."""

import pytest

from overweave.broker.core import BrokerCore
from overweave.contract.frames import ControlFrame, SessionEpoch
from overweave.drivers.tcp.limits import Limits
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import LimitSettings
from overweave.errors import Refused
from overweave.language.generations import at_generation
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

FILTER, EPOCH = parse_filter("[x,>,0]"), SessionEpoch(1, 0)


def check(message, *registered):
    """Check a message of client ``c``, which has some advertisements already, under a limit of one."""
    journal = {("advertisement", id): ("c", FILTER) for id in registered} | {("subscription", "c/s"): ("c", FILTER)}
    core = BrokerCore("B1", PROTOCOLS["filter"].make("B1", Overlay(["B1"])), [], journal=journal)
    limits = Limits(LimitSettings(advertisements_per_client_max=1, subscriptions_per_client_max=1), Log("B1"))
    limits.check_control(ControlFrame(EPOCH, EPOCH, 0, 0, message), "c", core)


def test_an_advertisement_that_returns_from_a_failed_migration_is_not_refused():
    """The client advertises the next generation before it withdraws the present one."""
    check(Advertise(at_generation("c/a", 2), FILTER), "c/a")
    check(Advertise(at_generation("c/a", 4), FILTER), at_generation("c/a", 2))


@pytest.mark.parametrize(
    ("message", "registered"),
    [
        (Advertise("c/b", FILTER), ("c/a",)),
        (Advertise(at_generation("c/a", 3), FILTER), ("c/a", at_generation("c/a", 2))),
        (Subscribe(at_generation("c/s", 1), FILTER), ()),
    ],
)
def test_generations_are_no_way_around_the_limit(message, registered):
    with pytest.raises(Refused, match="limit-exceeded"):
        check(message, *registered)
