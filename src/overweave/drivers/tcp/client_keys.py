"""Keys of clients: by them clients come back to their sessions, and others take names over that are theirs or nobody's.

The same key resumes a session. Another key takes the name over, and the session that was there ends: at once if the name is
proven (a token or certificate of its own), and else when nobody is connected under it. Who lost a name so does not get it back
while the other has it.
"""

from typing import NamedTuple

from overweave.drivers.tcp.lives import life_of
from overweave.errors import Refused

TAKEN_OVER = "session-taken-over"
#: So many keys that lost a name are remembered as long as it is in use.
_LOST_MAX = 16


class _Held(NamedTuple):
    key: str | None
    life: int
    lost: tuple[str, ...]


class ClientKeys:
    """Who has which name at one broker.

    >>> keys = ClientKeys()
    >>> keys.claim("c", "one", connected=False, proven=False), keys.claim("c", "one", connected=True, proven=False)
    (False, False)
    >>> keys.claim("c", "two", connected=False, proven=False)
    True
    >>> keys.claim("c", "one", connected=False, proven=True)
    Traceback (most recent call last):
    overweave.errors.Refused: session-taken-over: client 'c': another client has taken over this session
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def claim(self, name: str, key: str | None, *, connected: bool, proven: bool) -> bool:
        """Let a client with a key have a name, or raise `Refused`; whether it takes the place of another, whose session ends."""
        held = self._held.get(name)
        if held is not None and key is not None and held.key == key:
            return False
        if held is not None and key in held.lost:
            raise taken_over(name)
        if held is not None and connected and not proven:
            raise Refused("name-in-use", f"client {name!r}: expected a name that nobody else has")
        lost = () if held is None else (*held.lost, *((held.key,) if held.key is not None else ()))[-_LOST_MAX:]
        self._held[name] = _Held(key, life_of(key), lost)
        return held is not None

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def key(self, name: str) -> str | None:
        """The key by which a client has its name."""
        return self._held[name].key

    def life(self, name: str) -> int:
        """The life that a client's publications must have."""
        held = self._held.get(name)
        return 0 if held is None else held.life

    def forget(self, name: str) -> None:
        """A client has left for good."""
        self._held.pop(name, None)

    def clear(self) -> None:
        """All have."""
        self._held.clear()


def taken_over(name: str) -> Refused:
    """What a client is told that loses its name."""
    return Refused(TAKEN_OVER, f"client {name!r}: another client has taken over this session")
