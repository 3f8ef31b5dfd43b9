"""The journal file: whatever a crash leaves, what was acknowledged is there and nothing is invented."""

import bisect
import contextlib
import errno
import logging
import os
import random
import tempfile
from pathlib import Path

import msgspec
import pytest

from overweave.broker.registry import OVERLAY_KEY
from overweave.contract.overlay_state import OverlayRecord, first_state
from overweave.drivers.tcp import journal as journal_module
from overweave.drivers.tcp.journal import JournalFile
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay

FILTERS = [parse_filter(f"[class,eq,'C{n}'],[x,>,{n}]") for n in range(8)]


def said(id, n=0, kind="subscription"):
    return (kind, id), ("c", FILTERS[n])


def withdrawn(id, kind="subscription"):
    return (kind, id), None


def effect(entries):
    """The dumb oracle: what is left of some entries."""
    left = {}
    for key, value in entries:
        left.pop(key, None)
        if value is not None:
            left[key] = value
    return left


@contextlib.contextmanager
def opened(directory):
    file = JournalFile(directory, "B1")
    try:
        yield file, file.open()
    finally:
        file.close()


def contents(directory):
    with opened(directory) as (_, entries):
        return dict(entries)


def history(seed, operations):
    draw = random.Random(seed)
    entries = []
    for _ in range(operations):
        kind, id = draw.choice(("subscription", "advertisement")), f"c/é{draw.randrange(40)}"
        entries.append(withdrawn(id, kind) if draw.random() < 0.4 else said(id, draw.randrange(8), kind))
    return entries


def record_history(directory, seed, operations, before=()):
    """A journal's bytes; for each record where it ends, and where the syncs were."""
    draw, entries = random.Random(seed), history(seed, operations)
    with opened(directory) as (file, _):
        if before:
            file.commit(before)
            file.compact()
        start = file.path.stat().st_size
        synced, done = [(start, 0)], 0
        while done < len(entries):
            group = entries[done : done + draw.randint(1, 12)]
            file.commit(group)
            done += len(group)
            synced.append((file.path.stat().st_size, done))
        data = file.path.read_bytes()
    ends = [start]
    while (end := data.find(b"\n", ends[-1]) + 1) > 0:
        ends.append(end)
    assert len(ends) == operations + 1
    return data, entries, ends, synced


@pytest.fixture
def quick(monkeypatch):
    """A directory in memory where there is one, and no waiting for the disk: other tests see that it is asked."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def quiet():
    """No thousands of lines in the log."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


#: What file systems leave after the last byte that was written, or instead of it.
AFTER_THE_CUT = (
    lambda _: b"",
    lambda draw: bytes(draw.randrange(1, 600)),
    lambda draw: draw.randbytes(draw.randrange(1, 600)),
    lambda draw: b"\n" + draw.randbytes(draw.randrange(1, 300)) + b"\n" + bytes(40),
)


@pytest.mark.parametrize("before", [0, 20])
def test_a_journal_that_is_cut_anywhere_has_all_up_to_the_last_whole_record(quick, quiet, before):
    snapshot = [said(f"c/before{n}", n % 8) for n in range(before)]
    data, entries, ends, synced = record_history(quick / "one", 7, 300, snapshot)
    effects = [effect([*snapshot, *entries[:count]]) for count in range(len(entries) + 1)]
    draw, path = random.Random(1), quick / "other" / "B1.journal"
    path.parent.mkdir()
    for number in range(5_000):
        cut = draw.randrange(ends[0], len(data) + 1)
        rest = AFTER_THE_CUT[number % 4](draw)
        path.write_bytes(data[:cut] + rest)
        if rest[:1] == data[cut : cut + 1]:
            cut += 1  # the end of a line, which happens to be right
        whole = bisect.bisect_right(ends, cut) - 1
        acknowledged = max(count for length, count in synced if length <= cut)
        assert whole >= acknowledged
        assert contents(path.parent) == effects[whole], f"cut at {cut}"


