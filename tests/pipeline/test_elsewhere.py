"""Every command on tables elsewhere gives the tables that it gives on this machine."""

import json
import threading
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.cli import main
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tracing.files import TraceWriter
from overweave.errors import OverweaveError
from overweave.pipeline.jobs import profile_run
from overweave.pipeline.locations import Location
from overweave.pipeline.streaming.apply_batch import TABLES
from overweave.pipeline.streaming.follow import follow
from overweave.pipeline.streaming.versions import Versions, current
from overweave.pipeline.tables import files_of
from overweave.reports import report_of

#: Short vectors: the fewer words, the sooner Spark has compiled a query.
BITS = 64
SWEEP = """\
duration_s = 2
[overlay]
shape = "chain"
brokers = [2, 3]
[workload]
publishers = 1
subscriptions_per_publisher = 2
"""


@pytest.fixture(scope="module")
def elsewhere(spark, tmp_path_factory):
    """An address, and the directory of this machine that it is."""
    folder = tmp_path_factory.mktemp("elsewhere")
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.elsewhere.link./data", f"file://{folder}")
    return "viewfs://elsewhere/data", folder


@pytest.fixture(scope="module")
def traces(elsewhere):
    """The trace of a run, as a path and as an address."""
    address, folder = elsewhere
    document = {
        "duration_s": 40,
        "overlay": {"shape": "chain", "brokers": 3},
        "workload": {"publishers": 2, "subscriptions_per_publisher": 4, "rate_hz": 2},
    }
    writer = TraceWriter(folder / "traces", "a")
    with writer as on_record:
        simulate(scenario_of(document), on_record=on_record, run="a", on_statement=writer.add_statement)
    return folder / "traces", f"{address}/traces"


@pytest.fixture
def verb(spark, monkeypatch, capfdbinary):
    """Runs a verb in the session of the tests; answers with its JSON."""
    monkeypatch.setattr("overweave.pipeline.session.session", lambda master, **_: nullcontext(spark))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--json"])
        answer = capfdbinary.readouterr()
        assert ended.value.code == 0, answer.err
        return json.loads(answer.out)

    return run


def rows(place, *names):
    """All rows of tables, in an order of their own."""
    found = {}
    for name in names:
        parts = []
        for file in files_of(current(place) / name).names:
            with Location.of(file).fetched() as fetched:
                parts.append(pq.read_table(fetched))
        found[name] = sorted(pa.concat_tables(parts).to_pylist(), key=str)
    return found


def test_profiles_reports_and_plans(verb, traces, elsewhere, tmp_path):
    address, _ = elsewhere
    plain, remote = traces
    (tmp_path / "brokers.csv").write_text(
        "broker,output_bandwidth_bytes_per_s,matching_delay_base_s,matching_delay_per_subscription_s\n"
        + "".join(f"B{i},100000,1e-5,1e-7\n" for i in range(1, 4))
    )
    Location.of(f"{address}/brokers.csv").put(tmp_path / "brokers.csv")
    found = {}
    for source, out in ((plain, tmp_path), (remote, address), (f"file://{plain}", f"file://{tmp_path}/uri")):
        totals = verb("profile", source, "--out", f"{out}/profiles", "--skip-bad", "--bits", BITS)
        report = verb("report", f"{out}/profiles")
        assert Location.of(f"{out}/profiles/report.html").read_bytes().startswith(b"<!DOCTYPE html>")
        brokers = f"{address if out == address else tmp_path}/brokers.csv"
        plan = verb("plan", f"{out}/profiles", "--brokers", brokers, "--force", "--out", f"{out}/plan.json")
        assert verb("report", f"{out}/plan.json") == {"kind": "plan", "report": f"{out}/plan.html"}
        assert plan.pop("files") == [f"{out}/plan.json"]
        assert report == {"kind": "profile", "report": f"{out}/profiles/report.html"}
        found[str(out)] = totals, plan, rows(f"{out}/profiles", *TABLES), Location.of(f"{out}/plan.json").read_bytes()
    one, *others = found.values()
    assert one[2]["profiles"]
    for other in others:
        assert other == one


