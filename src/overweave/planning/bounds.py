"""The lower bound on brokers: no plan delivers more bytes than its brokers can send (deliveries / bandwidth)."""

import numpy as np

from overweave.planning.problem import Problem


def brokers_min(problem: Problem) -> int:
    """The fewest brokers that could carry the deliveries alone, the strongest first, with headroom; at least one.

    Links, publishers and indivisible clients only add to it. Where even all are too few it is one more than there are.
    """
    pool, goals = problem.pool, problem.goals
    usable = np.array([id not in goals.exclude for id in pool.ids])
    room = np.sort(pool.bandwidth_bytes_per_s[usable])[::-1] * (1 - goals.headroom)
    needed = float(problem.units.output_bytes_per_s.sum())
    return int(np.searchsorted(np.cumsum(room) * (1 + 1e-12), needed)) + 1
