"""One step of DT-Baldoni (MINIMAL 6.1): the best new link of a broker instead of the weakest link of the cycle it closes."""

from overweave.matching.kernels.compile import kernel


@kernel
def rewire(broker, similarity, parent, weight, least, path):
    """Rewire a tree of parents (root: -1, weights are those of the links to parents) in favour of one broker; whether it did.

    The tree is turned to be rooted at the broker; then every cycle is a way up, and its neighbours are the brokers below it.
    ``least``, the weight of the weakest link on the way up from each broker, and ``path`` are scratch. O(B).
    """
    _turn(broker, parent, weight)
    for v in range(len(parent)):
        least[v] = -1.0
    best = -1
    for v in range(len(parent)):
        if v != broker:
            _least_above(v, broker, parent, weight, least, path)
            if parent[v] != broker and similarity[v] > least[v] and (best < 0 or similarity[v] > similarity[best]):
                best = v
    if best < 0:
        return False
    weakest = best
    while weight[weakest] > least[best]:
        weakest = parent[weakest]
    # Without its weakest link the part with the new neighbour hangs free: it is turned to hang below the broker.
    parent[weakest] = -1
    _turn(best, parent, weight)
    parent[best], weight[best] = broker, similarity[best]
    return True


@kernel
def _turn(root, parent, weight):
    """Make a broker the root of its tree."""
    at, above, carried = root, -1, 0.0
    while at >= 0:
        next, link = parent[at], weight[at]
        parent[at], weight[at] = above, carried
        above, carried, at = at, link, next


@kernel
def _least_above(v, root, parent, weight, least, path):
    """Fill in ``least`` for a broker and all above it that have none yet."""
    depth, at = 0, v
    while at != root and least[at] < 0:
        path[depth] = at
        depth, at = depth + 1, parent[at]
    for i in range(depth - 1, -1, -1):
        under = path[i]
        least[under] = weight[under] if at == root else min(least[at], weight[under])
        at = under
