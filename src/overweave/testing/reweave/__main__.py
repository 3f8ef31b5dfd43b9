"""``python -m overweave.testing.reweave --seeds 200``: every protocol on trees with every class of faults in turn."""

import argparse
import sys

from overweave.testing.fault_classes import TREES
from overweave.testing.reweave.run import FAULTS, GRAPHS, Outcome, run_seed


def main(arguments: list[str]) -> int:
    """Run seeds and print what failed."""
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.reweave", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--protocol", choices=(*TREES, *GRAPHS), action="append")
    parser.add_argument("--faults", choices=tuple(FAULTS), action="append")
    given = parser.parse_args(arguments)
    protocols, classes = given.protocol or (*TREES, *GRAPHS), given.faults or list(FAULTS)
    totals, failed = Outcome(), 0
    for seed in range(given.first, given.first + given.seeds):
        turn, at = divmod(seed, len(protocols))
        protocol, faults = protocols[at], classes[(at + turn) % len(classes)]
        outcome = run_seed(seed, protocol, faults)
        failed += bool(outcome.failures)
        for name in ("publications", "moved", "kills", "crashes", "came", "duration_s"):
            setattr(totals, name, getattr(totals, name) + getattr(outcome, name))
        for failure in outcome.failures[:3]:
            print(f"seed {seed} {protocol} {faults}: {failure} ({len(outcome.failures)} in all)", flush=True)
    print(
        f"{totals.publications:,} publications, {totals.moved:,} clients moved, {totals.came:,} subscriptions came,"
        f" {totals.crashes:,} crashes of brokers in phases and {totals.kills:,} of the coordinator;"
        f" {totals.duration_s / max(given.seeds, 1):.1f} s per change"
    )
    print(f"{failed} of {given.seeds} runs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
