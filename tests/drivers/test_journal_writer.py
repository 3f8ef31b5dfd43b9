"""Group commit: one write for all that came meanwhile, the loop never waits, and what fails is tried again."""

import asyncio
import errno
import os
import threading
import time

import pytest

from overweave.drivers.tcp import journal as journal_module
from overweave.drivers.tcp import journal_writer
from overweave.drivers.tcp.journal import JournalFile
from overweave.drivers.tcp.journal_writer import JournalWriter
from overweave.drivers.tcp.logs import Log
from overweave.language.syntax import parse_filter
from overweave.testing.live import until

FILTER = parse_filter("[x,>,1]")


def entry(n, value=("c", FILTER)):
    return ("subscription", f"c/{n}"), value


class Observed:
    """A writer in a directory, and what it said."""

    def __init__(self, directory):
        self.file = JournalFile(directory, "B1")
        self.entries = self.file.open()
        self.persisted, self.failed = [], []
        self.writer = JournalWriter(self.file, Log("B1"), self.persisted.append, self.failed.append)

    def keep(self, numbers, value=("c", FILTER)):
        for n in numbers:
            self.writer.append(entry(n, value))


def kept(directory):
    file = JournalFile(directory, "B1")
    try:
        return {id for _, id in file.open()}
    finally:
        file.close()


def run(work):
    return asyncio.run(asyncio.wait_for(work, 30))


def events(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_what_comes_while_the_disk_is_busy_goes_in_one_write_and_the_loop_goes_on(tmp_path, monkeypatch):
    busy, syncs, fsync = threading.Event(), [], os.fsync

    def slow(descriptor):
        syncs.append(threading.current_thread().name)
        assert busy.wait(10)
        fsync(descriptor)

    async def work():
        seen = Observed(tmp_path)
        monkeypatch.setattr(os, "fsync", slow)
        seen.keep(range(3))
        await until(lambda: syncs)
        seen.keep(range(3, 1000))
        turns = 0
        end_s = time.monotonic() + 0.1
        while time.monotonic() < end_s:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 100
        assert (seen.persisted, seen.writer.pending) == ([], 1000)
        busy.set()
        await until(lambda: len(seen.persisted) == 2)
        assert seen.persisted == [3, 1000]
        await seen.writer.close()

    run(work())
    assert len(syncs) == 2
    assert all(name.startswith("journal") for name in syncs)
    assert len(kept(tmp_path)) == 1000


def test_a_full_disk_is_reported_once_and_recovered_from(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(journal_writer, "RETRY_S", 0.02)
    pwrite, tries = os.pwrite, []

    def full(*_):
        tries.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def work():
        seen = Observed(tmp_path)
        assert seen.writer.health_problem is None
        monkeypatch.setattr(os, "pwrite", full)
        seen.keep(range(3))
        await until(lambda: len(tries) > 3)
        seen.keep([7])
        assert seen.writer.health_problem.endswith("B1.journal cannot be written: No space left on device")
        assert (seen.persisted, set(seen.failed)) == ([], {"No space left on device"})
        monkeypatch.setattr(os, "pwrite", pwrite)
        await until(lambda: seen.persisted)
        assert (seen.persisted, seen.writer.health_problem) == ([4], None)
        await seen.writer.close()

    run(work())
    assert events(caplog) == [("ERROR", "journal-unavailable"), ("WARNING", "journal-recovered")]
    assert kept(tmp_path) == {"c/0", "c/1", "c/2", "c/7"}


@pytest.mark.parametrize("works", [True, False])
def test_closing_commits_what_it_can_and_says_what_it_cannot(tmp_path, monkeypatch, caplog, works):
    async def work():
        seen = Observed(tmp_path)
        if not works:
            monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system")))
        seen.keep(range(3))
        await seen.writer.close()
        assert seen.persisted == ([3] if works else [])

    run(work())
    monkeypatch.undo()
    assert events(caplog) == ([] if works else [("ERROR", "journal-unavailable"), ("ERROR", "journal-incomplete")])
    assert len(kept(tmp_path)) == (3 if works else 0)


def test_a_disk_that_hangs_is_an_ailment(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_writer, "SLOW_S", 0.05)
    busy, fsync = threading.Event(), os.fsync

    async def work():
        seen = Observed(tmp_path)
        monkeypatch.setattr(os, "fsync", lambda descriptor: (busy.wait(10), fsync(descriptor)))
        seen.keep([1])
        await until(lambda: seen.writer.health_problem is not None)
        assert seen.writer.health_problem.endswith("has waited for the disk for 0 s")
        busy.set()
        await until(lambda: seen.persisted)
        assert seen.writer.health_problem is None
        await seen.writer.close()

    run(work())


def test_a_journal_is_compacted_while_more_is_kept_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 20_000)
    compactions, compact = [], JournalFile.compact
    monkeypatch.setattr(JournalFile, "compact", lambda self: (compact(self), compactions.append(1)))

    async def work():
        seen = Observed(tmp_path)
        for round in range(40):
            seen.keep(range(round, round + 50))
            seen.keep(range(round, round + 49), None)
            await asyncio.sleep(0.002)
        await until(lambda: seen.persisted and seen.persisted[-1] == 40 * 99)
        assert len(compactions) > 2
        assert seen.file.path.stat().st_size < 60_000
        await seen.writer.close()

    run(work())
    assert kept(tmp_path) == {"c/88"}


def test_a_compaction_that_fails_stops_nobody(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(journal_module, "COMPACT_BYTES", 1_000)

    async def work():
        seen = Observed(tmp_path)
        monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        for round in range(20):
            seen.keep([1] * 20)
            await until(lambda count=20 * round + 20: seen.persisted[-1:] == [count])
        assert (seen.failed, seen.writer.health_problem) == ([], None)
        await seen.writer.close()

    run(work())
    monkeypatch.undo()
    assert set(events(caplog)) == {("WARNING", "journal-compaction-failed")}
    assert len(caplog.records) < 10
    assert kept(tmp_path) == {"c/1"}
