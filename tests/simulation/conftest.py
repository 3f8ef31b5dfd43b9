"""Every broker of a simulated test is validated after every stimulus.

Long tests are validated throughout, but not all the time: after so many stimuli only now and then. With OVERWEAVE_VALIDATE=all
nothing is left out.
"""

import itertools
import os

import pytest

from overweave.broker.core import BrokerCore

ALWAYS, SELDOM = 3_000, 50


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """Have brokers check all their invariants whenever something has happened to them."""
    handle, numbers = BrokerCore.handle, itertools.count()
    everything = os.environ.get("OVERWEAVE_VALIDATE") == "all"

    def handle_and_validate(self, stimulus, now_s):
        effects = handle(self, stimulus, now_s)
        number = next(numbers)
        if everything or number < ALWAYS or number % SELDOM == 0:
            self.validate()
        return effects

    monkeypatch.setattr(BrokerCore, "handle", handle_and_validate)
