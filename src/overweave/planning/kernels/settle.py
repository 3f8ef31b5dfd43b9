"""Clients put into a tree one after the other: what arrives where, and the place that adds least to it."""

from overweave.matching.kernels.compile import inlined, kernel, ones


@inlined
def _towards(parent, depth, node, home):
    """The neighbour of ``node`` on the way to ``home``."""
    at = home
    while depth[at] > depth[node] + 1:
        at = parent[at]
    if depth[at] == depth[node] + 1 and parent[at] == node:
        return at
    return parent[node]


@kernel
def arrive(parent, depth, home, local, rate, size, window, arrival, input, output):
    """For one publisher: the arriving vectors of each node, added to its input and to the output of the sender.

    ``local`` has what each node's own clients want. All that is published arrives at ``home``, wanted or not.
    """
    nodes, width = local.shape
    for v in range(nodes):
        for w in range(width):
            arrival[v, w] = local[v, w]
    for v in range(nodes - 1, 0, -1):
        if _towards(parent, depth, v, home) == parent[v] and v != home:
            for w in range(width):
                arrival[parent[v], w] |= arrival[v, w]
    # The remaining nodes are above the home, from the root down.
    at = 0
    while at != home:
        below = _towards(parent, depth, at, home)
        for w in range(width):
            arrival[below, w] |= arrival[at, w]
        at = below
    for v in range(nodes):
        if v != home:
            bits = 0
            for w in range(width):
                bits += ones(arrival[v, w])
            input[v] += bits * rate
            output[_towards(parent, depth, v, home)] += bits * size
    input[home] += window * rate


@kernel
def best_home(
    parent, depth, local, rate, size, window, arrival, more_input, more_output, input, output, room, input_max
):  # fmt: skip
    """The node of a publisher at which all brokers together get least, of those where none gets too much, if there are any."""
    nodes = len(parent)
    best, best_over, best_cost = 0, True, 0.0
    for home in range(nodes):
        for v in range(nodes):
            more_input[v] = 0.0
            more_output[v] = 0.0
        arrive(parent, depth, home, local, rate, size, window, arrival, more_input, more_output)
        over, cost = False, 0.0
        for v in range(nodes):
            cost += more_input[v]
            if more_output[v] > 0.0 and output[v] + more_output[v] > room[v]:
                over = True
            if more_input[v] > 0.0 and input[v] + more_input[v] > input_max[v]:
                over = True
        if home == 0 or (over, cost) < (best_over, best_cost):
            best, best_over, best_cost = home, over, cost
    return best


@inlined
def _walk(
    start, count, publisher, words, parent, depth, homes, arrival, rate, size, node, more_input, more_output, touched, keep
):
    """The added input of a client at ``node`` on the paths to its publishers; ``keep``: it stays."""
    used, total = 0, 0.0
    for row in range(start, start + count):
        p = publisher[row]
        at = node
        while at != homes[p]:
            bits = 0
            for w in range(words.shape[1]):
                bits += ones(words[row, w] & ~arrival[p, at, w])
            if bits == 0:
                break
            if keep:
                for w in range(words.shape[1]):
                    arrival[p, at, w] |= words[row, w]
            sender = _towards(parent, depth, at, homes[p])
            more_input[at] += bits * rate[p]
            more_output[sender] += bits * size[p]
            touched[used] = at
            touched[used + 1] = sender
            used += 2
            total += bits * rate[p]
            at = sender
    return used, total


@kernel
def settle(
    order, profile, need, start, count, publisher, words, parent, depth, homes, arrival, rate, size, input, output, room,
    input_max, more_input, more_output, touched, placed,
):  # fmt: skip
    """Put clients, in their order, where all brokers together get least more and none gets too much; ties: where least is left.

    Returns the position in ``order`` of the first client that has no place, or -1; ``placed[client]`` is the node.
    """
    for k in range(len(order)):
        client = order[k]
        rows = profile[client]
        best, best_cost, best_left = -1, 0.0, 0.0
        for v in range(len(parent)):
            left = room[v] - output[v] - need[client]
            if left < 0:
                continue
            used, cost = _walk(
                start[rows], count[rows], publisher, words, parent, depth, homes, arrival, rate, size, v, more_input,
                more_output, touched, False,
            )  # fmt: skip
            fits = left >= more_output[v]
            for i in range(used):
                x = touched[i]
                own = need[client] if x == v else 0.0
                if output[x] + own + more_output[x] > room[x] or input[x] + more_input[x] > input_max[x]:
                    fits = False
            for i in range(used):
                more_input[touched[i]] = 0.0
                more_output[touched[i]] = 0.0
            if fits and (best < 0 or cost < best_cost or (cost == best_cost and left < best_left)):
                best, best_cost, best_left = v, cost, left
        if best < 0:
            return k
        used, cost = _walk(
            start[rows], count[rows], publisher, words, parent, depth, homes, arrival, rate, size, best, more_input, more_output,
            touched, True,
        )  # fmt: skip
        output[best] += need[client]
        for i in range(used):
            x = touched[i]
            input[x] += more_input[x]
            output[x] += more_output[x]
            more_input[x] = 0.0
            more_output[x] = 0.0
        placed[client] = best
    return -1
