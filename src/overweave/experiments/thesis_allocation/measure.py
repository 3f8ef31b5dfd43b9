"""Plans of the thesis's scenarios as tables: one row per scenario and algorithm."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from overweave.errors import DoesNotFit
from overweave.experiments.thesis_allocation.scenarios import BITS, Scenario, make_problem, saturating_bandwidth
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.bounds import brokers_min
from overweave.planning.load import predict
from overweave.planning.make import make_plan
from overweave.planning.options import Options
from overweave.planning.plan import Plan
from overweave.planning.problem import HEADROOM, Problem
from overweave.planning.validation import read_plan

Progress = Callable[[str], None]

#: Per publisher (7.3.2).
WORKLOADS = (50, 100, 150, 200)
#: Publishers by the number of brokers, with 225 subscriptions each (7.3.2).
LARGE: Mapping[int, int] = {400: 72, 1_000: 100}
LARGE_SUBSCRIPTIONS = 225
LENGTHS = (128, 256, 384, 512, 640, 768, 896, 1_024)
#: At 400 and 1,000 brokers; all others take longest there.
QUICK = ("fbf", "bin-packing", "cram-iou", "pairwise-n", "manual", "automatic")
#: Where queues count: with no headroom some broker is at 100 %, and its queue has no mean.
WITH_HEADROOM = ("fbf", "bin-packing", "cram-iou", "cram-iou-root", "cram-xor", "manual", "pairwise-n")
#: A short computation is timed several times, the best counts.
REPEAT_S, REPEATS = 0.5, 3


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large everything is; the defaults are those of the cluster testbed."""

    base: Scenario = Scenario()
    workloads: tuple[int, ...] = WORKLOADS
    large: Mapping[int, int] = msgspec.field(default_factory=lambda: {1_000: LARGE[1_000]})
    large_subscriptions: int = LARGE_SUBSCRIPTIONS
    large_algorithms: tuple[str, ...] = QUICK
    lengths: tuple[int, ...] = LENGTHS
    quotes: int = BITS


def sizes(full: bool) -> Sizes:
    """Quick: 80 and 1,000 brokers; full: 400 as well, and every algorithm at every size."""
    return Sizes(large=LARGE, large_algorithms=tuple(ALGORITHMS)) if full else Sizes()


def bandwidths(of: Sizes) -> pd.DataFrame:
    """For each number of brokers the bandwidth that saturates MANUAL under the largest workload, and the utilisation there."""
    rows = []
    for scenario in (of.base, *_large(of)):
        largest = scenario if scenario.brokers != of.base.brokers else _with(scenario, subscriptions=max(of.workloads))
        found = _with(largest, bandwidth_bytes_per_s=saturating_bandwidth(largest))
        problem = make_problem(found)
        message = float((problem.publishers.bytes_per_s / problem.publishers.rate_hz).mean())
        rows.append(
            {
                "brokers": found.brokers,
                "subscriptions": sum(found.counts),
                "bandwidth_bytes_per_s": found.bandwidth_bytes_per_s,
                "messages_per_s": found.bandwidth_bytes_per_s / message,
                "manual_utilisation_max": make_plan(problem, "manual").totals.output_utilisation_max,
            }
        )
    return pd.DataFrame(rows)


def comparison(of: Sizes, bandwidth: Mapping[int, float], say: Progress) -> pd.DataFrame:
    """Every algorithm under every workload (7.3.3 to 7.3.7), also with headroom, and two metrics under the rule ``no-worse``."""
    _warm()
    rows: list[dict[str, Any]] = []
    for heterogeneous in (False, True):
        for subscriptions in of.workloads:
            scenario = _with(
                of.base,
                subscriptions=subscriptions,
                heterogeneous=heterogeneous,
                bandwidth_bytes_per_s=bandwidth[of.base.brokers],
            )
            rows += _rows(scenario, ALGORITHMS, say)
            rows += _rows(_with(scenario, headroom=HEADROOM), WITH_HEADROOM, say)
            if subscriptions == max(of.workloads):
                rows += _rows(scenario, ("cram-xor", "cram-iou"), say, "no-worse")
    for scenario in _large(of):
        rows += _rows(_with(scenario, bandwidth_bytes_per_s=bandwidth[scenario.brokers]), of.large_algorithms, say)
    return pd.DataFrame(rows)


