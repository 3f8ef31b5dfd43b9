"""The assignment problem: shortest augmenting paths with potentials (Hungarian method, O(n^2 m))."""

from overweave.matching.kernels.compile import kernel


@kernel
def assign(cost, row_potential, column_potential, row_of, shortest, before, seen):
    """Give every row a column of its own at the least total cost; ``row_of[j]`` is the row of column j, or -1.

    At most as many rows as columns. All arrays but ``cost`` have one place more than columns, the last for the row in question.
    """
    rows, columns = cost.shape
    for j in range(columns + 1):
        row_of[j] = -1
        column_potential[j] = 0
    for i in range(rows):
        row_potential[i] = 0
    for row in range(rows):
        row_of[columns] = row
        at = columns
        for j in range(columns + 1):
            shortest[j] = 1 << 62
            seen[j] = 0
            before[j] = -1
        while row_of[at] >= 0:
            seen[at] = 1
            i, least, nearest = row_of[at], 1 << 62, -1
            for j in range(columns):
                if seen[j] == 0:
                    reduced = cost[i, j] - row_potential[i] - column_potential[j]
                    if reduced < shortest[j]:
                        shortest[j] = reduced
                        before[j] = at
                    if shortest[j] < least:
                        least = shortest[j]
                        nearest = j
            for j in range(columns + 1):
                if seen[j]:
                    row_potential[row_of[j]] += least
                    column_potential[j] -= least
                else:
                    shortest[j] -= least
            at = nearest
        while at != columns:
            row_of[at] = row_of[before[at]]
            at = before[at]
    row_of[columns] = -1
