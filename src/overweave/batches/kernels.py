"""Kernels over rows of publications as bytes (see `overweave.batches.raw` for the layout). Little-endian, bounds checked."""

import numpy as np

from overweave.matching.kernels.compile import copy_bytes, inlined, kernel, load_word

#: The offsets of a row's fields.
SEQUENCE, LIFE, PUBLISHED_AT, HOPS, TTL, PRIORITY, LIST_LENGTH, PUBLISHER_LENGTH, EXTRA_LENGTH, CONTENT_LENGTH, HEAD = (
    4, 12, 20, 28, 29, 30, 31, 32, 34, 36, 40,
)  # fmt: skip
#: The priority of publications, and the verdict on fields that only brokers write.
ORDINARY, FROM_BROKERS = 1, 1
#: The forms of a destination list, and its size limit.
NUMBERS, BITMAP, LIST_BYTES_MAX = 0, 1, 255
#: The verdicts of `check_contents` on a row.
BAD, GOOD, UNSURE = 0, 1, 2
#: The number of attributes up to which names are compared with each other.
_FEW = 32
_TEXT_BYTES_MAX = 1 << 20
#: What is told of a predicate of a plain filter: where its name and its value (-1: any) are, how long, and their kind.
_NAME, _NAME_LENGTH, _IS_TEXT, _VALUE, _VALUE_LENGTH = range(5)


@kernel
def walk_rows(data, count, starts, content_starts, content_ends, sequences, times, hops, new_publisher):
    """Find ``count`` rows that fill ``data``: the number of sound ones, the least ttl, and whether any has a destination list."""
    at, ttl, listed, last_life = 0, 255, False, np.uint64(0)
    for row in range(count):
        if at + HEAD > len(data):
            return row, ttl, listed
        end = at + 4 + _u32(data, at)
        publisher, extra = _u16(data, at + PUBLISHER_LENGTH), _u16(data, at + EXTRA_LENGTH)
        content = _u32(data, at + CONTENT_LENGTH)
        content_starts[row] = at + HEAD + publisher + np.int64(data[at + LIST_LENGTH]) + extra
        if end > len(data) or content_starts[row] + content > end or publisher == 0:
            return row, ttl, listed
        starts[row] = at
        content_ends[row] = content_starts[row] + content
        sequences[row] = np.int64(_u64(data, at + SEQUENCE))
        if sequences[row] < 0:
            return row, ttl, listed
        times[row] = _u64(data, at + PUBLISHED_AT)
        hops[row] = data[at + HOPS]
        listed |= data[at + LIST_LENGTH] > 0
        if data[at + TTL] < ttl:
            ttl = int(data[at + TTL])
        life = _u64(data, at + LIFE)
        new_publisher[row] = row == 0 or life != last_life or not _same_publisher(data, starts[row - 1], at)
        at, last_life = end, life
    starts[count] = at
    return (count if at == len(data) else count - 1), ttl, listed


@kernel
def gather_rows(data, starts, rows, out, out_starts):
    """Copy some rows one after the other."""
    at = 0
    for i in range(len(rows)):
        start, end = starts[rows[i]], starts[rows[i] + 1]
        out_starts[i] = at
        at = copy_bytes(data, start, end, out, at)
    out_starts[len(rows)] = at


@kernel
def unite_destinations(data, starts, union):
    """The union of all destination lists as bits; the highest number (-1: none, -2: malformed), and the number of empty ones."""
    union[:] = 0
    highest, empty = -1, 0
    for row in range(len(starts) - 1):
        at, end = _list_of(data, starts[row])
        if at == end:
            empty += 1
            continue
        if end - at < 2:
            return -2, empty
        if data[at] == BITMAP:
            if data[end - 1] == 0:
                return -2, empty
            for i in range(end - at - 1):
                union[i >> 3] |= np.uint64(data[at + 1 + i]) << np.uint64(8 * (i & 7))
            last = (end - at - 2) * 8 - 1
            byte = data[end - 1]
            while byte:
                last += 1
                byte >>= 1
        elif data[at] == NUMBERS:
            last = -1
            at += 1
            while at < end:
                number, at = _varint(data, at, end)
                if number <= last or number >= 64 * len(union):
                    return -2, empty
                union[number >> 6] |= np.uint64(1) << np.uint64(number & 63)
                last = number
        else:
            return -2, empty
        highest = max(highest, last)
    return highest, empty


@kernel
def read_destinations(data, starts, lists):
    """Fill in the destination lists as sets of bits; they are sound (`unite_destinations`) and fit."""
    lists[:] = 0
    for row in range(len(starts) - 1):
        at, end = _list_of(data, starts[row])
        if at == end:
            continue
        if data[at] == BITMAP:
            for i in range(end - at - 1):
                lists[row, i >> 3] |= np.uint64(data[at + 1 + i]) << np.uint64(8 * (i & 7))
        else:
            at += 1
            while at < end:
                number, at = _varint(data, at, end)
                lists[row, number >> 6] |= np.uint64(1) << np.uint64(number & 63)


