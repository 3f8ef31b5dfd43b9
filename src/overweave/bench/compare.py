"""``python -m overweave.bench.compare OLD``: benchmarks of another checkout against those of this one, in turn.

Absolute times depend on the machine and what else it does. Both checkouts run in turn with the same Python and the same
installed packages, and the medians of all rounds are compared, for the rows that both have.
"""

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

import overweave
from overweave.bench.base import Row

#: The rows of each checkout: name and unit, and the figure of each round.
Figures = dict[tuple[str, str], list[float]]
_HERE = Path(overweave.__file__).parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; 1 if a row is slower than allowed."""
    given = _parser().parse_args(arguments)
    old, new = given.old / "src", _HERE
    if not (old / "overweave" / "bench").is_dir():
        print(f"{given.old}: no checkout of overweave", file=sys.stderr)
        return 2
    failed = False
    for bench in given.bench or ["plane", "simulator", "routing"]:
        found: dict[Path, Figures] = {old: defaultdict(list), new: defaultdict(list)}
        for number in range(given.rounds):
            for source in (old, new) if number % 2 else (new, old):
                print(f"{bench}: round {number + 1} of {given.rounds}, {source.parent}", file=sys.stderr, flush=True)
                for row in _rows(source, bench):
                    found[source][row.name, row.unit].append(row.ours)
        print(f"{bench:<87} {'old':>10} {'new':>10} {'ratio':>8}")
        for key in found[new]:
            if key in found[old]:
                failed |= _print(*key, found[old][key], found[new][key], given.slower)
    return int(failed)


def _rows(source: Path, bench: str) -> list[Row]:
    """One run of a benchmark of a checkout."""
    command = [sys.executable, "-m", "overweave", "bench", bench, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, cwd=source, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=list[Row])


def _print(name: str, unit: str, old: list[float], new: list[float], slower: float) -> bool:
    """One row of the table; whether it is slower than allowed."""
    before, now = median(old), median(new)
    share = now / before if before else 1.0
    less_is_better = "per second" not in unit
    is_slow = share > 1 + slower if less_is_better else share < 1 - slower
    rounds = ", ".join(f"{a:.3g}→{b:.3g}" for a, b in zip(old, new, strict=True))
    mark = "SLOWER" if is_slow else ""
    print(f"{name[:64]:<64} {unit[:22]:<22} {before:10.4g} {now:10.4g} {share:8.3f} {mark:6} {rounds}", flush=True)
    return is_slow


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.bench.compare", description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout of another release, such as of 'git worktree add'")
    parser.add_argument("--bench", action="append", help="plane, simulator, routing or another one; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slower", type=float, default=0.05, help="the share by which a row may be slower")
    return parser


if __name__ == "__main__":
    sys.exit(main())
