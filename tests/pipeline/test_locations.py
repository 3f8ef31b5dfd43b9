"""Locations: what can be done with files of this machine can be done elsewhere, and what goes wrong is said in one line.

Elsewhere is ``viewfs``: a file system of Hadoop's own that has no path of this machine, and needs no server.
"""

import pytest

from overweave.errors import InvalidInput, OverweaveError
from overweave.pipeline import locks
from overweave.pipeline.locations import Location
from overweave.pipeline.locks import locked
from overweave.pipeline.quarantine import read_with_quarantine
from overweave.pipeline.tables import files_of, read_table, write_table


@pytest.fixture
def elsewhere(spark, tmp_path):
    """A directory under an address of ``viewfs``."""
    table = f"t{abs(hash(tmp_path))}"
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{table}.link./data", f"file://{tmp_path / 'elsewhere'}")
    (tmp_path / "elsewhere").mkdir()
    return f"viewfs://{table}/data"


@pytest.fixture(params=["plain", "file", "elsewhere"])
def place(request, tmp_path):
    """The same in every way that a location can be written."""
    if request.param == "elsewhere":
        return Location.of(request.getfixturevalue("elsewhere"))
    return Location.of(tmp_path if request.param == "plain" else f"file://{tmp_path}/")


def test_files_are_alike_everywhere(place, tmp_path):
    file = place / "a" / "b.json"
    assert (file.exists(), file.is_dir(), file.parent.list(), file.name, file.suffix) == (False, False, [], "b.json", ".json")
    for data in (b"one", b"two", b""):
        file.write_bytes(data)
        assert (file.read_bytes(), file.status().size, file.is_file()) == (data, len(data), True)
    (tmp_path / "x").write_bytes(b"three")
    assert [(place / "new").put_new(tmp_path / "x") for _ in range(2)] == [True, False]
    (place / "a" / "c").make_directory()
    assert [(each.name, each.is_dir) for each in (place / "a").list() if each.name[0] != "."] == [("b.json", False), ("c", True)]
    assert str(file.parent / "z") == f"{place}/a/z"
    with file.fetched() as fetched:
        assert fetched.read_bytes() == b""
    (place / "a").remove()
    (place / "a").remove()
    assert not file.exists()
    assert not (place / "a").exists()


def test_tables_are_alike_everywhere(spark, place):
    """Names that Spark would take for patterns, and a sibling with a colon."""
    rows = [("p", i, f"[x,{i}]") for i in range(3)]
    (place / "12 30" / "x").write_bytes(b"")
    (place / "12 30" / "a:b").make_directory() if place.local else None
    table = place / "12 30" / "tr[1]{a,b}*"
    write_table(spark.createDataFrame(rows, "publisher string, sequence long, publication string"), table)
    assert sorted(map(tuple, read_table(spark, table, "publications").collect())) == rows
    files = files_of(table)
    assert files.names
    assert all(name.startswith(table.path) and name.endswith(".parquet") for name in files.names)
    (table / "empty.parquet").write_bytes(b"")
    with pytest.raises(InvalidInput, match=r"empty.parquet: expected a Parquet file, found an empty one"):
        read_table(spark, table, "publications")
    (table / "torn.parquet").write_bytes(b"PAR1")
    good, bad = read_with_quarantine(spark, table, "publications")
    assert good.count() == 3
    assert sorted((row.file, row.rows) for row in bad.collect()) == [
        (f"{table.path}/empty.parquet", None), (f"{table.path}/torn.parquet", None),
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match=r"nothing: expected a file or directory, found nothing"):
        read_table(spark, place / "nothing", "publications")
    (place / "s.csv").write_bytes(b'publisher,sequence,publication\np,1,"[x,1]"\n')
    assert read_table(spark, place / "s.csv", "publications").count() == 1


def test_one_writer_at_a_time(place, monkeypatch):
    lock = place / ".follow" / "lock"
    with locked(lock, place, "follows a run"):
        with pytest.raises(OverweaveError, match=r"another process follows a run there; it has .*lock"), locked(lock, place, "x"):
            pass
        if place.is_remote:
            # Who does not renew it has lost it.
            monkeypatch.setattr(locks, "LEASE_S", -1.0)
            with locked(lock, place, "profiles a run"):
                pass
    monkeypatch.undo()
    with locked(lock, place, "follows a run"):
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nosuch://a/b", "expected a file system that Spark knows, found 'nosuch'"),
        ("s3a://bucket/traces", "S3AFileSystem not found"),
        ("viewfs://unmounted/x", "cannot be reached: "),
    ],
)
def test_what_cannot_be_reached_is_named_in_one_line(spark, text, said):
    with pytest.raises(OverweaveError) as refused:
        files_of(text)
    assert str(refused.value).startswith(f"{text}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_addresses_are_read_as_they_are_written(tmp_path):
    assert [str(Location.of(text)) for text in ("hdfs:///a//b/", "hdfs://h:1", "a/./b", "c:/d", "12:30")] == [
        "hdfs:///a/b", "hdfs://h:1", "a/b", "c:/d", "12:30",
    ]  # fmt: skip
    assert Location.of(f"file://{tmp_path}").local == Location.of(f"file:{tmp_path}").local == tmp_path
    assert Location.of(tmp_path / "a[1]").pattern == f"file:{tmp_path}/a\\[1\\]"
    for wrong in ("file://host/a", "file:////a"):
        with pytest.raises(InvalidInput, match="expected file:///PATH"):
            Location.of(wrong)
