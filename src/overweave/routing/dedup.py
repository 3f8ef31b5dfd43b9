"""Dedup windows: duplicates are dropped by (publisher, life id, sequence number) in bounded memory."""

from overweave.language.generations import STABLE_LIFE


class DedupWindow:
    """The seen publications of each life of a publisher: the highest number, and a bit for each of the last ``window``.

    Older numbers count as seen. A life has at most a session window of unsettled publications, and settled ones are
    not sent again. Lives do not affect each other, whatever numbers they use. The least recent ones are evicted:
    between one and two times ``lives_max`` are remembered.

    >>> seen = DedupWindow(window=100)
    >>> [seen.add("p", 1, number) for number in (0, 2, 1, 2, 1 << 62, 3)], seen.add("p", 2, 3)
    ([True, True, True, False, True, False], True)
    >>> few = DedupWindow(window=100, lives_max=2)
    >>> [few.add(publisher, 1, 0) for publisher in "pqpqrpsrpq"]
    [True, True, False, False, True, False, True, False, False, True]
    """

    __slots__ = ("_lives", "_lives_max", "_mask", "_older")

    def __init__(self, window: int, lives_max: int = 8192) -> None:
        #: The size of a ring of bits, a power of two, less 1.
        self._mask = (1 << max(window - 1, 63).bit_length()) - 1
        self._lives_max = lives_max
        #: Two generations of lives: recent ones, and older ones, which become recent again with a publication.
        self._lives: dict[tuple[str, int], tuple[list[int], bytearray]] = {}
        self._older: dict[tuple[str, int], tuple[list[int], bytearray]] = {}

    def add(self, publisher: str, life: int, sequence: int) -> bool:
        """Mark a publication as seen; False if it was already."""
        mask = self._mask
        at, bit = (sequence & mask) >> 3, 1 << (sequence & 7)
        highest, ring = self._lives.get((publisher, life)) or self.window_of(publisher, life, sequence)
        ahead = sequence - highest[0]
        if ahead > 0:
            if ahead > 1:
                self._clear(ring, highest[0] + 1, min(ahead - 1, mask + 1))
            highest[0] = sequence
        elif ahead < -mask or ring[at] & bit:
            return False
        ring[at] |= bit
        return True

    def is_older(self, publisher: str, life: int, sequence: int) -> bool:
        """Whether a number is below the window of its life, so that it counts as seen though it may not be."""
        marks = self._lives.get((publisher, life)) or self._older.get((publisher, life))
        return marks is not None and sequence < marks[0][0] - self._mask

    def window_of(self, publisher: str, life: int, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of a life and its ring of bits; a new one begins before ``sequence``."""
        whose = publisher, life
        marks = self._lives.get(whose)
        if marks is None:
            marks = self._older.pop(whose, None) or ([sequence - 1], bytearray((self._mask + 1) >> 3))
            if len(self._lives) >= self._lives_max:
                self._older, self._lives = self._lives, {}
            self._lives[whose] = marks
        return marks

    def validate(self) -> None:
        """Check the invariants: memory is bounded, and no life has two rings."""
        assert max(len(self._lives), len(self._older)) <= self._lives_max
        assert not self._older or self._lives.keys().isdisjoint(self._older)

    def _clear(self, ring: bytearray, first: int, count: int) -> None:
        """Clear the bits of skipped numbers, which are those of ``window`` numbers before."""
        if count > self._mask:
            ring[:] = bytes(len(ring))
            return
        for number in range(first, first + count):
            ring[(number & self._mask) >> 3] &= ~(1 << (number & 7))


class DeliveryWindow(DedupWindow):
    """The publications that a receiver has seen in any generation: one that is sent again is the same.

    Brokers tell generations apart. A copy in an earlier one may have reached some of them only, and may get no further. It must
    not keep a later one from the others.

    >>> from overweave.language.generations import next_life
    >>> seen, broker = DeliveryWindow(window=100), DedupWindow(window=100)
    >>> [each.add("p", life, 0) for each in (seen, broker) for life in (5, next_life(5))]
    [True, False, True, True]
    """

    __slots__ = ()

    def add(self, publisher: str, life: int, sequence: int) -> bool:
        """See `DedupWindow.add`."""
        return super().add(publisher, life & STABLE_LIFE, sequence)

    def is_older(self, publisher: str, life: int, sequence: int) -> bool:
        """See `DedupWindow.is_older`."""
        return super().is_older(publisher, life & STABLE_LIFE, sequence)

    def window_of(self, publisher: str, life: int, sequence: int) -> tuple[list[int], bytearray]:
        """See `DedupWindow.window_of`."""
        return super().window_of(publisher, life & STABLE_LIFE, sequence)
