"""The canonical order of a problem: by content, so that a plan does not depend on the order of rows or on names.

Publishers and units are sorted by what they carry and by hashes of their vectors that ignore any order. What is left in the
order of rows are units and publishers that are alike in everything but their names.
"""

import numpy as np

from overweave.planning.problem import BitWords, Problem, Publishers, Today, Units, Vectors, Whole

_ODD = np.uint64(0x9E3779B97F4A7C15)


def canonical(problem: Problem) -> Problem:
    """The same problem with publishers, vectors and units in canonical order; the pool keeps its order."""
    vectors, units, publishers = problem.vectors, problem.units, problem.publishers
    content = _hashes(vectors.words)
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    wanted = np.zeros(len(publishers), np.uint64)
    np.add.at(wanted, vectors.publisher[units.rows], _mixed(content[units.rows] + np.uint64(1)))
    advertised, subscribed = _box_contents(problem)
    by_publisher = np.lexsort(
        (np.arange(len(publishers)), advertised, wanted, publishers.window, publishers.rate_hz, -publishers.bytes_per_s)
    )
    rank = np.empty(len(publishers), np.int64)
    rank[by_publisher] = np.arange(len(publishers))
    marks = _mixed(content[units.rows] ^ _mixed(wanted[vectors.publisher[units.rows]]))
    content_of_unit = np.zeros(len(units), np.uint64)
    np.add.at(content_of_unit, owner, marks)
    sides = np.zeros(len(units), np.int64)
    np.add.at(sides, publishers.unit[publishers.unit >= 0], 1)
    # Loads are compared in parts of 10^9 of the largest: an order by the last bit of a float would change with the unit used.
    largest = max(float(units.output_bytes_per_s.max(initial=0.0)), np.finfo(float).tiny)
    load = np.rint(units.output_bytes_per_s / largest * 1e9).astype(np.int64)
    by_unit = np.lexsort((np.arange(len(units)), subscribed, content_of_unit, units.filters, sides, -load))
    by_vector = np.lexsort((content, rank[vectors.publisher]))
    return _reordered(problem, by_publisher, rank, by_vector, by_unit)


def _reordered(problem: Problem, by_publisher: Whole, rank: Whole, by_vector: Whole, by_unit: Whole) -> Problem:
    vectors, units, publishers = problem.vectors, problem.units, problem.publishers
    place = _inverse(by_unit)
    side = publishers.unit[by_publisher]
    new_publishers = Publishers(
        tuple(publishers.ids[i] for i in by_publisher.tolist()),
        publishers.rate_hz[by_publisher],
        publishers.bytes_per_s[by_publisher],
        publishers.window[by_publisher],
        np.where(side >= 0, place[np.maximum(side, 0)] if len(place) else -1, -1),
    )
    new_vectors = Vectors(
        rank[vectors.publisher[by_vector]], np.ascontiguousarray(vectors.words[by_vector]), vectors.ones[by_vector]
    )
    counts = np.diff(units.row_start)[by_unit]
    row_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    taken = np.repeat(units.row_start[by_unit] - row_start[:-1], counts) + np.arange(row_start[-1])
    rows = _inverse(by_vector)[units.rows[taken]]
    inside = np.lexsort((rows, np.repeat(np.arange(len(units)), counts)))
    new_units = Units(
        tuple(units.ids[i] for i in by_unit.tolist()),
        row_start,
        rows[inside],
        units.row_deliveries[taken][inside],
        units.output_bytes_per_s[by_unit],
        units.filters[by_unit],
        units.subscriptions,
        place[units.subscription_unit],
    )
    today = problem.today
    if today is not None:
        today = Today(today.units[by_unit], today.publishers[by_publisher], today.links)
    boxes = None if problem.boxes is None else problem.boxes.renumbered(rank, place)
    return Problem(problem.pool, new_publishers, new_vectors, new_units, today, problem.goals, boxes)


def _box_contents(problem: Problem) -> tuple[BitWords, BitWords]:
    """Hashes of the boxes of each publisher and of each unit; 0 where the problem has none."""
    found = np.zeros(len(problem.publishers), np.uint64), np.zeros(len(problem.units), np.uint64)
    if problem.boxes is not None:
        for hashes, boxes in zip(found, (problem.boxes.advertisements, problem.boxes.subscriptions), strict=True):
            sides = np.ascontiguousarray(np.hstack([boxes.lo, boxes.hi]))
            np.add.at(hashes, boxes.owner, _mixed(_hashes(sides.view(np.uint64)) + np.uint64(1)))
    return found


def _inverse(order: Whole) -> Whole:
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def _mixed(values: BitWords) -> BitWords:
    """Values whose bits are well spread (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hashes(words: BitWords) -> BitWords:
    found = np.zeros(len(words), np.uint64)
    for column in words.T:
        found = _mixed(found * _ODD + column + _ODD)
    return found
