"""Every broker of a simulated test is validated after every stimulus."""

import pytest

from overweave.broker.core import BrokerCore


@pytest.fixture(autouse=True)
def validated(monkeypatch):
    """Have brokers check all their invariants whenever something has happened to them."""
    handle = BrokerCore.handle

    def handle_and_validate(self, stimulus, now_s):
        effects = handle(self, stimulus, now_s)
        self.validate()
        return effects

    monkeypatch.setattr(BrokerCore, "handle", handle_and_validate)
