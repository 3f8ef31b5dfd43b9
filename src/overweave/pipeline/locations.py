"""Locations: tables are files of this machine. Addresses of other stores are refused before anything is started."""

import re
from pathlib import Path

from overweave.errors import InvalidInput

#: A path joins slashes, so ``s3a://bucket`` has become ``s3a:/bucket``.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def check_local(*paths: Path | str) -> None:
    """Refuse what is the address of another store.

    >>> check_local("traces", Path("/data/12:30/x"))
    >>> check_local(Path("s3a://bucket/traces"))
    Traceback (most recent call last):
    overweave.errors.InvalidInput: s3a:/bucket/traces: expected a path on this machine, found an address of s3a
    """
    for path in paths:
        scheme = _SCHEME.match(str(path))
        if scheme is not None:
            raise InvalidInput(f"{path}: expected a path on this machine, found an address of {scheme[1]}")
