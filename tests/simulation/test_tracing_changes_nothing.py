"""Observing never changes behaviour: with a tracer a network sends the same frames as without."""

import pytest

from overweave.broker.modules.tracer import Tracer
from overweave.testing.scripts import run_script

SCRIPTS = {
    "destination": """
network destination B1-B2 B2-B3 B2-B4
client alice B1
client bob B2
client carol B3
client dave B4
advertise alice a1 [x,>,0]
subscribe bob s1 [x,>,4]
subscribe carol s2 [x,>,2]
subscribe dave s3 [x,>,6]
run
publish alice [x,3]; [x,5]; [x,1]; [x,9]
publish alice [x,8]; [x,5]
run
crash B4 300
publish alice [x,7]; [x,3]
run
""",
    "merc": """
network merc B1:C1 B2:C1+C2 B3:C2 B4:C1+C2 B1-B2 B2-B3 B1-B4 B4-B3
client alice B1
client bob B2
client carol B3
client dave B4
advertise alice a1 [x,>,0]
subscribe bob s1 [x,>,4]
subscribe carol s2 [x,>,2]
subscribe dave s3 [x,>,6]
run
publish alice [x,3]; [x,5]; [x,1]; [x,9]
cut B2 B3 400
publish alice [x,8]; [x,5]
run
publish alice [x,7]; [x,3]
run
""",
}


class Counted(Tracer):
    """A tracer whose rows are counted."""

    rows = 0

    def handle(self, stimulus, now_s):
        effects = list(super().handle(stimulus, now_s))
        Counted.rows += len(effects)
        return effects


@pytest.mark.parametrize("protocol", SCRIPTS)
def test_a_tracer_changes_no_frame(protocol, monkeypatch):
    monkeypatch.setattr(Counted, "rows", 0)
    plain = run_script(SCRIPTS[protocol])
    assert run_script(SCRIPTS[protocol], lambda broker: {"tracer": Counted(broker, "run")}) == plain
    assert Counted.rows > 10
    assert plain.count("delivered") > 5
