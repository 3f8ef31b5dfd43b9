"""The oracle of live migrations: how often each numbered publication arrived, against what must arrive.

Each publisher numbers the publications of each kind from 0. A life is one process of a publisher, from start to end or kill.
"""

from collections.abc import Iterator, Mapping

import msgspec

#: The failures of one kind that are described.
_EXAMPLES = 3


class Due(msgspec.Struct, frozen=True):
    """The publications of one kind and life that must arrive once: from ``first`` on, and before ``end``; others at most once."""

    first: int
    end: int


class Verdict(msgspec.Struct):
    """The result of a check of one or several subscribers."""

    due: int = 0
    lost: int = 0
    repeated: int = 0
    #: Publications that arrived after a later one of the same publisher and kind: no failure while a client moves.
    overtaken: int = 0
    #: Publications that nobody has published, and errors of subscriptions.
    wrong: int = 0
    examples: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether anything is lost, repeated or wrong."""
        return bool(self.lost or self.repeated or self.wrong)

    def add(self, other: "Verdict") -> None:
        """Add the counts of another check."""
        for name in ("due", "lost", "repeated", "overtaken", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples = [*self.examples, *other.examples]


class Arrivals:
    """The arrivals at one subscriber of one kind, by life of a publisher.

    >>> arrivals = Arrivals("s", "K")
    >>> for number in (0, 1, 3, 3):
    ...     arrivals.add("p/0", number)
    >>> verdict = arrivals.check({"p/0": Due(0, 4)})
    >>> verdict.lost, verdict.repeated, verdict.examples
    (1, 1, ['s lacks K 2..2 of p/0', 's got K 3 of p/0 2 times'])
    """

    def __init__(self, subscriber: str, kind: str) -> None:
        self._subscriber, self._kind = subscriber, kind
        self._counts: dict[str, bytearray] = {}
        self._last: dict[str, int] = {}
        self.overtaken = 0

    def add(self, life: str, number: int) -> None:
        """A publication has arrived."""
        counts = self._counts.setdefault(life, bytearray())
        if number >= len(counts):
            counts.extend(bytes(number + 1 - len(counts)))
        counts[number] = min(counts[number] + 1, 255)
        self.overtaken += number < self._last.get(life, -1)
        self._last[life] = max(self._last.get(life, -1), number)

    def check(self, due: Mapping[str, Due]) -> Verdict:
        """Compare with what is due by life; a life that is not named has no publication."""
        verdict = Verdict(overtaken=self.overtaken)
        for life in self._counts.keys() - due.keys():
            verdict.wrong += 1
            verdict.examples.append(f"{self._subscriber} got {self._kind} of {life}, which never published it")
        for life, each in due.items():
            counts = self._counts.get(life, bytearray())
            expected = counts[each.first : each.end].ljust(max(each.end - each.first, 0), b"\0")
            verdict.due += len(expected)
            verdict.lost += expected.count(0)
            for number, (first, last) in enumerate(_gaps(bytes(expected))):
                if number == _EXAMPLES:
                    break
                text = f"{self._kind} {each.first + first}..{each.first + last} of {life}"
                verdict.examples.append(f"{self._subscriber} lacks {text}")
            repeated = [number for number, count in enumerate(counts) if count > 1]
            verdict.repeated += len(repeated)
            for number in repeated[:_EXAMPLES]:
                verdict.examples.append(f"{self._subscriber} got {self._kind} {number} of {life} {counts[number]} times")
        return verdict


def _gaps(counts: bytes) -> Iterator[tuple[int, int]]:
    """The first and last number of each run of zeros."""
    start = counts.find(0)
    while start >= 0:
        end = start
        while end < len(counts) and not counts[end]:
            end += 1
        yield start, end - 1
        start = counts.find(0, end)
