"""What brokers cost: the order in which they are deployed where they do not all cost the same (MINIMAL 5.5 leaves it open).

The broker with the most capacity for its cost comes first, of equals the largest. Where all cost the same that is the order of
algorithm 1, by capacity, descending. Once everybody has a place, a broker gives way to a cheaper one that is not in use and
carries the same clients.
"""

import numpy as np

from overweave.planning.problem import Pool, Reals, Whole


def deployment_order(capacity: Reals, cost: Reals) -> Whole:
    """Brokers by cost per capacity, ascending.

    >>> deployment_order(np.array([10.0, 40.0, 20.0]), np.array([1.0, 6.0, 2.0])).tolist()
    [2, 0, 1]
    """
    # Rounded: in another unit of cost or capacity the order is the same.
    ratio = np.round(cost / capacity / max(float((cost / capacity).max(initial=0.0)), np.finfo(float).tiny), 12)
    return np.lexsort((np.arange(len(cost)), -capacity, ratio))


def message_capacity(pool: Pool) -> Reals:
    """The size of brokers: messages per second if all have a capacity, else bandwidth."""
    return pool.capacity_hz if np.isfinite(pool.capacity_hz).all() else pool.bandwidth_bytes_per_s


def total_cost(pool: Pool, brokers: Whole) -> float | None:
    """The total cost of some brokers; None without costs."""
    return None if pool.cost is None else float(pool.cost[brokers].sum())
