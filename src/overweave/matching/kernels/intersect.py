"""Which filters can intersect one: their outer bounds against its, slot after slot or along the chains of some partitions.

The filter in ``slot`` has the constraints from ``starts[slot]`` to ``starts[slot + 1]``, each on a column: an attribute and a
kind of value. The query has a place for every column. Two tokens that are not 0 must be equal, and then the intervals tell all;
with a 0 they only rule out.
"""

from overweave.matching.kernels.compile import inlined, kernel

#: The token of a column that the query does not mention, and the link of a filter that was removed.
ABSENT, GONE = -2, -1
NO, PERHAPS, YES = 0, 1, 2


@inlined
def _compare(slot, starts, columns, lows, highs, tokens, low, high, token, needed):
    """Whether a filter and the query intersect; ``needed`` is how many columns they must share (-1: all of the filter)."""
    answer, shared = YES, 0
    for i in range(starts[slot], starts[slot + 1]):
        column = columns[i]
        other = token[column]
        if other == ABSENT:
            if needed < 0:
                return NO
        else:
            if lows[i] > high[column] or low[column] > highs[i]:
                return NO
            if tokens[i] == 0 or other == 0:
                answer = PERHAPS
            elif tokens[i] != other:
                return NO
            shared += 1
    return answer if shared >= needed else NO


@kernel
def find_slots(links, starts, columns, lows, highs, tokens, following, heads, low, high, token, needed, found):
    """All that may intersect the query, as ``2 * slot`` and one more if that is certain; how many.

    ``heads`` are the first slots of the chains to go along; with none, all slots are looked at in order.
    """
    count = 0
    for chain in range(max(len(heads), 1)):
        slot = heads[chain] if len(heads) else 0
        while 0 <= slot < len(links):
            if links[slot] != GONE:
                answer = _compare(slot, starts, columns, lows, highs, tokens, low, high, token, needed)
                if answer != NO:
                    found[count] = 2 * slot + (answer == YES)
                    count += 1
            slot = following[slot] if len(heads) else slot + 1
    return count


@kernel
def reach_links(links, starts, columns, lows, highs, tokens, following, heads, low, high, token, needed, reached):
    """Mark the links with a filter that intersects the query, certainly or perhaps; how many are left in doubt.

    Links with a certain mark are passed over, and it ends when all have one.
    """
    left, doubts = 0, 0
    for link in range(len(reached)):
        left += reached[link] != YES
    for chain in range(max(len(heads), 1)):
        slot = heads[chain] if len(heads) else 0
        while left > 0 and 0 <= slot < len(links):
            link = links[slot]
            if link != GONE and reached[link] != YES:
                answer = _compare(slot, starts, columns, lows, highs, tokens, low, high, token, needed)
                if answer == YES:
                    doubts -= reached[link]
                    reached[link] = YES
                    left -= 1
                elif answer == PERHAPS and reached[link] == NO:
                    reached[link] = PERHAPS
                    doubts += 1
            slot = following[slot] if len(heads) else slot + 1
    return doubts
