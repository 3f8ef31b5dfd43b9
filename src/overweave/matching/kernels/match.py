"""Matching publications in their wire form, one compiled call per batch.

Per link the caller says what it wants: nothing, only whether some filter matches (the search stops at the first that does), or
all of them, or how many. So one walk serves both the next hops of a publication and the list of its subscribers.
"""

import numpy as np

from overweave.matching.kernels.blocks import block_has_match, count_block, find_matches, list_block
from overweave.matching.kernels.compile import WORDS, inlined, kernel, trailing_zeros
from overweave.matching.kernels.exact import clear_values, unpack_publication
from overweave.matching.kernels.handle import bytes_at, state_at
from overweave.matching.kernels.partitions import find_equality
from overweave.matching.kernels.rows import row_matches
from overweave.matching.kernels.state import FILTERS, MASKED, MATCHES, NONE, ROWS, SHARED, TILE

#: The mode of a link in a query: skip it, find whether any filter matches, list all that do, or count them.
SKIP, ANY, ALL, COUNT = 0, 1, 2, 3
#: The matches among members after which the search checks whether any are left to find; the number doubles each time.
_LOOK_FIRST = 128
_ONE, _ZERO = np.uint64(1), np.uint64(0)


@kernel
def match_publications(address, data, starts, stops, row, wanted, hits, found, slots, ends):
    """Match publications from ``row`` on against the filters of the wanted links; the row at which it stopped.

    Row i is the wire form in ``data[starts[i]:stops[i]]``. ``hits[row, link]`` tells whether one matched; the ``slots`` of all
    that match on links wanted in full are listed, those of a row up to ``ends[row]``. It stops early at a malformed
    publication (``ends`` is NONE there) and when there may be no room in ``slots`` for all filters at once. ``found`` has room
    for all filters per publication that is matched together.
    """
    state = state_at(address)
    count = 0
    while row < len(starts):
        tile = min(len(found), len(starts) - row, (len(slots) - count) // max(state.counters[FILTERS], 1))
        for i in range(tile):
            clear_values(state, i)
            if not unpack_publication(state, i, data, starts[row + i], stops[row + i]):
                ends[row + i] = NONE
                tile = i
                break
        if tile == 0:
            return row
        _match_tile(state, data, tile, wanted, hits[row : row + tile], found, ends[row : row + tile])
        for i in range(tile):
            for at in range(ends[row + i]):
                slots[count + at] = found[i, at]
            count += ends[row + i]
            ends[row + i] = count
        row += tile
    return row


@kernel
def count_matches(address, data, starts, stops, wanted, hits, counts):
    """How many filters each publication satisfies, of links wanted by COUNT; the row of the first malformed one, or their end.

    ``hits`` has room for as many publications as are matched together. Nothing is listed.
    """
    state, row = state_at(address), 0
    nowhere = state.found[:0].reshape((1, 0))
    while row < len(starts):
        tile = min(TILE, len(starts) - row)
        for i in range(tile):
            clear_values(state, i)
            if not unpack_publication(state, i, data, starts[row + i], stops[row + i]):
                return row + i
        _match_tile(state, data, tile, wanted, hits, nowhere, counts[row : row + tile])
        row += tile
    return row


@kernel
def hit_links(address, place, length, exclude):
    """The links other than ``exclude`` and 0 that the publication at ``place`` matches: a bit for each.

    NONE when it is malformed. Where links are too many for that, NONE less one more than how many there are in `link_found`.
    """
    state = state_at(address)
    if not _match_alone(state, bytes_at(place, length), ANY, exclude):
        return np.int64(NONE)
    hits, mask, count = state.link_hits, np.int64(0), 0
    if len(hits) <= MASKED:
        for link in range(len(hits)):
            mask |= np.int64(hits[link]) << link
        return mask
    for link in range(len(hits)):
        state.link_found[count] = link
        count += hits[link]
    return np.int64(NONE - 1 - count)


@kernel
def hit_links_each(address, places, exclude, masks):
    """What `hit_links` says of the publications at several ``places``, each an address and a length; the union of it."""
    united = np.int64(0)
    for row in range(len(places)):
        masks[row] = hit_links(address, places[row, 0], places[row, 1], exclude)
        united |= masks[row]
    return united


@kernel
def rows_by_mask(masks, united, links, ends, rows):
    """Of what `hit_links_each` said, the ``rows`` of each link, those of one up to its end, and the ``links``."""
    count, at, link = 0, 0, 0
    while united >> link != 0:
        if united >> link & 1:
            for row in range(len(masks)):
                if masks[row] >> link & 1:
                    rows[at] = row
                    at += 1
            links[count] = link
            ends[count] = at
            count += 1
        link += 1


@kernel
def hit_filters(address, place, length):
    """How many filters the publication at ``place`` matches, NONE when it is malformed; their slots are in `found`."""
    state = state_at(address)
    matched = _match_alone(state, bytes_at(place, length), ALL, NONE)
    return state.counters[MATCHES] if matched else np.int64(NONE)


@kernel
def _match_alone(state, data, want, exclude):
    """Match one publication on all links, or only whether it does on those that are not the broker itself nor ``exclude``."""
    clear_values(state, 0)
    if not unpack_publication(state, 0, data, 0, len(data)):
        return False
    wanted, hits = state.link_wanted, state.link_hits
    for link in range(len(hits)):
        wanted[link] = want
        hits[link] = False
    if want == ANY:
        wanted[0] = SKIP
        wanted[exclude] = SKIP
    found, counts = state.found, state.counters[MATCHES : MATCHES + 1]
    _match_tile(state, data, 1, wanted, hits.reshape((1, len(hits))), found.reshape((1, len(found))), counts)
    return True


@kernel
def first_bad_range(length, starts, ends):
    """The first row whose range is not within ``length`` bytes; as many as there are rows when all are."""
    for row in range(len(starts)):
        if starts[row] < 0 or starts[row] > ends[row] or ends[row] > length:
            return row
    return len(starts)


@kernel
def group_by_link(positions, links, ends, rows):
    """Of ``positions`` in a table of rows by ``links``, in order, the ``rows`` link after link; those of one up to its end."""
    row, first = 0, 0
    for at in range(len(positions)):
        while positions[at] >= first + links:
            row, first = row + 1, first + links
        ends[positions[at] - first] += 1
    before = 0
    for link in range(links):
        before, ends[link] = before + ends[link], before
    row, first = 0, 0
    for at in range(len(positions)):
        while positions[at] >= first + links:
            row, first = row + 1, first + links
        link = positions[at] - first
        rows[ends[link]] = row
        ends[link] += 1


@kernel
def _match_tile(state, data, tile, wanted, hits, found, counts):
    """Match the publications at hand; partitions that all of them may match are walked once for all."""
    for i in range(tile):
        counts[i] = 0
    segment = state.partitions[0].first
    while segment != NONE:
        if state.segments[segment].link == SHARED:
            for i in range(tile):
                _match_shared(state, i, data, segment, wanted, hits[i], found[i], counts)
        elif state.segments[segment].kind == ROWS:
            for i in range(tile):
                _match_rows(state, i, data, segment, wanted, hits[i], found[i], counts)
        else:
            block = state.segments[segment].first
            while block != NONE:
                for i in range(tile):
                    _match_block(state, i, data, segment, block, wanted, hits[i], found[i], counts)
                block = state.blocks[block].next
        segment = state.segments[segment].next
    for i in range(tile):
        for j in range(state.value_counts[i]):
            number = state.values[j, i].present
            column = state.columns[number]
            if column.present != NONE:
                _match_partition(state, i, data, column.present, wanted, hits[i], found[i], counts)
            if column.keys > 0:
                value = state.values[number, i]
                equality = find_equality(state, number, value.value, value.fine)
                if equality != NONE:
                    _match_partition(state, i, data, equality, wanted, hits[i], found[i], counts)


@kernel
def _match_partition(state, which, data, partition, wanted, hits, found, counts):
    segment = state.partitions[partition].first
    while segment != NONE:
        if state.segments[segment].link == SHARED:
            _match_shared(state, which, data, segment, wanted, hits, found, counts)
        elif state.segments[segment].kind == ROWS:
            _match_rows(state, which, data, segment, wanted, hits, found, counts)
        else:
            block = state.segments[segment].first
            while block != NONE:
                _match_block(state, which, data, segment, block, wanted, hits, found, counts)
                block = state.blocks[block].next
        segment = state.segments[segment].next


@inlined
def _match_rows(state, which, data, number, wanted, hits, found, counts):
    segment = state.segments[number]
    want, link, count = wanted[segment.link], segment.link, counts[which]
    if want == SKIP or (want == ANY and hits[link]):
        return
    for at in range(segment.first, segment.first + segment.count):
        if row_matches(state, which, data, at):
            hits[link] = True
            if want == ANY:
                return
            if want == ALL:
                found[count] = state.rows[at].slot
            count += 1
    counts[which] = count


@inlined
def _match_block(state, which, data, number, block, wanted, hits, found, counts):
    link = state.segments[number].link
    want = wanted[link]
    if want == ALL:
        count = list_block(state, which, data, block, found, counts[which])
        hits[link] |= count > counts[which]
        counts[which] = count
    elif want == COUNT:
        counts[which] += count_block(state, which, data, block)
    elif want == ANY and not hits[link]:
        hits[link] = block_has_match(state, which, data, block)


@kernel
def _match_shared(state, which, data, number, wanted, hits, found, counts):
    """The filters of all members; when many have matched, it is looked now and then whether there is anything left to find."""
    segment, matched, look = state.segments[number], 0, _LOOK_FIRST
    if segment.kind == ROWS:
        for at in range(segment.first, segment.first + segment.count):
            if row_matches(state, which, data, at):
                slot = state.rows[at].slot
                _hit(slot, state.segments[state.slots[slot].segment].link, which, wanted, hits, found, counts)
        return
    block = segment.first
    while block != NONE:
        if find_matches(state, which, data, block):
            for word in range(WORDS):
                bits = state.block_left[word]
                while bits != _ZERO:
                    position = word * 64 + trailing_zeros(bits)
                    link = state.block_links[block, position]
                    _hit(state.block_slots[block, position], link, which, wanted, hits, found, counts)
                    matched += 1
                    bits &= bits - _ONE
                if matched >= look:
                    if _nothing_left(state, state.partitions[segment.partition].members, wanted, hits):
                        return
                    look *= 2
        block = state.blocks[block].next


@inlined
def _hit(slot, link, which, wanted, hits, found, counts):
    """A filter of a member matches."""
    want = wanted[link]
    if want == SKIP:
        return
    hits[link] = True
    if want == ALL:
        found[counts[which]] = slot
    if want != ANY:
        counts[which] += 1


@kernel
def _nothing_left(state, member, wanted, hits):
    """Whether nothing more can be found for one member and those after it."""
    while member != NONE:
        link = state.segments[member].link
        if wanted[link] > ANY or (wanted[link] == ANY and not hits[link]):
            return False
        member = state.segments[member].next
    return True