def test_a_journal_that_is_cut_in_its_header_or_snapshot_has_what_is_whole(quick, caplog):
    snapshot = [said(f"c/s{n}", n) for n in range(8)]
    data, *_ = record_history(quick / "one", 7, 0, snapshot)
    path = quick / "other" / "B1.journal"
    path.parent.mkdir()
    for cut in range(len(data)):
        path.write_bytes(data[:cut] + bytes(cut % 3))
        assert contents(path.parent) == effect(snapshot[: max(data[:cut].count(b"\n") - 1, 0)])
    assert {record.levelname for record in caplog.records if record.getMessage() == "journal-truncated"} == {"ERROR", "WARNING"}


@pytest.mark.parametrize(
    ("left", "level", "missing"),
    [
        (lambda _: b"", "WARNING", "all advertisements and subscriptions of earlier runs"),
        (lambda data: data[:20], "WARNING", "all advertisements and subscriptions of earlier runs"),
        (lambda data: data[: len(data) // 2], "ERROR", "acknowledged advertisements, subscriptions and withdrawals"),
        (lambda data: data + b"torn", "WARNING", "only records that were not acknowledged"),
        (lambda data: data, None, None),
        (None, None, None),
    ],
)
def test_the_log_has_what_may_be_missing_from_a_shorter_journal(quick, caplog, left, level, missing):
    data, *_ = record_history(quick / "one", 7, 0, [said(f"c/s{n}", n) for n in range(8)])
    path = quick / "other" / "B1.journal"
    path.parent.mkdir()
    if left is not None:
        path.write_bytes(left(data))
    contents(path.parent)
    records = [record for record in caplog.records if record.getMessage() == "journal-truncated"]
    assert [(record.levelname, record.fields["missing"]) for record in records] == ([(level, missing)] if level else [])


def test_blocks_that_are_missing_behind_the_last_sync_are_a_torn_end(quick, quiet):
    """Of a group that was being written any part may be on disk, also a later one without an earlier one."""
    data, entries, ends, synced = record_history(quick / "one", 9, 200)
    draw, path = random.Random(2), quick / "other" / "B1.journal"
    path.parent.mkdir()
    last, count = synced[-2]
    for _ in range(300):
        start = draw.randrange(last, len(data))
        end = min(start + draw.randrange(1, 200), len(data))
        path.write_bytes(data[:start] + bytes(end - start) + data[end:])
        whole = sum(each <= start for each in ends) - 1
        assert whole >= count
        assert contents(path.parent) == effect(entries[:whole])


def test_damage_before_the_last_sync_is_an_error_with_its_line(quick, quiet):
    data, _, ends, synced = record_history(quick / "one", 9, 200)
    draw, path = random.Random(3), quick / "other" / "B1.journal"
    path.parent.mkdir()
    for _ in range(300):
        at = draw.randrange(ends[0], synced[-2][0])
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :])
        line = 1 + sum(each <= at for each in ends)
        with pytest.raises(InvalidInput, match=rf"B1\.journal:{line}: expected a record with its checksum"):
            contents(path.parent)


def test_records_of_another_file_or_place_are_none(quick, quiet):
    one, entries, ends, _ = record_history(quick / "one", 5, 20)
    other, *_ = record_history(quick / "two", 5, 20)
    path = quick / "three" / "B1.journal"
    path.parent.mkdir()
    for rest in (other[ends[10] :], one[ends[12] :], one[ends[3] : ends[4]]):
        path.write_bytes(one[: ends[10]] + rest)
        with contextlib.suppress(InvalidInput):
            assert contents(path.parent) == effect(entries[:10])


def test_a_file_that_is_no_journal_is_left_alone(tmp_path):
    path = tmp_path / "B1.journal"
    path.write_bytes(b"dear diary\n")
    with pytest.raises(InvalidInput, match=r"B1\.journal:1: expected the header of a journal"):
        contents(tmp_path)
    assert path.read_bytes() == b"dear diary\n"


