"""Seeds of migrations: ``python -m overweave.testing.migrations --seeds 500``.

Each run has a protocol, a kind of client that moves, and a class of faults (`overweave.testing.migration_run`).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overweave.broker.client.migration import _DEADLINES_S
from overweave.broker.client.migration_state import MigrationPhase
from overweave.testing.fault_classes import TREES
from overweave.testing.migration_run import FAULTS, GRAPHS, KINDS, Outcome, run_seed

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


def main(arguments: list[str]) -> int:
    """Run seeds and print what failed."""
    given = _parser().parse_args(arguments)
    total, failed, count = Outcome(), 0, 0
    for run in runs(given.seeds, given.first, given.kind or KINDS, given.protocol or (), given.faults or ()):
        outcome = run_seed(*run)
        total.add(outcome)
        count, failed = count + 1, failed + bool(outcome.failures)
        for failure in outcome.failures[:_FAILURES_MAX]:
            options = f"--first {run.seed} --seeds 1 --protocol {run.protocol} --kind {run.kind} --faults {run.faults}"
            print(f"{options}: {failure} ({len(outcome.failures)} in all)", flush=True)
    print(f"{count:,} runs, {total.publications:,} publications, {total.due:,} due deliveries ({total.excused:,} excused)")
    orders = f"{total.moved:,} moved, {total.rejected:,} rejected, {total.unknown:,} without a result after a crash"
    print(f"{total.orders:,} orders: {orders}")
    for phase in MigrationPhase:
        if phase.value in total.longest_s:
            print(f"longest time {phase.value}: {total.longest_s[phase.value]:.1f} s, deadline {_DEADLINES_S[phase]:g} s")
    print(f"{failed} runs failed")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.migrations", description=__doc__.splitlines()[0])
    text = "runs of each kind on all trees together; 4 of 10 as many of each other protocol, all kinds together (default: 100)"
    parser.add_argument("--seeds", type=int, default=100, help=text)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--protocol", choices=(*TREES, *GRAPHS), action="append")
    parser.add_argument("--faults", choices=tuple(FAULTS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
