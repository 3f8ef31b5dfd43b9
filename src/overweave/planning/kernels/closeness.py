"""How close profiles are, many at a time (THESIS 6.2.3): the search for partners and the greedy set cover."""

from overweave.matching.kernels.compile import inlined, kernel, ones


@inlined
def _value(both, x, y, metric):
    """``metric`` is power, weight of the sum, weight of the intersection, constant, and the cap for a division by zero."""
    below = metric[1] * (x + y) - metric[2] * both + metric[3]
    if below <= 0:
        return metric[4]
    above = 1.0
    if metric[0] >= 1:
        above = float(both)
    if metric[0] >= 2:
        above = above * float(both)
    return above / below


@inlined
def _common(g, h, start, count, publisher, words):
    """The number of bits that both profiles have, publisher by publisher."""
    both = 0
    i, j = start[g], start[h]
    i_end, j_end = i + count[g], j + count[h]
    while i < i_end and j < j_end:
        if publisher[i] < publisher[j]:
            i += 1
        elif publisher[i] > publisher[j]:
            j += 1
        else:
            for w in range(words.shape[1]):
                both += ones(words[i, w] & words[j, w])
            i += 1
            j += 1
    return both


@kernel
def common(g, h, start, count, publisher, words):
    """The number of bits that both profiles have."""
    return _common(g, h, start, count, publisher, words)


@kernel
def scan(
    g, active, size, marks, mark, sizes, start, count, publisher, words, set_bits, metric, bounded, offer, lightest, most_output,
    best, partner, counted,
):  # fmt: skip
    """Find the closest partner of group ``g`` among ``active[:size]``; of equally close ones, the first by number.

    Groups in ``marks`` failed with it before. A group is its own partner if it has two units. With ``offer``, others
    learn of ``g`` where it is closer than their partner. With ``bounded``, the bits of a pair are not looked at where even
    the largest possible intersection would not make it the closest. Pairs whose lightest units come to more than ``most_output``
    are left out. ``counted[0]`` counts the pairs looked at.
    """
    top, found, x = 0.0, -1, set_bits[g]
    for k in range(size):
        h = active[k]
        if marks[h] == mark or (h == g and sizes[g] < 2) or (h != g and lightest[g] + lightest[h] > most_output):
            continue
        y = set_bits[h]
        if bounded:
            most = _value(min(x, y), x, y, metric)
            if (most < top or (most == top and h > found)) and not (offer and most >= best[h]):
                continue
        both = x if h == g else _common(g, h, start, count, publisher, words)
        counted[0] += 1
        value = _value(both, x, y, metric)
        if value > top or (value == top and value > 0 and h < found):
            top, found = value, h
        if offer and h != g and (value > best[h] or (value == best[h] and value > 0 and g < partner[h])):
            best[h], partner[h] = value, g
    best[g], partner[g] = top, found


@kernel
def covered(g, active, size, start, count, publisher, words, set_bits, out):
    """List the groups that ``g`` covers: all their bits are also its own, and it has more; ascending by number."""
    found = 0
    for k in range(size):
        h = active[k]
        if 0 < set_bits[h] < set_bits[g] and _common(g, h, start, count, publisher, words) == set_bits[h]:
            at = found
            while at > 0 and out[at - 1] > h:
                out[at] = out[at - 1]
                at -= 1
            out[at] = h
            found += 1
    return found


@kernel
def cover(g, candidates, loads, budget, start, count, publisher, words, missing, taken):
    """The greedy set cover of optimisation 3; return how many are chosen and how many bits they cover.

    ``missing`` has a row for each of g's and is filled here. The next is who brings most bits that are not yet covered, the
    first of equal ones; it ends when nobody brings any, or when the next one's load is more than is left of ``budget``.
    """
    for row in range(count[g]):
        for w in range(words.shape[1]):
            missing[row, w] = words[start[g] + row, w]
    chosen, bits = 0, 0
    while True:
        most, best = 0, -1
        for k in range(len(candidates)):
            new = _new_bits(candidates[k], g, start, count, publisher, words, missing)
            if new > most:
                most, best = new, k
        if best < 0 or loads[best] > budget:
            return chosen, bits
        budget -= loads[best]
        bits += most
        taken[chosen] = best
        chosen += 1
        h, j = candidates[best], start[g]
        for row in range(start[h], start[h] + count[h]):
            while publisher[j] < publisher[row]:
                j += 1
            for w in range(words.shape[1]):
                missing[j - start[g], w] &= ~words[row, w]


@inlined
def _new_bits(h, g, start, count, publisher, words, missing):
    new, j = 0, start[g]
    for row in range(start[h], start[h] + count[h]):
        while publisher[j] < publisher[row]:
            j += 1
        for w in range(words.shape[1]):
            new += ones(words[row, w] & missing[j - start[g], w])
    return new
