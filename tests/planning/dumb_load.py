"""The load of a plan, publication by publication along every path; and problems as plain Python."""

from collections import Counter, defaultdict

import numpy as np


def bits(words):
    return np.flatnonzero(np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")).tolist()


def dumb_load(problem, plan):
    """Input in Hz and output in bytes/s per broker, and mean hops."""
    units, vectors, publishers = problem.units, problem.vectors, problem.publishers
    neighbours = defaultdict(list)
    for one, other in plan.links:
        neighbours[one].append(other)
        neighbours[other].append(one)
    wanted = defaultdict(lambda: defaultdict(set))
    delivered = defaultdict(Counter)
    for u, id in enumerate(units.ids):
        for k in range(units.row_start[u], units.row_start[u + 1]):
            row = units.rows[k]
            p = int(vectors.publisher[row])
            for bit in bits(vectors.words[row]):
                wanted[p][bit].add(plan.clients[id])
            delivered[p][plan.clients[id]] += int(units.row_deliveries[k])
    input_hz, output = Counter(), Counter()
    for u, id in enumerate(units.ids):
        output[plan.clients[id]] += float(units.output_bytes_per_s[u])
    hops = total = 0.0
    for p, id in enumerate(publishers.ids):
        home, window = plan.publishers[id], int(publishers.window[p])
        rate, size = publishers.rate_hz[p] / window, publishers.bytes_per_s[p] / window
        input_hz[home] += publishers.rate_hz[p]
        paths = {home: [home]}
        open = [home]
        while open:
            at = open.pop()
            for other in neighbours[at]:
                if other not in paths:
                    paths[other] = [*paths[at], other]
                    open.append(other)
        for brokers in wanted[p].values():
            for one, other in {step for b in brokers for step in zip(paths[b], paths[b][1:], strict=False)}:
                input_hz[other] += rate
                output[one] += size
        for broker, count in delivered[p].items():
            hops += count * rate * (len(paths[broker]) - 1)
            total += count * rate
    return input_hz, output, hops / total if total else None