def test_workloads_and_plans_of_them(verb, elsewhere, tmp_path):
    address, _ = elsewhere
    sizes = ("--publishers", 3, "--subscriptions", 30, "--publications", 300, "--brokers", 4)
    found = {}
    for out in (tmp_path, address):
        verb("workload", "stock", "--out", f"{out}/quotes", *sizes)
        evaluate = ("--evaluate", f"{out}/quotes/publications", "--force")
        plan = verb("plan", f"{out}/quotes", *evaluate)
        found[out] = plan, rows(f"{out}/quotes", "brokers", "publishers", "subscriptions", "publications")
    assert found[tmp_path] == found[address]
    assert len(found[address][1]["subscriptions"]) == 30


def test_sweeps(verb, elsewhere, tmp_path):
    address, _ = elsewhere
    (tmp_path / "sweep.toml").write_text(SWEEP)
    for out in (tmp_path / "out", f"{address}/sweep"):
        assert verb("sweep", tmp_path / "sweep.toml", "--out", out, "--parallel", 2)["computed"] == 2
    again = verb("sweep", tmp_path / "sweep.toml", "--out", f"{address}/sweep")
    assert (again["computed"], again["kept"]) == (0, 2)
    assert rows(tmp_path / "out", "metrics") == rows(f"{address}/sweep", "metrics")
    assert report_of(f"{address}/sweep") == "sweep"


def test_a_follower_elsewhere(spark, traces, elsewhere):
    address, folder = elsewhere
    plain, remote = traces
    expected = profile_run(spark, plain, folder / "batch", "a", BITS)
    assert follow(spark, remote, f"{address}/followed", "a", BITS) == expected
    assert rows(folder / "batch", *TABLES) == rows(f"{address}/followed", *TABLES)
    with (
        Versions(f"{address}/followed", TABLES).lock(),
        pytest.raises(OverweaveError, match=r"^viewfs://.*: another process follows a run there; it has .*lock"),
    ):
        profile_run(spark, remote, f"{address}/followed", "a", BITS)
    assert profile_run(spark, remote, f"{address}/followed", "a", BITS) == expected
    # It begins anew, since its state was replaced.
    assert follow(spark, remote, f"{address}/followed", "a", BITS) == expected


def test_readers_always_find_tables(tmp_path):
    """While they are replaced, by either job, through the pointer and through the links."""
    versions, ended, seen = Versions(tmp_path / "out", ["t", "u"]), threading.Event(), set()

    def fill(folder):
        for name in ("t", "u"):
            (folder / name / "data").write_bytes(folder.name.encode())

    def read():
        while not ended.is_set():
            tables = current(tmp_path / "out")
            assert (tables / "t" / "data").read_bytes() == (tables / "u" / "data").read_bytes()
            seen.add((tmp_path / "out" / "t" / "data").read_text())

    failed = []
    versions.write_batch(fill)
    (tmp_path / "out" / "report.html").write_text("precious")
    reader = threading.Thread(target=lambda: _kept(read, failed))
    reader.start()
    try:
        for number in range(30):
            versions.write(number, fill)
            versions.write_batch(fill)
    finally:
        ended.set()
        reader.join()
    assert not failed
    assert len(seen) > 1
    assert (tmp_path / "out" / "report.html").read_text() == "precious"


def _kept(call, failed):
    try:
        call()
    except Exception as error:
        failed.append(error)


def test_directories_of_earlier_releases_are_read_and_replaced(spark, traces, tmp_path):
    plain, _ = traces
    totals = profile_run(spark, plain, tmp_path / "new", "a", BITS)
    written = current(tmp_path / "new").local
    batch, followed = tmp_path / "batch", tmp_path / "followed"
    for folder in (batch, followed / ".follow" / "versions" / "3"):
        folder.mkdir(parents=True)
        for name in TABLES:
            (folder / name).symlink_to(written / name) if folder is not batch else _copied(written / name, folder / name)
    (followed / ".follow" / "current").symlink_to("versions/3")
    for out in (batch, followed):
        assert rows(out, *TABLES) == rows(tmp_path / "new", *TABLES)
        assert report_of(out) == "profile"
        (out / "report.html").write_text("precious")
        assert profile_run(spark, plain, out, "a", BITS) == totals
        assert current(out).parent.name == ".versions"
        assert sorted(path.name for path in (out / "profiles").glob("*.parquet"))
        assert (out / "report.html").read_text() == "precious"


def _copied(source, target):
    target.mkdir()
    for file in source.glob("*.parquet"):
        (target / file.name).write_bytes(file.read_bytes())