@kernel
def list_sizes(lists, sizes):
    """How many bytes each destination list takes in its shorter form; the longest."""
    longest = 0
    for row in range(len(lists)):
        numbers, last = 0, -1
        for word in range(lists.shape[1]):
            bits = lists[row, word]
            while bits:
                bit = _lowest(bits)
                bits &= bits - np.uint64(1)
                last = word * 64 + bit
                numbers += 1 if last < 128 else 2
        sizes[row] = 0 if last < 0 else 1 + min(numbers, (last >> 3) + 1)
        longest = max(longest, sizes[row])
    return longest


@kernel
def write_destinations(data, starts, rows, lists, sizes, out, out_starts):
    """Copy some rows one after the other, each with another destination list, of the size that `list_sizes` says."""
    to = 0
    for i in range(len(rows)):
        start, end = starts[rows[i]], starts[rows[i] + 1]
        list_start, list_end = _list_of(data, start)
        first, size = to, sizes[i]
        out_starts[i] = first
        to = copy_bytes(data, start, list_start, out, to)
        if size:
            to = _put_list(lists[i], size, out, to)
        to = copy_bytes(data, list_end, end, out, to)
        length = np.uint64(to - first - 4)
        for byte in range(4):
            out[first + byte] = np.uint8((length >> np.uint64(8 * byte)) & np.uint64(255))
        out[first + LIST_LENGTH] = size
    out_starts[len(rows)] = to


@kernel
def foreign_head(data, starts):
    """What no client writes in a row's head: FROM_BROKERS, another PRIORITY than that of publications, or 0."""
    for row in range(len(starts) - 1):
        at = starts[row]
        if data[at + HOPS] or data[at + LIST_LENGTH] or _u16(data, at + EXTRA_LENGTH):
            return FROM_BROKERS
        if data[at + PRIORITY] != ORDINARY:
            return PRIORITY
    return 0


@kernel
def _put_list(bits, size, out, to):
    last = len(bits) - 1
    while bits[last] == 0:
        last -= 1
    highest, word = last * 64 - 1, bits[last]
    while word:
        highest += 1
        word >>= np.uint64(1)
    if (highest >> 3) + 2 == size:
        out[to] = BITMAP
        for i in range(size - 1):
            out[to + 1 + i] = np.uint8((bits[i >> 3] >> np.uint64(8 * (i & 7))) & np.uint64(255))
        return to + size
    out[to] = NUMBERS
    to += 1
    for i in range(last + 1):
        word = bits[i]
        while word:
            number = i * 64 + _lowest(word)
            word &= word - np.uint64(1)
            if number >= 128:
                out[to] = np.uint8(128 | (number & 127))
                to += 1
                number >>= 7
            out[to] = np.uint8(number)
            to += 1
    return to


@inlined
def _list_of(data, start):
    """Where the destination list of a row begins and ends."""
    at = start + HEAD + _u16(data, start + PUBLISHER_LENGTH)
    return at, at + np.int64(data[start + LIST_LENGTH])


@inlined
def _varint(data, at, end):
    """A number of one or two bytes, and where it ends."""
    low = np.int64(data[at])
    if low < 128 or at + 1 == end:
        return low, at + 1
    return (low & 127) | np.int64(data[at + 1]) << 7, at + 2


@inlined
def _lowest(word):
    """The place of the lowest bit."""
    place = 0
    while not word & np.uint64(1):
        word >>= np.uint64(1)
        place += 1
    return place


@kernel
def write_heads(data, starts, first, time_word):
    """Number the rows from ``first`` on, as published at a time (the bits of a float)."""
    for row in range(len(starts) - 1):
        _put_u64(data, starts[row] + SEQUENCE, np.uint64(first + row))
        _put_u64(data, starts[row] + PUBLISHED_AT, time_word)


@kernel
def mark_seen(ring, mask, highest, sequences, fresh):
    """Which numbers are new, in a ring of bits for the last ``mask + 1`` up to ``highest``; how many are, and the new highest."""
    new = 0
    for i in range(len(sequences)):
        sequence = sequences[i]
        if sequence > highest:
            if sequence - highest > mask:
                ring[:] = 0
            else:
                for number in range(highest + 1, sequence):
                    ring[(number & mask) >> 3] &= ~np.uint8(1 << (number & 7))
            highest = sequence
        elif sequence < highest - mask or ring[(sequence & mask) >> 3] & np.uint8(1 << (sequence & 7)):
            fresh[i] = False
            continue
        ring[(sequence & mask) >> 3] |= np.uint8(1 << (sequence & 7))
        fresh[i] = True
        new += 1
    return new, highest


@kernel
def check_contents(data, content_starts, content_ends, verdicts):
    """Whether each content is a publication as the codec would take it; unsure of names that are not ASCII, and of many."""
    for row in range(len(content_starts)):
        verdicts[row] = _check_content(data, content_starts[row], content_ends[row])


