"""Which publications a peer has seen, to drop duplicates by (publisher, life, sequence number) in bounded memory."""


class DedupWindow:
    """Per life of a publisher: the highest number, and a bit for each of the last ``window`` numbers; older ones count as seen.

    A life has no more unsettled publications than its session's window, and what is settled comes no more. Whatever numbers it
    uses, it hurts no other life. Lives that are not heard of while ``lives_max`` others are get forgotten: between one and two
    times as many are remembered.

    >>> seen = Seen(window=100)
    >>> [seen.add("p", 1, number) for number in (0, 2, 1, 2, 1 << 62, 3)], seen.add("p", 2, 3)
    ([True, True, True, False, True, False], True)
    >>> few = Seen(window=100, lives_max=2)
    >>> [few.add(publisher, 1, 0) for publisher in "pqpqrpsrpq"]
    [True, True, False, False, True, False, True, False, False, True]
    """

    __slots__ = ("_lives", "_lives_max", "_mask", "_older")

    def __init__(self, window: int, lives_max: int = 8192) -> None:
        #: Rings of bits have a power of two of them.
        self._mask = (1 << max(window - 1, 63).bit_length()) - 1
        self._lives_max = lives_max
        #: Those heard of since there were too many, and those before, who come over when they are heard of again.
        self._lives: dict[tuple[str, int], tuple[list[int], bytearray]] = {}
        self._older: dict[tuple[str, int], tuple[list[int], bytearray]] = {}

    def add(self, publisher: str, life: int, sequence: int) -> bool:
        """Whether this publication is new; it is not from now on."""
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

    def window_of(self, publisher: str, life: int, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of a life and its ring of bits; of a new one, as if all before ``sequence`` were open."""
        whose = publisher, life
        marks = self._lives.get(whose)
        if marks is None:
            marks = self._older.pop(whose, None) or ([sequence - 1], bytearray((self._mask + 1) >> 3))
            if len(self._lives) >= self._lives_max:
                self._older, self._lives = self._lives, {}
            self._lives[whose] = marks
        return marks

    def _clear(self, ring: bytearray, first: int, count: int) -> None:
        """Forget what was ``window`` numbers before those that were passed over."""
        if count > self._mask:
            ring[:] = bytes(len(ring))
            return
        for number in range(first, first + count):
            ring[(number & self._mask) >> 3] &= ~(1 << (number & 7))
