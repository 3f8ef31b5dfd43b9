"""Kernels: boxes that contain a point, matching clients of a publication, and arrivals at brokers in one time slice."""

from overweave.matching.kernels.compile import inlined, kernel


@kernel
def count_inside(points, boxes, counts):
    """How many boxes contain each point."""
    for p in range(points.shape[1]):
        x, y, found = points[0, p], points[1, p], 0
        for b in range(boxes.shape[2]):
            found += (boxes[0, 0, b] <= x) & (x <= boxes[0, 1, b]) & (boxes[1, 0, b] <= y) & (y <= boxes[1, 1, b])
        counts[p] = found


@kernel
def list_inside(points, boxes, found):
    """The boxes that contain each point, one point after the other."""
    at, size = 0, len(found)
    for p in range(points.shape[1]):
        x, y = points[0, p], points[1, p]
        for b in range(boxes.shape[2]):
            inside = (boxes[0, 0, b] <= x) & (x <= boxes[0, 1, b]) & (boxes[1, 0, b] <= y) & (y <= boxes[1, 1, b])
            # No branch: whether a box has a point cannot be foreseen.
            if at < size:
                found[at] = b
            at += inside


@kernel
def count_wanted(matches, ends, placed, copies, counts):
    """How many brokers want each publication; ``copies`` is 0 for every broker, before and after."""
    at = 0
    for row in range(len(ends)):
        first, found = at, 0
        while at < ends[row]:
            broker = placed[matches[at]]
            found += copies[broker] == 0
            copies[broker] += 1
            at += 1
        for i in range(first, at):
            copies[placed[matches[i]]] = 0
        counts[row] = found


@kernel
def list_wanted(matches, ends, placed, copies, rows):
    """Those brokers, ascending, and for how many of its subscriptions each wants it."""
    at, to = 0, 0
    for row in range(len(ends)):
        while at < ends[row]:
            copies[placed[matches[at]]] += 1
            at += 1
        for broker in range(len(copies)):
            if copies[broker]:
                rows[to, 0], rows[to, 1] = broker, copies[broker]
                copies[broker] = 0
                to += 1


@inlined
def _row_from(wanted, low, high, least):
    """The first row of ``low`` … ``high`` - 1 whose broker is not below ``least``."""
    while low < high:
        middle = (low + high) // 2
        if wanted[middle, 0] < least:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _child_above(children, low, high, broker):
    """The child of ``children[low:high]`` that ``broker`` is, or is below."""
    while low < high:
        middle = (low + high) // 2
        if children[middle] <= broker:
            low = middle + 1
        else:
            high = middle
    return children[low - 1]


@kernel
def serve(
    order, ticks, published, broker, first, last, source, start, wanted, parent, end, child_start, children,
    history, oldest, newest, free, peak, totals, limits, sent_ticks, sent_published, sent_broker, sent_first, sent_last,
):  # fmt: skip
    """Serve the arrivals of one slice in order of time, and record the forwarded messages; returns their number."""
    capacity, unit, per_message, link = limits[0], limits[1], limits[2], limits[3]
    count = 0
    for i in range(len(order)):
        row = order[i]
        now, at, low, high = ticks[row], broker[row], first[row], last[row]
        history[newest[at]] = now
        newest[at] += 1
        while history[oldest[at]] <= now - unit:
            oldest[at] += 1
        load = newest[at] - oldest[at]
        peak[at] = max(peak[at], load)
        leaves = max(free[at], now + per_message * max(0.0, load - capacity))
        free[at] = leaves
        home = -1
        if low < 0:
            # It came from below or is here first: it goes up if it is wanted outside, and not back.
            p = -1 - low
            home, begin, finish = source[p], start[p], start[p + 1]
            low = _row_from(wanted, begin, finish, at)
            high = _row_from(wanted, low, finish, end[at])
            if parent[at] >= 0 and (begin < low or high < finish):
                sent_ticks[count], sent_published[count], sent_broker[count] = leaves + link, published[row], parent[at]
                sent_first[count] = sent_last[count] = first[row]
                count += 1
        if low < high and wanted[low, 0] == at:
            totals[0] += wanted[low, 1] * (leaves - published[row])
            totals[1] += wanted[low, 1]
            low += 1
        while low < high:
            child = _child_above(children, child_start[at], child_start[at + 1], wanted[low, 0])
            after = _row_from(wanted, low, high, end[child])
            if home < child or home >= end[child]:
                sent_ticks[count], sent_published[count], sent_broker[count] = leaves + link, published[row], child
                sent_first[count], sent_last[count] = low, after
                count += 1
            low = after
    return count