def test_journals_without_checksums_are_read_and_replaced(tmp_path):
    path = tmp_path / "B1.journal"
    line = b'{"kind":"subscription","id":"%b","client":"c","filter":"[x,>,1]"}\n'
    path.write_bytes(line % b"c/1" + line % b"c/2" + b'{"kind":"subscription","id":"c/1"}\n' + line[:30])
    expected = {("subscription", "c/2"): ("c", parse_filter("[x,>,1]"))}
    assert contents(tmp_path) == expected
    assert path.read_bytes().startswith(b"overweave-journal 2 ")
    assert contents(tmp_path) == expected
    path.write_bytes(b"{nonsense\n" + line % b"c/1")
    with pytest.raises(InvalidInput, match=r"B1\.journal:1: expected a record"):
        contents(tmp_path)


def test_what_is_committed_is_synced_and_so_is_the_directory_of_a_new_file(tmp_path, monkeypatch):
    events, fsync, pwrite = [], os.fsync, os.pwrite
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd)))
    monkeypatch.setattr(os, "pwrite", lambda *args: (events.append("write"), pwrite(*args))[1])
    with opened(tmp_path) as (file, _):
        assert events == ["write", str(tmp_path / "B1.new"), str(tmp_path)]
        events.clear()
        file.commit([said("c/1"), said("c/2")])
        assert events == ["write", str(file.path)]


def test_short_writes_are_completed(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:7], at))
    with opened(tmp_path) as (file, _):
        file.commit([said("c/1"), said("c/2", 3)])
    monkeypatch.undo()
    assert contents(tmp_path) == effect([said("c/1"), said("c/2", 3)])


def full_after(bytes_left, pwrite=os.pwrite):
    """A disk with some bytes left, written in part as disks do."""
    left = [bytes_left]

    def write(descriptor, data, at):
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = pwrite(descriptor, data[: left[0]], at)
        left[0] -= written
        return written

    return write


def test_what_does_not_fit_is_taken_back_and_can_be_committed_later(tmp_path, monkeypatch):
    with opened(tmp_path) as (file, _):
        file.commit([said("c/1")])
        length = file.path.stat().st_size
        monkeypatch.setattr(os, "pwrite", full_after(100))
        with pytest.raises(OSError, match="No space"):
            file.commit([said("c/2"), said("c/3")])
        assert file.path.stat().st_size == length
        monkeypatch.undo()
        file.commit([said("c/2"), said("c/3"), said("c/4")])
    assert contents(tmp_path) == effect([said(f"c/{n}") for n in range(1, 5)])


def test_after_a_failed_sync_the_file_is_replaced(tmp_path, monkeypatch):
    """Linux may drop what it could not write and call the next sync a success."""
    with opened(tmp_path) as (file, _):
        file.commit([said("c/1")])
        inode, fsync = file.path.stat().st_ino, os.fsync
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            file.commit([said("c/2")])
        with pytest.raises(OSError, match="Input/output"):
            file.commit([said("c/2")])
        monkeypatch.setattr(os, "fsync", fsync)
        file.commit([said("c/2"), said("c/3")])
        assert file.path.stat().st_ino != inode
    assert contents(tmp_path) == effect([said(f"c/{n}") for n in range(1, 4)])


def test_a_full_disk_at_the_start_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    with opened(tmp_path) as (file, _):
        file.commit([said("c/1"), said("c/2"), withdrawn("c/1")])
    with file.path.open("ab") as torn:
        torn.write(b"0123 torn")
    monkeypatch.setattr(os, "pwrite", full_after(20))
    with opened(tmp_path) as (file, entries):
        assert entries == effect([said("c/2")])
        monkeypatch.undo()
        file.commit([said("c/3")])
    assert contents(tmp_path) == effect([said("c/2"), said("c/3")])
    monkeypatch.setattr(os, "pwrite", full_after(20))
    with pytest.raises(OverweaveError, match=r"B2\.journal: the journal cannot be opened: No space left"):
        JournalFile(tmp_path, "B2").open()


