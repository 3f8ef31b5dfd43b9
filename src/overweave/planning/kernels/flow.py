"""What flows over every link of a tree, from bit vectors: the unions below and above each node (THESIS algorithm 7)."""

from overweave.matching.kernels.compile import inlined, kernel, ones


@inlined
def _count(words, row):
    found = 0
    for w in range(words.shape[1]):
        found += ones(words[row, w])
    return found


@kernel
def flow(parent, child_start, local, down, up, down_count, up_count):
    """For one publisher: unions of the interest at and below each node, and of the interest outside it, and their bits.

    ``local`` has what each node's own clients want; nodes are in breadth-first order. ``up`` of the root is empty.
    """
    nodes, width = local.shape
    for v in range(nodes):
        for w in range(width):
            down[v, w] = local[v, w]
    for v in range(nodes - 1, 0, -1):
        for w in range(width):
            down[parent[v], w] |= down[v, w]
    for w in range(width):
        up[0, w] = 0
    for v in range(nodes):
        first, last = child_start[v], child_start[v + 1]
        for w in range(width):
            before = up[v, w] | local[v, w]
            for c in range(first, last):
                up[c, w] = before
                before |= down[c, w]
            after = up[v, w] & 0
            for c in range(last - 1, first - 1, -1):
                up[c, w] |= after
                after |= down[c, w]
    for v in range(nodes):
        down_count[v] = _count(down, v)
        up_count[v] = _count(up, v)


@kernel
def total_rates(parent, down_count, up_count, out):
    """Algorithm 6 for a publisher at every node at once: moving it over a link turns that link round and no other."""
    total = down_count[0]
    for v in range(1, len(parent)):
        total += down_count[v]
    out[0] = total
    for v in range(1, len(parent)):
        out[v] = out[parent[v]] - down_count[v] + up_count[v]


@kernel
def carry(parent, home, down_count, up_count, window, on_path, arrivals, forwards):
    """Add one publisher at node ``home``: bits that arrive at each node, and bits that it sends to other nodes."""
    for v in range(len(parent)):
        on_path[v] = 0
    v = home
    while v >= 0:
        on_path[v] = 1
        v = parent[v]
    arrivals[home] += window
    for v in range(1, len(parent)):
        if on_path[v]:
            forwards[v] += up_count[v]
            arrivals[parent[v]] += up_count[v]
        else:
            forwards[parent[v]] += down_count[v]
            arrivals[v] += down_count[v]


@kernel
def distances(parent, home, node_cost, link_cost, out):
    """The cost of the way from ``home`` to every node: all nodes on it, both ends included, and the links."""
    for v in range(len(parent)):
        out[v] = -1.0
    v, cost = home, 0.0
    while v >= 0:
        cost += node_cost[v]
        out[v] = cost
        cost += link_cost
        v = parent[v]
    for v in range(1, len(parent)):
        if out[v] < 0:
            out[v] = out[parent[v]] + link_cost + node_cost[v]
