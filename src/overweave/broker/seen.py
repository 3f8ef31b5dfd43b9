"""Which publications a peer has seen, to drop duplicates by (publisher, sequence number) in bounded memory."""


class Seen:
    """Per publisher: the highest number, and a bit for each of the last ``window`` numbers; older ones count as seen.

    A publisher has no more unsettled publications than its session's window, and what is settled comes no more.

    >>> seen = Seen(window=100)
    >>> [seen.add("p", number) for number in (0, 2, 1, 2)]
    [True, True, True, False]
    """

    __slots__ = ("_mask", "_publishers")

    def __init__(self, window: int) -> None:
        #: Rings of bits have a power of two of them.
        self._mask = (1 << max(window - 1, 63).bit_length()) - 1
        self._publishers: dict[str, tuple[list[int], bytearray]] = {}

    def add(self, publisher: str, sequence: int) -> bool:
        """Whether this publication is new; it is not from now on."""
        mask = self._mask
        at, bit = (sequence & mask) >> 3, 1 << (sequence & 7)
        marks = self._publishers.get(publisher)
        if marks is None:
            ring = bytearray((mask + 1) >> 3)
            self._publishers[publisher] = ([sequence], ring)
            ring[at] = bit
            return True
        highest, ring = marks
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
            marks = self._publishers[publisher] = ([sequence - 1], bytearray((self._mask + 1) >> 3))
        return marks

    def _clear(self, ring: bytearray, first: int, count: int) -> None:
        """Forget what was ``window`` numbers before those that were passed over."""
        if count > self._mask:
            ring[:] = bytes(len(ring))
            return
        for number in range(first, first + count):
            ring[(number & self._mask) >> 3] &= ~(1 << (number & 7))
