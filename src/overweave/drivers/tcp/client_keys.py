"""Keys of clients: ownership of client names, session resumption and take-over.

The same key resumes a session. Another key takes the name over and ends the former session: at once if the name is proven (by a
token or certificate of its own), otherwise only while no client is connected under it. A key that lost the name this way cannot
take it back while the other client has it.
"""

from typing import NamedTuple

from overweave.drivers.tcp.lives import life_of
from overweave.errors import Refused

TAKEN_OVER = "session-taken-over"
#: Keys that lost a name are remembered as long as the name is in use, up to this number.
_LOST_MAX = 16


class NameClaim(NamedTuple):
    """The ownership of a client name at one broker."""

    key: str | None
    #: The life id in the header of the client's publications.
    life: int
    #: Keys of former owners.
    lost: tuple[str, ...]


def claim_name(held: NameClaim | None, name: str, key: str | None, *, connected: bool, proven: bool) -> NameClaim:
    """The claim of a client with ``key`` to ``name``, or `Refused`; a claim other than ``held`` ends the former session.

    >>> one = claim_name(None, "c", "one", connected=False, proven=False)
    >>> claim_name(one, "c", "one", connected=True, proven=False) is one
    True
    >>> two = claim_name(one, "c", "two", connected=False, proven=False)
    >>> two.key, two.lost
    ('two', ('one',))
    >>> claim_name(two, "c", "one", connected=False, proven=True)
    Traceback (most recent call last):
    overweave.errors.Refused: session-taken-over: client 'c': another client has taken over this session
    """
    if held is None:
        return NameClaim(key, life_of(key), ())
    if key is not None and held.key == key:
        return held
    if key in held.lost:
        raise taken_over(name)
    if connected and not proven:
        raise Refused("name-in-use", f"client {name!r}: expected a name that nobody else has")
    lost = (*held.lost, *((held.key,) if held.key is not None else ()))[-_LOST_MAX:]
    return NameClaim(key, life_of(key), lost)


def taken_over(name: str) -> Refused:
    """The error for a client that lost its name."""
    return Refused(TAKEN_OVER, f"client {name!r}: another client has taken over this session")