def test_two_brokers_cannot_have_one_journal(tmp_path):
    with opened(tmp_path) as (file, _):
        with pytest.raises(OverweaveError, match=r"B1\.journal: expected a journal that no other broker has open"):
            JournalFile(tmp_path, "B1").open()
        file.compact()
        with pytest.raises(OverweaveError, match="no other broker"):
            JournalFile(tmp_path, "B1").open()
    assert contents(tmp_path) == {}


def test_a_journal_is_sparse_when_most_of_it_is_out_of_date_and_it_is_long(quick, monkeypatch):
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 10_000)
    with opened(quick) as (file, _):
        file.commit([said("c/1")] * 10)
        assert not file.is_sparse
        file.commit([said(f"c/{n}") for n in range(200)])
        assert not file.is_sparse
        file.commit([withdrawn(f"c/{n}") for n in range(2, 200)])
        assert file.is_sparse
        file.compact()
        assert not file.is_sparse
        assert file.path.stat().st_size < 500
    assert contents(quick) == effect([said("c/0"), said("c/1")])


class Crash(Exception):
    """The machine is gone: nothing that follows happens."""


def test_a_crash_at_any_point_of_a_compaction_leaves_a_good_journal(tmp_path, monkeypatch):
    """Every call to the system is one after which the machine may be gone; writes may be done in part."""
    entries = [said(f"c/{n}", n % 8) for n in range(20)] + [withdrawn(f"c/{n}") for n in range(15)]
    calls = ("open", "pwrite", "fsync", "replace", "close")
    for point in range(100):
        directory, count = tmp_path / str(point), [point]
        with opened(directory) as (file, _):
            file.commit(entries)
            with monkeypatch.context() as patched:
                for name in calls:
                    patched.setattr(os, name, crashing(getattr(os, name), name, count))
                try:
                    file.compact()
                    file.commit([said("c/after")])
                    survived = True
                except Crash:
                    survived = False
        found = contents(directory)
        if survived:
            assert found == effect([*entries, said("c/after")])
            assert point > 6
            return
        assert found in (effect(entries), effect([*entries, said("c/after")]))
    raise AssertionError("it never came through")


def crashing(call, name, count):
    def instead(*arguments, **named):
        count[0] -= 1
        if count[0] < 0:
            if name == "pwrite":
                call(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
            raise Crash
        return call(*arguments, **named)

    return instead


def test_records_are_json(tmp_path):
    with opened(tmp_path) as (file, _):
        file.commit([said("c/1")])
        line = file.path.read_bytes().splitlines()[-1]
    assert msgspec.json.decode(line.split(b" ", 2)[2])["filter"] == str(FILTERS[0])


def test_the_journal_keeps_the_overlay(tmp_path: Path) -> None:
    state = first_state(Overlay(["B1", "B2"], [("B1", "B2")]), {"B1": "tcp://127.0.0.1:7401"}, epoch=3)
    journal = JournalFile(tmp_path, "B1")
    journal.open()
    journal.commit([(OVERLAY_KEY, OverlayRecord(state, ("B9",)))])
    journal.compact()
    journal.close()
    journal = JournalFile(tmp_path, "B1")
    assert journal.open() == {OVERLAY_KEY: OverlayRecord(state, ("B9",))}
    assert msgspec.json.decode(msgspec.json.encode({"state": state, "guests": ["B9"]}), type=OverlayRecord).contact is None
    journal.commit([(OVERLAY_KEY, None)])
    journal.close()
    journal = JournalFile(tmp_path, "B1")
    assert journal.open() == {}
    journal.close()
