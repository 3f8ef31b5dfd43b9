"""Locks: one writer to a directory at a time.

On this machine the system holds a lock, and lets it go whatever ends the process. Elsewhere it is a lease: a file that its owner
renews, and that counts no more when it was not renewed for a minute, so clocks may differ by less than that.
"""

import fcntl
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from overweave.errors import OverweaveError
from overweave.pipeline.locations import Location

#: The expiry of a lease; it is renewed several times within it.
LEASE_S = 60.0
_RENEWALS = 6


class Lease(msgspec.Struct, frozen=True):
    """Who has a lock, and what for."""

    owner: str
    doing: str


@contextmanager
def locked(lock: Location, what: Location, doing: str) -> Iterator[None]:
    """Have a lock on ``what`` as long as the body runs; others get an `OverweaveError` that names the lock and what it is for."""
    if lock.local is not None:
        lock.local.parent.mkdir(parents=True, exist_ok=True)
        with lock.local.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise _held(what, lock, file.read() or "writes") from None
            file.truncate(0)
            file.write(doing)
            file.flush()
            yield
        return
    with _leased(lock, what, doing):
        yield


@contextmanager
def _leased(lock: Location, what: Location, doing: str) -> Iterator[None]:
    lease = Lease(f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}", doing)
    found = lock.status()
    if found is not None and found.modified_s <= time.time() - LEASE_S:
        lock.remove()
    with tempfile.NamedTemporaryFile() as file:
        file.write(msgspec.json.encode(lease))
        file.flush()
        if not lock.put_new(Path(file.name)):
            raise _held(what, lock, _read(lock).doing)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_S / _RENEWALS):
            # What cannot be renewed now may be the next time. A lease that was lost is not taken back.
            with suppress(OverweaveError):
                if _read(lock) == lease:
                    lock.write_bytes(msgspec.json.encode(lease))

    renewing = threading.Thread(target=renew, name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        if _read(lock) == lease:
            lock.remove()


def _read(lock: Location) -> Lease:
    try:
        return msgspec.json.decode(lock.read_bytes(), type=Lease)
    except (msgspec.MsgspecError, OverweaveError):
        return Lease("", "writes")


def _held(what: Location, lock: Location, doing: str) -> OverweaveError:
    return OverweaveError(f"{what}: another process {doing} there; it has {lock}")