@kernel
def find_not_admitted(data, starts, ends, texts, predicates, stops, found):
    """Which contents are admitted by none of some plain filters (see `overweave.batches.plain_filters`); how many."""
    count, filters, last = 0, len(stops) - 1, 0
    for row in range(len(starts)):
        admitted = False
        for turn in range(filters):
            number = last + turn if last + turn < filters else last + turn - filters  # most follow one of the same kind
            if _admits(data, starts[row], ends[row], texts, predicates, stops[number], stops[number + 1]):
                admitted, last = True, number
                break
        if not admitted:
            found[count] = row
            count += 1
    return count


@inlined
def _admits(data, at, end, texts, predicates, first, stop):
    if at + 2 > end:
        return False
    count = _u16(data, at)
    if count > stop - first:
        return False
    at += 2
    guess = first
    for _ in range(count):
        if at + 2 > end:
            return False
        is_text, length = data[at] == 2, np.int64(data[at + 1])
        value = at + 2 + length
        if value + (4 if is_text else 8) > end:
            return False
        this = -1
        for _ in range(stop - first):
            if predicates[guess, _NAME_LENGTH] == length and _equal(data, at + 2, texts, predicates[guess, _NAME], length):
                this = guess
            guess = guess + 1 if guess + 1 < stop else first
            if this >= 0:
                break
        if this < 0 or (predicates[this, _IS_TEXT] == 1) != is_text:
            return False
        at = value + 8
        if is_text:
            size = _u32(data, value)
            at = value + 4 + size
            if at > end:
                return False
            wanted = predicates[this, _VALUE]
            if wanted >= 0 and not (predicates[this, _VALUE_LENGTH] == size and _equal(data, value + 4, texts, wanted, size)):
                return False
    return True


@inlined
def _equal(data, at, texts, other, length):
    """Whether ``length`` bytes are the same; behind ``texts`` are eight more."""
    if length <= 8 and at + 8 <= len(data):
        difference = load_word(data, at) ^ load_word(texts, other)
        return length == 0 or difference << np.uint64(64 - 8 * length) == 0
    for i in range(length):
        if data[at + i] != texts[other + i]:
            return False
    return True


@kernel
def _check_content(data, start, end):
    if start + 2 > end:
        return BAD
    count = _u16(data, start)
    if count == 0:
        return BAD
    if count > _FEW:
        return UNSURE
    verdict, at = GOOD, start + 2
    for number in range(count):
        if at + 2 > end:
            return BAD
        kind, length = data[at], np.int64(data[at + 1])
        value = at + 2 + length
        if length == 0 or value > end:
            return BAD
        for position in range(at + 2, value):
            byte = data[position]
            if byte >= 128:
                verdict = UNSURE
            elif byte <= 32 or byte == 127 or byte == 44 or byte == 91 or byte == 93 or byte == 39:
                return BAD
        if _named_before(data, start + 2, number, at, length):
            return BAD
        if kind <= 1:
            at = value + 8
        elif kind == 2 and value + 4 <= end:
            size = _u32(data, value)
            at = value + 4 + size
            if size > _TEXT_BYTES_MAX or at > end or not _is_utf8(data, value + 4, at):
                return BAD
        else:
            return BAD
    return verdict if at == end else BAD


@inlined
def _named_before(data, first, number, at, length):
    """Whether one of the first ``number`` attributes has the name of the one at ``at``."""
    other = first
    for _ in range(number):
        size = np.int64(data[other + 1])
        if size == length:
            same = True
            for i in range(2, 2 + length):
                if data[other + i] != data[at + i]:
                    same = False
                    break
            if same:
                return True
        other += 2 + size
        if data[other - 2 - size] <= 1:
            other += 8
        else:
            other += 4 + _u32(data, other)
    return False


@kernel
def _is_utf8(data, start, end):
    """Whether the bytes are UTF-8: no overlong form, no surrogate, nothing beyond U+10FFFF."""
    at = start
    while at < end:
        byte = data[at]
        if byte < 128:
            at += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            low = 0xA0 if byte == 0xE0 else 0x80
            high = 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            low = 0x90 if byte == 0xF0 else 0x80
            high = 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if at + more >= end:
            return False
        if data[at + 1] < low or data[at + 1] > high:
            return False
        for i in range(2, more + 1):
            if data[at + i] < 0x80 or data[at + i] > 0xBF:
                return False
        at += more + 1
    return True


@inlined
def _same_publisher(data, one, other):
    length = _u16(data, one + PUBLISHER_LENGTH)
    if _u16(data, other + PUBLISHER_LENGTH) != length:
        return False
    for i in range(HEAD, HEAD + length):
        if data[one + i] != data[other + i]:
            return False
    return True


@inlined
def _u16(data, at):
    return np.int64(data[at]) | np.int64(data[at + 1]) << 8


@inlined
def _u32(data, at):
    return _u16(data, at) | _u16(data, at + 2) << 16


@inlined
def _u64(data, at):
    return np.uint64(_u32(data, at)) | np.uint64(_u32(data, at + 4)) << np.uint64(32)


@inlined
def _put_u64(data, at, word):
    for i in range(8):
        data[at + i] = np.uint8((word >> np.uint64(8 * i)) & np.uint64(255))
