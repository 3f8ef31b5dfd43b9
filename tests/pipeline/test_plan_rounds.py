"""Following tables with plans: rounds by versions, files that are complete, tables that belong together, gauges."""

import threading

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.errors import InvalidInput, OverweaveError, PlanningError
from overweave.pipeline.plan_files import read_plan
from overweave.pipeline.plan_follow import PlanFollower, Reading
from overweave.pipeline.plan_metrics import PlanMetrics
from overweave.pipeline.streaming.versions import Versions, current
from overweave.planning.make import make_plan
from overweave.planning.replan import Thresholds
from overweave.testing.planning import random_problem

#: Which of the problems a version of the tables stands for.
TABLE = "profiles"


def version(directory, number, problem):
    """A version of tables, of which a reader can tell from every file which problem it is of."""

    def fill(folder):
        for part in range(3):
            (folder / TABLE).make_directory()
            pq.write_table(pa.table({"problem": [problem]}), (folder / TABLE / f"part-{number}-{part}.parquet").local)

    Versions(directory, (TABLE,)).write(number, fill)


def problem_of(tables):
    parts = [pq.ParquetFile(part).read()["problem"][0].as_py() for part in sorted((tables / TABLE).local.glob("*.parquet"))]
    if len(parts) < 3:
        raise InvalidInput(f"{tables}: torn")
    assert len(set(parts)) == 1
    return parts[0]


def read(tables):
    found = problem_of(tables)
    if found < 0:
        raise PlanningError("too little")
    problem = random_problem(found, with_today=True, fill=0.3, equal_brokers=True, bits=640)
    return Reading(problem, make_plan, lambda plan: msgspec.structs.replace(plan, parameters={"problem": found}))


def follower(directory, reader=read, **thresholds):
    return PlanFollower(directory, directory / "plan.json", reader, Thresholds(**thresholds))


def files(directory):
    return sorted(each.name for each in directory.glob("*plan*"))


def test_every_version_of_the_tables_is_a_round_and_every_new_plan_a_version(tmp_path):
    following = follower(tmp_path)
    assert following.look() is None  # nothing is there yet
    version(tmp_path, 0, -1)
    assert (found := following.look()).action == "failed"
    assert (found.reason, found.plan) == ("too little", None)
    version(tmp_path, 1, 3)
    found = following.look()
    assert (found.action, found.plan, found.tables, found.round) == ("first", "plan-0001.json", ".follow/versions/1", 2)
    assert following.look() is None  # these were read
    version(tmp_path, 2, 3)
    assert (found := following.look()).action == "kept"
    assert (found.plan, found.change) == ("plan-0001.json", 0.0)
    version(tmp_path, 3, 4)  # other clients, other filters
    found = following.look()
    assert (found.action, found.plan, found.round) == ("replaced", "plan-0002.json", 4)
    assert files(tmp_path) == ["plan-0001.json", "plan-0002.json", "plan.json"]
    assert (tmp_path / "plan.json").read_bytes() == (tmp_path / "plan-0002.json").read_bytes()
    plan = read_plan(tmp_path / "plan.json")
    assert plan.parameters == {"problem": 4}
    assert found.difference.moves == found.moves > 0
    assert found.pending_saving_brokers == found.today.brokers - len(plan.brokers)
    # Who begins again goes on with the plan that is there, and says of which version it is.
    again = follower(tmp_path)
    assert ((found := again.look()).action, found.plan, found.change) == ("kept", "plan-0002.json", None)
    assert files(tmp_path) == ["plan-0001.json", "plan-0002.json", "plan.json"]


def test_tables_that_are_replaced_while_they_are_read_are_read_again(tmp_path):
    torn = []

    def slow(tables):
        """Half of the tables are removed, because two versions came since."""
        if not torn:
            torn.append(tables)
            version(tmp_path, 1, 4)
            version(tmp_path, 2, 5)
            for part in list((tables / TABLE).local.glob("*-[12].parquet")):
                part.unlink()
        return read(tables)

    version(tmp_path, 0, 3)
    found = follower(tmp_path, slow).look()
    assert (found.action, found.tables) == ("first", ".follow/versions/2")
    assert read_plan(tmp_path / "plan.json").parameters == {"problem": 5}
    assert torn[0] != current(tmp_path)


def test_tables_that_are_replaced_but_still_there_count(tmp_path):
    def slow(tables):
        if current(tmp_path) == tables and tables.name == "0":
            version(tmp_path, 1, 4)
        return read(tables)

    version(tmp_path, 0, 3)
    following = follower(tmp_path, slow)
    assert [following.look().tables for _ in range(2)] == [".follow/versions/0", ".follow/versions/1"]


def test_files_that_are_wrong_from_the_beginning_end_it(tmp_path):
    def wrong(tables):
        raise InvalidInput("network.toml: expected a network")

    version(tmp_path, 0, 3)
    with pytest.raises(InvalidInput, match=r"network\.toml"):
        follower(tmp_path, wrong).look()
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"plan\.json"):
        follower(tmp_path)


def test_one_follows_at_a_time_until_it_is_stopped(tmp_path):
    version(tmp_path, 0, 3)
    told = []

    class Stopped:
        def is_set(self):
            return bool(told)

        def wait(self, seconds):
            with pytest.raises(OverweaveError, match="follows with plans"):
                follower(tmp_path).follow(1.0, threading.Event(), told.append)

    follower(tmp_path).follow(1.0, Stopped(), told.append)
    assert [each.action for each in told] == ["first"]


def test_the_pending_saving_is_a_gauge(tmp_path):
    following, file = follower(tmp_path), tmp_path / "plan.prom"
    metrics = PlanMetrics(file)
    for number, problem in enumerate((-1, 3, 3)):
        version(tmp_path, number, problem)
        metrics.report(found := following.look())
    lines = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines() if not line.startswith("#"))
    assert float(lines["overweave_plan_pending_saving_brokers"]) == found.pending_saving_brokers > 0
    assert float(lines["overweave_plan_pending_saving_input_hz"]) == pytest.approx(found.pending_saving_input_hz)
    assert float(lines["overweave_plan_evidence_change_ratio"]) == 0
    assert float(lines['overweave_plan_rounds_total{action="kept"}']) == 1
    assert float(lines['overweave_plan_rounds_total{action="failed"}']) == 1
    assert [each.name for each in tmp_path.glob("*.prom*")] == ["plan.prom"]  # nothing half written beside it
