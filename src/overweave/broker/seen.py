"""Which publications a peer has seen, to drop duplicates by (publisher, sequence number) in bounded memory."""


class Seen:
    """Per publisher: the highest number, and a bit for each of the last ``window`` numbers; older ones count as seen.

    A publisher has no more unsettled publications than its session's window, and what is settled comes no more. Publishers that
    are not heard of while ``publishers_max`` others are get forgotten: between one and two times as many are remembered.

    >>> seen = Seen(window=100)
    >>> [seen.add("p", number) for number in (0, 2, 1, 2)]
    [True, True, True, False]
    >>> few = Seen(window=100, publishers_max=2)
    >>> [few.add(publisher, 0) for publisher in "pqpqrpsrpq"]
    [True, True, False, False, True, False, True, False, False, True]
    """

    __slots__ = ("_mask", "_older", "_publishers", "_publishers_max")

    def __init__(self, window: int, publishers_max: int = 8192) -> None:
        #: Rings of bits have a power of two of them.
        self._mask = (1 << max(window - 1, 63).bit_length()) - 1
        self._publishers_max = publishers_max
        #: Those heard of since there were too many, and those before, who come over when they are heard of again.
        self._publishers: dict[str, tuple[list[int], bytearray]] = {}
        self._older: dict[str, tuple[list[int], bytearray]] = {}

    def add(self, publisher: str, sequence: int) -> bool:
        """Whether this publication is new; it is not from now on."""
        mask = self._mask
        at, bit = (sequence & mask) >> 3, 1 << (sequence & 7)
        highest, ring = self._publishers.get(publisher) or self.marks(publisher, sequence)
        ahead = sequence - highest[0]
        if ahead > 0:
            if ahead > 1:
                self._clear(ring, highest[0] + 1, min(ahead - 1, mask + 1))
            highest[0] = sequence
        elif ahead < -mask or ring[at] & bit:
            return False
        ring[at] |= bit
        return True

    def marks(self, publisher: str, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of a publisher and its ring of bits; of a new one, as if all before ``sequence`` were open."""
        marks = self._publishers.get(publisher)
        if marks is None:
            marks = self._older.pop(publisher, None) or ([sequence - 1], bytearray((self._mask + 1) >> 3))
            if len(self._publishers) >= self._publishers_max:
                self._older, self._publishers = self._publishers, {}
            self._publishers[publisher] = marks
        return marks

    def _clear(self, ring: bytearray, first: int, count: int) -> None:
        """Forget what was ``window`` numbers before those that were passed over."""
        if count > self._mask:
            ring[:] = bytes(len(ring))
            return
        for number in range(first, first + count):
            ring[(number & self._mask) >> 3] &= ~(1 << (number & 7))
