"""Notices of a broker to a client about its publications, each raised once."""

from overweave.contract.wire import Notice
from overweave.errors import NotAdvertised


class Notices:
    """The last notice of all sessions of a client, until it is raised.

    >>> notices = Notices()
    >>> notices.add("B1", Notice("not-advertised", "1 publication", 1))
    >>> notices.raise_pending()
    Traceback (most recent call last):
    overweave.errors.NotAdvertised: 1 publication
    >>> notices.add("B1", Notice("not-advertised", "1 publication", 1))  # a copy
    >>> notices.raise_pending()
    """

    def __init__(self) -> None:
        self.pending: NotAdvertised | None = None
        self._last_numbers: dict[str, int] = {}

    def add(self, peer: str, notice: Notice) -> None:
        """Add a notice of a broker, unless it is a copy of an earlier one."""
        if notice.number > self._last_numbers.get(peer, 0):
            self._last_numbers[peer] = notice.number
            self.pending = NotAdvertised(notice.text)

    def raise_pending(self) -> None:
        """Raise the last notice, once."""
        notice, self.pending = self.pending, None
        if notice is not None:
            raise notice

    def reset(self, peer: str) -> None:
        """Start a new session, whose numbers start again."""
        self._last_numbers.pop(peer, None)
