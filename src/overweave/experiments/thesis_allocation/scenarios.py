"""The scenarios of THESIS 7.3.2 as planning problems: stock quotes, every subscription a client of its own.

40 % of a publisher's subscriptions want all its quotes, 60 % those with ``low`` below a value from its own quotes. The text
gives no bandwidth: it is found such that MANUAL's busiest broker is just saturated under the largest workload.
"""

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.pipeline.workloads.base import wire_bytes
from overweave.pipeline.workloads.walks import quotes, texts
from overweave.planning.make import make_plan
from overweave.planning.problem import Goals, Pool, Problem, Publishers
from overweave.planning.profiles import Profiles, assemble, packed

#: The default length of a bit vector (6.1.2), and of each publisher (7.3.2).
BITS, RATE_HZ = 1_280, 70 / 60
#: How many brokers of 80 have which share of the bandwidth.
SIZES = ((15, 1.0), (25, 0.5), (40, 0.25))
WHOLE_SHARE = 0.4
#: Where MANUAL's busiest broker shall be.
SATURATED = 0.98


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One of them; the defaults are the homogeneous one with most subscriptions."""

    brokers: int = 80
    publishers: int = 40
    #: Per publisher; where heterogeneous, the i-th of n has this times i / n (the text's Ns / i does not fit its totals).
    subscriptions: int = 200
    heterogeneous: bool = False
    bandwidth_bytes_per_s: float = 43_000.0
    bits: int = BITS
    #: Quotes that limits are drawn from, of which the vectors hold the last; 0: as many as bits.
    quotes: int = 0
    #: Whether bit counts are raised for short vectors (7.3.8).
    correct: bool = False
    headroom: float = 0.0
    seed: int = 1

    @property
    def counts(self) -> list[int]:
        """Subscriptions of each publisher.

        >>> sum(Scenario(heterogeneous=True).counts), Scenario(heterogeneous=True).counts[0]
        (4100, 5)
        """
        if not self.heterogeneous:
            return [self.subscriptions] * self.publishers
        return [round(self.subscriptions * (i + 1) / self.publishers) for i in range(self.publishers)]


class Days(NamedTuple):
    """The days of a walk: their number, the days for limits, and the days of the vectors."""

    walk: int
    limits: NDArray[np.int64]
    seen: NDArray[np.int64]


def make_problem(scenario: Scenario, days: Days | None = None) -> Problem:
    """The problem of a scenario; without ``days``, limits are drawn from all of its quotes, and vectors hold the last."""
    draw = np.random.default_rng(scenario.seed)
    if days is None:
        every = np.arange(max(scenario.quotes, scenario.bits))
        days = Days(len(every), every, every[-scenario.bits :])
    day, first = np.arange(days.walk), np.zeros(1, np.int64)
    publisher, words = [], []
    sizes = []
    for p, count in enumerate(scenario.counts):
        low = quotes(scenario.seed, days.walk, np.full(days.walk, p), day).low
        limit = low[days.limits][draw.integers(len(days.limits), size=count)]
        whole = np.arange(count) < round(WHOLE_SHARE * count)
        bits = whole[:, None] | (low[None, days.seen] < limit[:, None])
        publisher.append(np.full(count, p))
        words.append(packed(bits.astype(np.uint8)))
        one = np.array([p])
        sizes.append(wire_bytes(texts(one, first, quotes(scenario.seed, days.walk, one, first))[0]))
    total, rate = sum(scenario.counts), np.full(scenario.publishers, RATE_HZ)
    publishers = Publishers(
        tuple(f"P{i + 1}" for i in range(scenario.publishers)),
        rate,
        rate * np.array(sizes),
        np.full(scenario.publishers, len(days.seen)),
        np.full(scenario.publishers, -1),
    )
    profiles = Profiles(np.arange(total), np.concatenate(publisher), np.concatenate(words))
    ids = [f"s{i + 1}" for i in range(total)]
    goals = Goals(headroom=scenario.headroom)
    return assemble(make_pool(scenario), publishers, profiles, ids, correct=scenario.correct, goals=goals)


def make_pool(scenario: Scenario) -> Pool:
    """The brokers: all alike, or of three sizes in the proportions of the text."""
    pool = Pool.equal(scenario.brokers, scenario.bandwidth_bytes_per_s)
    if not scenario.heterogeneous:
        return pool
    ends = np.cumsum([count for count, _ in SIZES]) / sum(count for count, _ in SIZES)
    at = np.searchsorted(ends, (np.arange(scenario.brokers) + 0.5) / scenario.brokers)
    part = np.array([share for _, share in SIZES])[at]
    return replace(pool, bandwidth_bytes_per_s=pool.bandwidth_bytes_per_s * part)


def saturating_bandwidth(scenario: Scenario, seed: int = 0) -> float:
    """The bandwidth at which MANUAL's busiest broker is at `SATURATED`: utilisation is in inverse proportion to it."""
    plan = make_plan(make_problem(scenario), "manual", seed=seed)
    return scenario.bandwidth_bytes_per_s * plan.totals.output_utilisation_max / SATURATED
