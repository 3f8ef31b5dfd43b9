"""Which publications a peer has seen, to drop duplicates by (publisher, sequence number) in bounded memory."""


class Seen:
    """Per publisher: the highest number, and a bit for each of the ``window`` numbers up to it; older ones count as seen.

    A publisher has no more unsettled publications than its session's window, and what is settled comes no more.

    >>> seen = Seen(window=100)
    >>> [seen.add("p", number) for number in (0, 2, 1, 2)]
    [True, True, True, False]
    """

    __slots__ = ("_mask", "_publishers", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._mask = (1 << window) - 1
        #: [highest number, its bit and those of the numbers before it from the lowest bit on]
        self._publishers: dict[str, list[int]] = {}

    def add(self, publisher: str, sequence: int) -> bool:
        """Whether this publication is new; it is not from now on."""
        marks = self._publishers.get(publisher)
        if marks is None:
            self._publishers[publisher] = [sequence, 1]
            return True
        ahead = sequence - marks[0]
        if ahead > 0:
            marks[0] = sequence
            marks[1] = (marks[1] << ahead | 1) & self._mask if ahead < self._window else 1
            return True
        bit = 1 << -ahead if -ahead < self._window else 0
        if bit == 0 or marks[1] & bit:
            return False
        marks[1] |= bit
        return True
