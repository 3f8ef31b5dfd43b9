"""Modules order migrations of their broker's clients, and receive the end of every order once."""

import pytest

from overweave.broker.retirement import LinkRetirement
from overweave.contract.effects import RetireLink, SetTimer
from overweave.contract.frames import MigrationResult
from overweave.contract.modules import Module, OrderEnded, OrderMigration, Started
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


class Mover(Module):
    """Orders the migrations of a script at 1 s, and records their ends with the state of its own handling."""

    def __init__(self, orders):
        self._orders, self.ended, self.nested, self._busy = orders, [], False, False

    def handle(self, stimulus, now_s):
        self.nested = self.nested or self._busy
        self._busy = True
        if isinstance(stimulus, Started):
            yield SetTimer("go", now_s + 1.0)
        elif isinstance(stimulus, TimerFired):
            yield from self._orders
        elif isinstance(stimulus, OrderEnded):
            self.ended.append((stimulus.name, stimulus.client, stimulus.error))
        self._busy = False


def network(orders):
    made = {}

    def modules(at):
        made[at.broker] = Mover(orders if at.broker == "B1" else ())
        return {"mover": made[at.broker]}

    return SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS["filter"].make, make_modules=modules), made


def test_a_module_moves_a_client_of_its_broker():
    simulated, made = network([OrderMigration("first", "c", "B3")])
    simulated.add_client("c", "B1")
    simulated.say("c", Subscribe("s", parse_filter("[class,eq,'A']")))
    simulated.scheduler.run(60.0)
    assert made["B1"].ended == [("first", "c", None)]
    assert made["B2"].ended == made["B3"].ended == []
    assert simulated.broker("B1").statistics().migrations_completed == 1


def test_rejected_orders_end_after_the_stimulus_of_the_order():
    simulated, made = network([OrderMigration("x", "nobody", "B3"), OrderMigration("y", "nobody", "B2")])
    simulated.scheduler.run(5.0)
    error = "'nobody' is not a client of B1"
    assert made["B1"].ended == [("x", "nobody", error), ("y", "nobody", error)]
    assert not made["B1"].nested
    assert simulated.broker("B1").statistics().migrations_failed == 2


def test_orders_end_after_another_effect_has_failed(monkeypatch):
    simulated, made = network([OrderMigration("first", "nobody", "B3"), RetireLink("B2")])
    monkeypatch.setattr(LinkRetirement, "retire", fail)
    with pytest.raises(RuntimeError):
        simulated.scheduler.run(5.0)
    assert made["B1"].ended == []
    simulated.broker("B1").handle(LoadMeasured(1.0, 1.0, 0.0, 0), 6.0)
    assert made["B1"].ended == [("first", "nobody", "'nobody' is not a client of B1")]


def fail(*_):
    raise RuntimeError("a defect")


def test_the_result_of_another_client_does_not_end_a_migration():
    simulated, made = network([OrderMigration("first", "c", "B3")])
    for client in ("c", "forger"):
        simulated.add_client(client, "B1")
    simulated.say("c", Subscribe("s", parse_filter("[class,eq,'A']")))
    migration = simulated.broker("B1")._parts.migration
    at_s = 1.0
    while not len(migration):
        simulated.scheduler.run(at_s)
        at_s += 0.001
        assert at_s < 2.0
    (token,) = migration._orders
    migration.on_client_message("forger", MigrationResult(token, None))
    assert made["B1"].ended == []
    simulated.scheduler.run(60.0)
    assert made["B1"].ended == [("first", "c", None)]
