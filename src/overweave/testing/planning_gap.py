"""The optimality gap of every planning algorithm: ``python -m overweave.testing.planning_gap --cases 200``.

Random problems small enough for the exact solver are planned by every algorithm. The table goes into docs/guides/planning.md.
"""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from overweave.errors import OverweaveError
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.make import make_plan
from overweave.planning.problem import Problem
from overweave.testing.exact_plan import Best, best_plan
from overweave.testing.planning import random_problem

#: Sums of rates differ by less than this share whatever their order.
CLOSE = 1e-6


@dataclass
class Gap:
    """How far one algorithm is from the optimum, over many cases."""

    cases: int = 0
    #: Cases without a plan though there is one, and plans that overload a broker (only of those that do not look).
    failed: int = 0
    overloaded: int = 0
    #: Brokers above the optimum, per plan; and input above the optimum, as a share, of plans with as few brokers.
    brokers_above: list[int] = field(default_factory=list)
    input_above: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        """A line of the table in Markdown."""
        plans = len(self.brokers_above)
        above, more = np.array(self.brokers_above or [0]), np.array(self.input_above or [0.0])
        fewest = f"{100 * len(self.input_above) / plans:.0f} %" if plans else "–"
        figures = [f"{above.mean():.2f}", f"{above.max()}", f"{100 * more.mean():.1f} %", f"{100 * more.max():.0f} %"]
        return f"| `{name}` | {plans} | {self.failed} | {self.overloaded} | {fewest} | {' | '.join(figures)} |"


def small_problem(seed: int) -> Problem:
    """A random case: up to 12 clients and 4 unequal brokers, some clients publish."""
    draw = np.random.default_rng((seed, 19))
    return random_problem(
        seed,
        clients=int(draw.integers(4, 13)),
        brokers=int(draw.integers(2, 5)),
        publishers=int(draw.integers(1, 4)),
        bits=32,
        fill=float(draw.uniform(0.3, 0.7)),
        publishing=bool(draw.integers(2)),
        headroom=float(draw.choice([0.0, 0.2])),
    )


def gaps(seeds: Iterable[int], names: Iterable[str] = tuple(ALGORITHMS)) -> dict[str, Gap]:
    """The gap of each algorithm; a plan that keeps capacity and beats the solver is an AssertionError."""
    found = {name: Gap() for name in names}
    for seed in seeds:
        problem = small_problem(seed)
        best = best_plan(problem)
        if best is not None:
            for name, gap in found.items():
                _add(gap, name, problem, best, seed)
    return found


def _add(gap: Gap, name: str, problem: Problem, best: Best, seed: int) -> None:
    gap.cases += 1
    try:
        plan = make_plan(problem, name, seed=seed)
    except OverweaveError:
        gap.failed += 1
        return
    brokers, input_hz = plan.totals.brokers, sum(load.input_hz for load in plan.load.values())
    if max(load.output_utilisation for load in plan.load.values()) > 1 - problem.goals.headroom + CLOSE:
        assert not ALGORITHMS[name].keeps_capacity, f"seed {seed}: {name} overloads a broker"
        gap.overloaded += 1
        return
    assert brokers >= best.brokers, f"seed {seed}: {name} needs {brokers} brokers, the exact solver {best.brokers}"
    gap.brokers_above.append(brokers - best.brokers)
    if brokers == best.brokers:
        above = input_hz / best.input_hz - 1
        assert above >= -CLOSE, f"seed {seed}: {name} has an input of {input_hz}, the exact solver {best.input_hz}"
        gap.input_above.append(max(above, 0.0))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200)
    count = parser.parse_args().cases
    found = gaps(range(count))
    cases = max(gap.cases for gap in found.values())
    print(f"{cases} of {count} random cases have a plan.\n")
    print("| algorithm | plans | no plan | overloads | fewest brokers | brokers above, mean | most | input above, mean | most |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, gap in found.items():
        print(gap.row(name))


if __name__ == "__main__":
    main()
