"""``python -m overweave.testing.chaos``: run configurations one after the other, and tabulate what came out."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from overweave.testing.chaos.configurations import CONFIGURATIONS, configuration
from overweave.testing.chaos.run import Result, run
from overweave.testing.chaos.schedule import make_schedule

_COLUMNS = (
    "configuration",
    "published",
    "acked",
    "expected",
    "lost",
    "excluded",
    "twice",
    "wrong",
    "unsettled",
    "order",
    "faults",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 when anything is lost, doubled, wrong or unsettled that no rule excludes."""
    options = _parser().parse_args(arguments)
    chosen = [configuration(name) for name in options.config or CONFIGURATIONS]
    if options.list:
        for each in chosen:
            schedule = make_schedule(each, options.seed, options.seconds)
            print(f"{each.name}: {schedule.protocol} on {len(each.overlay)} brokers, seed {schedule.seed}")
            if options.config:
                print("\n".join(schedule.lines()))
        return 0
    results: list[Result] = []
    print(row(_COLUMNS), flush=True)
    for each in chosen:
        result = run(each, options.seed, options.seconds, options.out)
        results.append(result)
        for line in lines(result):
            print(line, flush=True)
    if options.out is not None:
        (options.out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    excluded: dict[str, int] = {}
    for result in results:
        for rule, count in result.verdict.excluded.items():
            excluded[rule] = excluded.get(rule, 0) + count
    for rule, count in sorted(excluded.items()):
        print(f"excluded by rule: {rule}: {count:,}")
    failed = [result.schedule.configuration for result in results if result.failed]
    print(f"{len(results)} configurations, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


def lines(result: Result) -> list[str]:
    """The row of a result, and what is wrong with it."""
    verdict, name = result.verdict, result.schedule.configuration
    counts = (
        verdict.publications, verdict.acknowledged, verdict.expected, verdict.lost, sum(verdict.excluded.values()),
        verdict.duplicated, verdict.wrong, verdict.unsettled, verdict.order_violations, len(result.injected),
    )  # fmt: skip
    found = [row((name, *(f"{count:,}" for count in counts)))]
    if result.failed:
        found += [f"  {text}" for text in verdict.examples[:5]]
        found += [f"  error of a client, {count} times: {text}" for text, count in result.troubles.items()]
        found += [f"  error: {text.strip().splitlines()[-1]}" for text in result.mistakes]
        found.append(
            f"  again: python -m overweave.testing.chaos --config {name} --seed {result.schedule.seed} "
            f"--seconds {result.schedule.seconds:g} --out DIR"
        )
    return found


def row(cells: Sequence[str]) -> str:
    """A line of the table."""
    return f"{cells[0]:20}" + "".join(f"{cell:>11}" for cell in cells[1:])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.chaos", description=__doc__)
    parser.add_argument(
        "--config", choices=CONFIGURATIONS, action="append", help="only this one; may be given again (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the schedule (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=180.0, help="of faults for each configuration (default %(default)g)")
    parser.add_argument("--out", type=Path, help="directory for schedules, histories and results")
    parser.add_argument(
        "--list", action="store_true", help="list configurations, or the schedules of those given, and run nothing"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
