"""``python -m overweave.testing.reweave --seeds 200``: every protocol on trees with every class of faults in turn."""

import argparse
from collections.abc import Iterator, Sequence

from overweave.testing.fault_classes import TREES
from overweave.testing.many_runs import INTERRUPTED, Progress, add_jobs_option, at_least_one, exit_with, run_all
from overweave.testing.reweave.run import FAULTS, GRAPHS, Outcome, run_seed

#: The failures of a run that are printed.
_FAILURES_MAX = 3


def runs(seeds: range, protocols: Sequence[str], faults: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """The seed, the protocol and the faults of each run."""
    for seed in seeds:
        turn, at = divmod(seed, len(protocols))
        yield seed, protocols[at], faults[(at + turn) % len(faults)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds and print what failed; 1 when some failed, 130 when interrupted and none did."""
    given = _parser().parse_args(arguments)
    seeds = range(given.first, given.first + given.seeds)
    each = list(runs(seeds, given.protocol or (*TREES, *GRAPHS), given.faults or list(FAULTS)))
    totals, done, failed, interrupted, progress = Outcome(), 0, 0, False, Progress(given.seeds, "runs")
    try:
        for (seed, protocol, faults), outcome in run_all(run_seed, each, given.jobs):
            done, failed = done + 1, failed + bool(outcome.failures)
            for name in ("publications", "moved", "kills", "crashes", "came", "duration_s"):
                setattr(totals, name, getattr(totals, name) + getattr(outcome, name))
            for failure in outcome.failures[:_FAILURES_MAX]:
                print(f"seed {seed} {protocol} {faults}: {failure} ({len(outcome.failures)} in all)", flush=True)
            progress.report(done, failed)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; what is done:")
    print(
        f"{totals.publications:,} publications, {totals.moved:,} clients moved, {totals.came:,} subscriptions came,"
        f" {totals.crashes:,} crashes of brokers in phases and {totals.kills:,} of the coordinator;"
        f" {totals.duration_s / max(done, 1):.1f} s per change"
    )
    print(f"{failed} of {done} runs failed")
    if failed:
        return 1
    return INTERRUPTED if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.reweave", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=at_least_one, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    add_jobs_option(parser)
    parser.add_argument("--protocol", choices=(*TREES, *GRAPHS), action="append")
    parser.add_argument("--faults", choices=tuple(FAULTS), action="append")
    return parser


if __name__ == "__main__":
    exit_with(main)
