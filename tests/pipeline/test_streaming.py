"""A trace that grows, is stopped, late, replayed and shuffled is told of as the batch job tells of it."""

import random

import duckdb
import pyarrow
import pyarrow.parquet
import pytest

from overweave.contract.records import Statement
from overweave.drivers.tracing.files import SCHEMA, statements_table
from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline.jobs import profile_run
from overweave.pipeline.streaming import versions as versions_module
from overweave.pipeline.streaming.apply_batch import TABLES, ApplyBatch
from overweave.pipeline.streaming.follow import FollowManifest, _check_manifest, follow
from overweave.pipeline.streaming.versions import Versions, current

BITS = 128
#: What sums of real numbers differ in when they are added up in another order.
MEANS = ("hops_mean", "delay_s_mean")


def trace(seed, publications=400):
    """Rows over some minutes: three brokers, some publications match nothing, some arrive again later, and elsewhere."""
    dice = random.Random(seed)
    rows = []
    for publisher in ("p", "q", "r"):
        # One begins at the clock and leaves gaps, as live ones do.
        numbers = range(10**15, 10**15 + 60, 3) if publisher == "r" else range(publications)
        for place, sequence in enumerate(numbers):
            at_s = place * 0.7 + dice.random() * 0.1
            for hops, broker in enumerate(("B1", "B2", "B3")[: dice.randint(1, 3)]):
                wanted = [s for s in ("s1", "s2", "s3") if dice.random() < (0.3 if place < 350 else 0.05)]
                for again in range(1 + (dice.random() < 0.1)):
                    arrived_at_s = at_s + dice.expovariate(50) + again * dice.random() * 90
                    for subscription in wanted or [None]:
                        client = None if subscription is None else f"c-{subscription}"
                        sender = f"B{hops}" if hops else None
                        rows.append(
                            (publisher, sequence, broker, subscription, client, hops, at_s, arrived_at_s, 100 + place, sender)
                        )
    return rows


