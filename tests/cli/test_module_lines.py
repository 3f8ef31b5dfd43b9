"""``status`` shows the states of modules, and migrations."""

from overweave.broker.counters import Counters
from overweave.cli.broker_lines import console, lines_of, view_of
from overweave.drivers.tcp.monitor import Snapshot


def test_states_of_modules_are_below_the_table(capsys):
    states = {"report": {"reports": 3, "every_s": 1.5}, "tracer": {}}
    snapshot = Snapshot("B1", True, 1.0, Counters().statistics({}, {}), {}, modules=states)
    (line,) = lines_of({"B1": "h:1"}, {"B1": snapshot})
    assert line.modules == states
    console().print(view_of([line]))
    assert capsys.readouterr().out.splitlines()[-1].strip() == "B1 report: reports 3, every_s 1.5"


def test_migrations_are_below_the_table(capsys):
    counters = Counters()
    counters.migrations_completed, counters.migrations_failed = 1_200, 3
    moving = {f"c{number}": "B2" for number in range(6)}
    snapshot = Snapshot("B1", True, 1.0, counters.statistics({}, {}), {}, migrations=moving)
    idle = Snapshot("B2", True, 1.0, Counters().statistics({}, {}), {})
    lines = lines_of({"B1": "h:1", "B2": "h:2"}, {"B1": snapshot, "B2": idle})
    assert (lines[0].migrations, lines[0].migrations_completed, lines[0].migrations_failed) == (moving, 1_200, 3)
    console().print(view_of(lines))
    expected = "B1 migrations: 6 in progress, 1,200 completed, 3 failed: c0 to B2, c1 to B2, c2 to B2, c3 to B2, c4 to B2, …"
    assert capsys.readouterr().out.splitlines()[-1].strip() == expected
