"""Seeds of migrations: ``python -m overweave.testing.migrations --seeds 500``.

Each run has a protocol, a kind of client that moves, and a class of faults (`overweave.testing.migration_run`).
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overweave.broker.client.migration import _DEADLINES_S
from overweave.broker.client.migration_state import MigrationPhase
from overweave.testing.fault_classes import TREES
from overweave.testing.many_runs import INTERRUPTED, Progress, add_jobs_option, at_least_one, exit_with, run_all
from overweave.testing.migration_run import FAULTS, GRAPHS, KINDS, Outcome, run_seed
from overweave.testing.migration_watch import LATE_S

#: The runs of each protocol of `GRAPHS`, all kinds together, as a share of the runs of one kind on trees.
_GRAPH_SHARE = 0.4
_FAILURES_MAX = 3


class Run(NamedTuple):
    """The arguments of a run."""

    seed: int
    protocol: str
    kind: str
    faults: str


def runs(
    seeds: int, first: int = 0, kinds: Sequence[str] = KINDS, protocols: Sequence[str] = (), faults: Sequence[str] = ()
) -> Iterator[Run]:
    """All runs: of each kind ``seeds`` on trees, which take turns, and a share of these on each of the other protocols.

    >>> from collections import Counter
    >>> counts = Counter(each.protocol for each in runs(500))
    >>> sum(counts[protocol] for protocol in TREES), counts["destination"], counts["merc"]
    (2000, 200, 200)
    """
    chosen, classes = protocols or [*TREES, *GRAPHS], faults or list(FAULTS)
    trees = [protocol for protocol in chosen if protocol in TREES]
    each_graph = -int(-seeds * _GRAPH_SHARE // len(KINDS))
    for kind in kinds:
        for seed in range(first, first + seeds) if trees else ():
            yield Run(seed, trees[seed % len(trees)], kind, classes[seed // len(trees) % len(classes)])
        for protocol in chosen:
            for seed in range(first, first + each_graph) if protocol in GRAPHS else ():
                yield Run(seed, protocol, kind, classes[(seed + KINDS.index(kind)) % len(classes)])


class Summary:
    """What came out of all runs so far."""

    def __init__(self) -> None:
        self.count = self.failed = 0
        self._total = Outcome()

    def add(self, outcome: Outcome) -> None:
        """One more run."""
        self._total.add(outcome)
        self.count += 1
        self.failed += bool(outcome.failures)

    def lines(self) -> Iterator[str]:
        """The summary for people."""
        total, due = self._total, f"{self._total.due:,} due deliveries ({self._total.excused:,} excused)"
        yield f"{self.count:,} runs, {total.publications:,} publications, {due}"
        orders = f"{total.moved:,} moved, {total.rejected:,} rejected, {total.unknown:,} without a result after a crash"
        yield f"{total.orders:,} orders: {orders}"
        for phase in MigrationPhase:
            if phase.value in total.longest_s:
                longest_s, deadline_s = total.longest_s[phase.value], _DEADLINES_S[phase]
                late = _late_text(longest_s - deadline_s)
                yield f"longest time {phase.value}: {longest_s:.1f} s, deadline {deadline_s:g} s{late}"
        yield f"{self.failed} runs failed"


def _late_text(late_s: float) -> str:
    """How late a phase ended: a client in a pause sees its deadline when its timer fires."""
    if late_s <= 0.0:
        return ""
    return f", {late_s:.1f} s late: {'within' if late_s <= LATE_S else 'beyond'} the tolerance of {LATE_S:g} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds and print what failed; 1 when some failed, 130 when interrupted and none did."""
    given = _parser().parse_args(arguments)
    all_runs = list(runs(given.seeds, given.first, given.kind or KINDS, given.protocol or (), given.faults or ()))
    summary, interrupted, progress = Summary(), False, Progress(len(all_runs), "runs")
    try:
        for run, outcome in run_all(run_seed, all_runs, given.jobs):
            summary.add(outcome)
            for failure in outcome.failures[:_FAILURES_MAX]:
                options = f"--first {run.seed} --seeds 1 --protocol {run.protocol} --kind {run.kind} --faults {run.faults}"
                print(f"{options}: {failure} ({len(outcome.failures)} in all)", flush=True)
            progress.report(summary.count, summary.failed)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; what is done:")
    for line in summary.lines():
        print(line)
    if summary.failed:
        return 1
    return INTERRUPTED if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.migrations", description=__doc__.splitlines()[0])
    text = "runs of each kind on all trees together; 4 of 10 as many of each other protocol, all kinds together (default: 100)"
    parser.add_argument("--seeds", type=at_least_one, default=100, help=text)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    add_jobs_option(parser)
    parser.add_argument("--protocol", choices=(*TREES, *GRAPHS), action="append")
    parser.add_argument("--faults", choices=tuple(FAULTS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    return parser


if __name__ == "__main__":
    exit_with(main)
