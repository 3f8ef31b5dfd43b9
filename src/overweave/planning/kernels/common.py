"""Rows of similarity between measured profiles: bits in common, publisher by publisher, weighted by what a bit stands for."""

from overweave.matching.kernels.compile import kernel, ones


@kernel
def overlap_rows(
    first, last, own_publisher, own_row, vector_start, words, weight, entry_start, entry_group, entry_row, volume, own_volume,
    home, both, common, touched, out,
):  # fmt: skip
    """Add, per broker, the overlap (MINIMAL eq 1) of a group, rows ``first`` … ``last - 1``, with all groups at the broker.

    The volume of a group is the rate at which it receives. Entries say which groups have which vectors of a publisher. Bits in
    common are counted once per distinct vector. ``both``, ``common`` (all 0) and ``touched`` are scratch.
    """
    count = 0
    for k in range(first, last):
        publisher, own = own_publisher[k], own_row[k]
        for row in range(vector_start[publisher], vector_start[publisher + 1]):
            found = 0
            for w in range(words.shape[1]):
                found += ones(words[own, w] & words[row, w])
            both[row] = found
        for e in range(entry_start[publisher], entry_start[publisher + 1]):
            group = entry_group[e]
            if home[group] >= 0 and both[entry_row[e]] > 0:
                if common[group] == 0:
                    touched[count] = group
                    count += 1
                common[group] += weight[publisher] * both[entry_row[e]]
    for i in range(count):
        group = touched[i]
        out[home[group]] += (common[group] / own_volume) * (common[group] / volume[group])
        common[group] = 0.0
