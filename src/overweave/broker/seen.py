"""Which publications a peer has seen, to drop duplicates by (publisher, sequence number) in bounded memory."""

#: Numbers of one publisher that may be outstanding between the oldest gap and the newest; older gaps are given up.
WINDOW = 65_536


class Seen:
    """Per publisher: all numbers below a mark, and some above it.

    >>> seen = Seen()
    >>> [seen.add("p", number) for number in (0, 2, 1, 2)]
    [True, True, True, False]
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._above: dict[str, set[int]] = {}

    def add(self, publisher: str, sequence: int) -> bool:
        """Whether this publication is new; it is not from now on."""
        mark = self._marks.get(publisher, 0)
        if sequence == mark and not self._above.get(publisher):
            self._marks[publisher] = mark + 1
            return True
        above = self._above.setdefault(publisher, set())
        if sequence < mark or sequence in above:
            return False
        above.add(sequence)
        if len(above) > WINDOW:
            mark = min(above)
        while mark in above:
            above.remove(mark)
            mark += 1
        self._marks[publisher] = mark
        return True