def lengths(of: Sizes, bandwidth: Mapping[int, float], say: Progress) -> pd.DataFrame:
    """The sweep of 7.3.8, with its corrections: plans from short vectors, and the load they mean on all quotes."""
    _warm()
    base = _with(of.base, subscriptions=max(of.workloads), bandwidth_bytes_per_s=bandwidth[of.base.brokers], quotes=of.quotes)
    truth = make_problem(_with(base, bits=of.quotes))
    rows = []
    for bits in of.lengths:
        scenario = _with(base, bits=bits, correct=True)
        problem = make_problem(scenario)
        for name in ("bin-packing", "cram-iou"):
            say(f"vectors of {bits:,} bits: {name}")
            plan, seconds = _timed(problem, name, Options())
            real = predict(truth, *read_plan(plan, truth))
            rows.append(
                {
                    "bits": bits,
                    "algorithm": name,
                    "seconds": seconds,
                    "brokers": len(plan.brokers),
                    "input_hz_mean": float(real.input_hz.mean()),
                    "input_hz_max": float(real.input_hz.max()),
                    "input_utilisation_mean": float(real.input_utilisation.mean()),
                    "output_utilisation_max": float(real.output_utilisation.max()),
                    "overloaded": len(real.overloaded),
                }
            )
    return pd.DataFrame(rows)


def _large(of: Sizes) -> list[Scenario]:
    return [
        _with(of.base, brokers=brokers, publishers=publishers, subscriptions=of.large_subscriptions)
        for brokers, publishers in of.large.items()
    ]


def _with(scenario: Scenario, **fields: Any) -> Scenario:
    return msgspec.structs.replace(scenario, **fields)


def _rows(scenario: Scenario, algorithms: Any, say: Progress, rule: str = "split") -> Iterator[dict[str, Any]]:
    problem = make_problem(scenario)
    kind = "heterogeneous" if scenario.heterogeneous else "homogeneous"
    for name in algorithms:
        say(f"{kind}, {scenario.brokers:,} brokers, {sum(scenario.counts):,} subscriptions: {name}")
        row = {
            "scenario": kind,
            "pool": scenario.brokers,
            "subscriptions": sum(scenario.counts),
            "per_publisher": scenario.subscriptions,
            "publishers_hz": float(problem.publishers.rate_hz.sum()),
            "headroom": scenario.headroom,
            "rule": rule,
            "algorithm": name,
            "brokers_min": brokers_min(problem),
        }
        try:
            plan, seconds = _timed(problem, name, Options(rule=rule))
        except DoesNotFit as error:
            yield {**row, "does_not_fit": str(error)}
            continue
        used = np.array([load.output_utilisation for load in plan.load.values()])
        totals = msgspec.structs.asdict(plan.totals)
        del totals["moves"]
        own = {"output_utilisation_deviation": float(used.std()), "longest_path": longest_path(plan), "seconds": seconds}
        yield {**row, **totals, **own, "does_not_fit": None}


def _timed(problem: Problem, name: str, options: Options) -> tuple[Plan, float]:
    best, spent = float("inf"), 0.0
    for _ in range(REPEATS):
        began = time.perf_counter()
        plan = make_plan(problem, name, options)
        took = time.perf_counter() - began
        best, spent = min(best, took), spent + took
        if spent > REPEAT_S:
            break
    return plan, best


def _warm() -> None:
    """Kernels are read from disk or compiled before anything is timed."""
    for heterogeneous in (False, True):
        problem = make_problem(Scenario(brokers=8, publishers=4, subscriptions=20, bits=64, heterogeneous=heterogeneous))
        for name in ALGORITHMS:
            make_plan(problem, name)


def longest_path(plan: Plan) -> int:
    """Links of the longest path in a plan's tree: the farthest from the farthest of any broker."""
    neighbours: dict[str, list[str]] = {id: [] for id in plan.brokers}
    for one, other in plan.links:
        neighbours[one].append(other)
        neighbours[other].append(one)

    def farthest(start: str) -> tuple[str, int]:
        seen, at, steps = {start}, [start], 0
        while True:
            after = [each for id in at for each in neighbours[id] if each not in seen]
            if not after:
                return at[0], steps
            seen.update(after)
            at, steps = after, steps + 1

    return farthest(farthest(plan.brokers[0])[0])[1]