def write_file(folder, name, rows):
    """As writers of traces do: under a hidden name first."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(zip(*rows, strict=True)) or [[] for _ in SCHEMA]
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    pyarrow.parquet.write_table(pyarrow.table(arrays, schema=SCHEMA), folder / f".{name}.parquet")
    (folder / f".{name}.parquet").rename(folder / f"{name}.parquet")


def read(out):
    """All tables, in an order of their own."""
    out, found = current(out), {}
    for table in TABLES:
        rows = duckdb.sql(f"from read_parquet('{out}/{table}/*.parquet')").to_arrow_table().to_pylist()
        found[table] = sorted(
            rows, key=lambda row: str([row.get(key) for key in ("subscription", "publisher", "broker", "at_s")])
        )
    return found


def assert_same(found, expected):
    for table in TABLES:
        assert len(found[table]) == len(expected[table]) > 0, table
        for one, other in zip(found[table], expected[table], strict=True):
            means = {name: value for name, value in one.items() if name in MEANS}
            assert means == pytest.approx({name: other[name] for name in means}, rel=1e-12), table
            assert {**one, **means} == {**other, **means}, table


def batch_job(spark, traces, tmp_path, bits=BITS):
    out = tmp_path / "batch"
    return profile_run(spark, traces, out, "a", bits, 0.5), read(out)


@pytest.fixture(scope="module")
def followed(spark, tmp_path_factory):
    """Two batches of files in any order, with a stop between them: traces, tables and totals."""
    dice, home = random.Random(1), tmp_path_factory.mktemp("followed")
    traces, out = home / "my traces", home / "out"
    rows = trace(1)
    rows.sort(key=lambda row: row[6])
    pieces = [rows[start : start + 300] for start in range(0, len(rows), 300)]
    # Late ones, the same rows again in other files, and files that are half of one and half of another.
    pieces += [dice.sample(rows, 100), pieces[0], pieces[-1][:50] + pieces[1][50:]]
    dice.shuffle(pieces)
    write_file(traces / "run=b", "other", rows[:10])
    said = [Statement("a", float(n), "B1", f"c{n}", "subscribe", f"s{n}", f"[x,>,{n}]", False) for n in range(1, 6)]
    (traces / "run=a" / "_statements").mkdir(parents=True)
    pyarrow.parquet.write_table(statements_table(said), traces / "run=a" / "_statements" / "part-0.parquet")
    groups = [pieces[0::2], pieces[1::2]]
    for number, group in enumerate(groups):
        for part, piece in enumerate(group):
            write_file(traces / "run=a", f"part-{number}-{part}", piece)
        totals = follow(spark, traces, out, "a", BITS, 0.5)
    return traces, out, totals


def test_any_order_of_files_with_replays_and_stops_is_the_batch_job(spark, tmp_path, followed):
    traces, out, totals = followed
    expected_totals, expected = batch_job(spark, traces, tmp_path)
    assert_same(read(out), expected)
    assert [(row["subscription"], row["filter"]) for row in expected["subscription_lifetimes"]] == [
        (f"s{n}", f"[x,>,{n}]") for n in range(1, 6)
    ]
    assert (totals.deliveries, totals.profiles) == (expected_totals.deliveries, expected_totals.profiles)
    assert totals.forwarded_bytes == expected_totals.forwarded_bytes > 0


def batch_of(spark, tmp_path, names):
    from pyspark.sql import functions as F  # noqa: N812

    paths = [str(tmp_path / "traces" / "run=a" / f"{name}.parquet") for name in names]
    return spark.read.parquet(*paths).withColumn("file", F.col("_metadata.file_path"))


@pytest.fixture
def two_files(tmp_path):
    rows = trace(3, 200)
    half = len(rows) // 2
    write_file(tmp_path / "traces" / "run=a", "x", rows[:half])
    write_file(tmp_path / "traces" / "run=a", "y", rows[half - 20 :])
    return tmp_path / "traces"


def test_a_crash_before_or_after_the_end_of_a_batch_doubles_nothing(spark, tmp_path, two_files, monkeypatch):
    versions = Versions(tmp_path / "out", TABLES)
    apply_batch = ApplyBatch(versions, BITS, 0.5)
    first, second = (batch_of(spark, tmp_path, [name]) for name in "xy")
    apply_batch(first, 0)
    seen = read(tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="power"):
        patch.setattr("overweave.pipeline.streaming.apply_batch.merge_profiles", failing)
        apply_batch(second, 1)
    assert_same(read(tmp_path / "out"), seen)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="power"):
        patch.setattr(Versions, "publish", failing)
        apply_batch(second, 1)
    _, expected = batch_job(spark, two_files, tmp_path)
    apply_batch(second, 1)
    assert_same(read(tmp_path / "out"), expected)


def failing(*_):
    raise OSError("power is out")


def test_a_version_that_is_missing_is_not_passed_over(spark, tmp_path, two_files):
    apply_batch = ApplyBatch(Versions(tmp_path / "out", TABLES), BITS, 0.5)
    with pytest.raises(OverweaveError, match="expected version 4 of the tables, found none"):
        apply_batch(batch_of(spark, tmp_path, ["x"]), 5)


def test_old_versions_stay_for_a_while(tmp_path, monkeypatch):
    versions = Versions(tmp_path / "out", ["t"])

    def fill(folder):
        (folder / "t" / "data").write_bytes(folder.name.encode())

    (tmp_path / "out" / "t").mkdir(parents=True)  # of the batch job
    for number in range(3):
        versions.write(number, fill)
        assert (tmp_path / "out" / "t" / "data").read_text() == str(number)
        assert current(tmp_path / "out").name == str(number)
    assert [versions.path(number) is not None for number in range(4)] == [True, True, True, False]
    monkeypatch.setattr(versions_module, "KEPT_S", -1.0)
    versions.write(3, fill)
    assert [versions.path(number) is not None for number in range(4)] == [False, False, True, True]
    assert current(tmp_path).local == tmp_path


def test_who_goes_on_asks_for_the_same(spark, followed):
    traces, out, _ = followed
    with pytest.raises(InvalidInput, match="bits: expected 128, as in the resumed job, found 64"):
        follow(spark, traces, out, "a", 64, 0.5)
    with Versions(out, TABLES).lock(), pytest.raises(OverweaveError, match="another process follows"):
        follow(spark, traces, out, "a", BITS, 0.5)


def test_the_manifest_of_an_earlier_release_is_read(tmp_path):
    versions, manifest = Versions(tmp_path / "out", TABLES), FollowManifest("traces", "a", BITS, 0.5, 4)
    _check_manifest(versions, manifest)
    home = tmp_path / "out" / ".follow"
    (home / "manifest.json").rename(home / "begun.json")
    _check_manifest(versions, manifest)
    with pytest.raises(InvalidInput, match="bits: expected 128, as in the resumed job, found 64"):
        _check_manifest(versions, FollowManifest("traces", "a", 64, 0.5, 4))
    assert [path.name for path in home.iterdir()] == ["begun.json"]


def test_what_cannot_be_followed_is_refused(spark, tmp_path, two_files):
    for run in ("b", "c"):
        write_file(two_files / f"run={run}", "empty", [])
    with pytest.raises(InvalidInput, match="expected one run or --run, found runs a, b, c"):
        follow(spark, two_files, tmp_path / "out")
    with pytest.raises(InvalidInput, match="expected rows, found none"):
        follow(spark, tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InvalidInput, match="every_s: expected a time above 0"):
        follow(spark, two_files, tmp_path / "out", "a", every_s=0.0)
    with pytest.raises(InvalidInput, match="found other files"):
        follow(spark, two_files, tmp_path, "a")


def test_missing_values_are_refused_by_file(spark, tmp_path):
    columns = {"publisher": ["p"], "sequence": pyarrow.array([None], "int64"), "broker": ["B"], "subscription": ["s"]}
    columns |= {
        "client": ["c"],
        "hops": pyarrow.array([0], "int32"),
        "published_at_s": [1.0],
        "arrived_at_s": [2.0],
        "bytes": [7],
    }
    (tmp_path / "traces" / "run=a").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "traces" / "run=a" / "bad.parquet")
    with pytest.raises(InvalidInput) as refused:
        follow(spark, tmp_path / "traces", tmp_path / "out", "a")
    assert str(refused.value) == f"{tmp_path}/traces/run=a/bad.parquet: column 'sequence': expected a value, found none"
