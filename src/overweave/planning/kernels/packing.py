"""First fit, on whole numbers: by output alone on a tree of remaining rooms, or with the union of inputs (THESIS 6.2.1)."""

from overweave.matching.kernels.compile import inlined, kernel, ones


@inlined
def _next_with_room(tree, size, first, need):
    """The first leaf from ``first`` on with room for ``need``, or -1; ``tree[i]`` is the larger of its two children."""
    i = size + first
    while True:
        if tree[i] >= need:
            while i < size:
                i = 2 * i
                if tree[i] < need:
                    i += 1
            return i - size
        while i & 1:
            i = i >> 1
            if i == 0:
                return -1
        i += 1


@inlined
def _take(tree, size, leaf, need):
    i = leaf + size
    tree[i] -= need
    i = i >> 1
    while i > 0:
        larger = max(tree[2 * i], tree[2 * i + 1])
        if tree[i] == larger:
            break
        tree[i] = larger
        i = i >> 1


@kernel
def plant(rooms, tree):
    """Fill a tree of twice as many nodes as leaves; leaves without a bin have no room at all."""
    size = len(tree) // 2
    for i in range(size):
        tree[size + i] = rooms[i] if i < len(rooms) else -1
    for i in range(size - 1, 0, -1):
        tree[i] = max(tree[2 * i], tree[2 * i + 1])


@kernel
def pack_outputs(loads, tree, skip_above, placed):
    """Put loads, in their order, into the first bin with room; return the first that fits nowhere, or -1.

    Loads that are not above ``skip_above`` end the work: they are known to fit. ``placed[i]`` is the bin.
    """
    size = len(tree) // 2
    for k in range(len(loads)):
        if loads[k] <= skip_above:
            return -1
        if tree[1] < loads[k]:
            return k
        leaf = _next_with_room(tree, size, 0, loads[k])
        _take(tree, size, leaf, loads[k])
        placed[k] = leaf
    return -1


@inlined
def _added_input(profile, bin, start, count, publisher, words, weight, slots, unions):
    """How much more input a bin gets with a profile."""
    more = 0
    for row in range(start[profile], start[profile] + count[profile]):
        slot, new = slots[bin, publisher[row]], 0
        for w in range(words.shape[1]):
            if slot < 0:
                new += ones(words[row, w])
            else:
                new += ones(words[row, w] & ~unions[slot, w])
        more += new * weight[publisher[row]]
    return more


@kernel
def put(
    profile, load, entry, bin, start, count, publisher, words, weight, rooms, base, slope, busy_max, input_max, inputs, entries,
    slots, unions, used,
):  # fmt: skip
    """Put one item into one bin if the bin holds it; ``used[0]`` is how many unions there are."""
    if rooms[bin] < load:
        return False
    more = _added_input(profile, bin, start, count, publisher, words, weight, slots, unions)
    total = inputs[bin] + more
    if total > input_max[bin] or float(total) * (base[bin] + slope[bin] * (entries[bin] + entry)) > busy_max[bin]:
        return False
    rooms[bin] -= load
    inputs[bin] = total
    entries[bin] += entry
    for row in range(start[profile], start[profile] + count[profile]):
        slot = slots[bin, publisher[row]]
        if slot < 0:
            slot = used[0]
            used[0] += 1
            slots[bin, publisher[row]] = slot
            for w in range(words.shape[1]):
                unions[slot, w] = words[row, w]
        else:
            for w in range(words.shape[1]):
                unions[slot, w] |= words[row, w]
    return True


@kernel
def pack_items(
    order, profiles, loads, item_entries, start, count, publisher, words, weight, rooms, base, slope, busy_max, input_max, inputs,
    entries, slots, unions, used, tree, placed,
):  # fmt: skip
    """First fit with both tests; return the first item that fits nowhere, or -1. Items that have a bin already are skipped."""
    size = len(tree) // 2
    for k in range(len(order)):
        item = order[k]
        if placed[item] >= 0:
            continue
        leaf = _next_with_room(tree, size, 0, loads[item])
        while leaf >= 0:
            if put(
                profiles[item], loads[item], item_entries[item], leaf, start, count, publisher, words, weight, rooms, base, slope,
                busy_max, input_max, inputs, entries, slots, unions, used,
            ):  # fmt: skip
                _take(tree, size, leaf, loads[item])
                placed[item] = leaf
                break
            leaf = _next_with_room(tree, size, leaf + 1, loads[item]) if leaf + 1 < size else -1
        if leaf < 0:
            return item
    return -1
