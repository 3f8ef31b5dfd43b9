"""``python -m overweave.testing.seeds --seeds 10000 --jobs 2``: many simulated runs, with a summary of what failed."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from overweave.routing import PROTOCOLS
from overweave.testing.many_runs import INTERRUPTED, Progress, add_jobs_option, at_least_one, run_all
from overweave.testing.seeds.checks import PROPERTIES
from overweave.testing.seeds.scenario import FAULT_CLASSES, draw
from overweave.testing.seeds.simulate import Outcome, run_seed

#: A seed takes about 30 ms.
_CHUNK = 20
#: The failing seeds of each kind that are listed, unless all are wanted.
_LISTED_MAX = 5


class Summary:
    """What came out of all seeds so far."""

    def __init__(self, properties: Sequence[str], classes: Sequence[str] | None = None) -> None:
        self._properties, self._classes = frozenset(properties), classes
        self.done: Counter[str] = Counter()
        self.publications = self.expected = self.excused = 0
        #: The seeds that failed, with the first text, by protocol and property.
        self.failed: dict[tuple[str, str], dict[int, str]] = {}

    def add(self, outcome: Outcome) -> None:
        """One more seed."""
        self.done[outcome.protocol] += 1
        self.publications += outcome.publications
        self.expected += outcome.expected
        self.excused += outcome.excused
        for failure in outcome.failures:
            if failure.property in self._properties:
                self.failed.setdefault((outcome.protocol, failure.property), {}).setdefault(outcome.seed, failure.text)

    def failing_seeds(self) -> int:
        """How many seeds failed."""
        return len({(protocol, seed) for (protocol, _), seeds in self.failed.items() for seed in seeds})

    def lines(self, *, all_seeds: bool = False) -> Iterator[str]:
        """The summary for people."""
        yield (
            f"{self.done.total():,} seeds, {self.publications:,} publications, {self.expected:,} deliveries expected "
            f"({self.excused:,} excused by a rule of their protocol), {self.failing_seeds():,} seeds failed"
        )
        if not self.failed:
            return
        yield f"{'protocol':22}{'property':14}{'seeds':>8}{'failed':>8}"
        for (protocol, property), seeds in sorted(self.failed.items()):
            yield f"{protocol:22}{property:14}{self.done[protocol]:8,}{len(seeds):8,}"
        for (protocol, property), seeds in sorted(self.failed.items()):
            yield f"{protocol}, {property}: {PROPERTIES[property]}"
            listed = sorted(seeds.items())
            for seed, text in listed if all_seeds else listed[:_LISTED_MAX]:
                yield f"  seed {seed}: {text}"
            if len(seeds) > _LISTED_MAX and not all_seeds:
                yield f"  and {len(seeds) - _LISTED_MAX:,} more (--all lists them)"
            yield f"  reproduce: {command(listed[0][0], protocol, self._classes)}"


def command(seed: int, protocol: str, classes: Sequence[str] | None = None) -> str:
    """What runs one seed again, and tells all about it."""
    faults = "" if classes is None else f" --faults {','.join(classes) or 'none'}"
    return f"python -m overweave.testing.seeds --first {seed} --seeds 1 --protocol {protocol}{faults} --all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; 1 when some failed, 130 when interrupted and none did."""
    options = _parser().parse_args(arguments)
    summary = Summary(options.property or list(PROPERTIES), options.faults)
    seeds = range(options.first, options.first + options.seeds)
    if options.seeds == 1:
        print(draw(options.first, options.protocol, options.faults).describe())
    interrupted, progress = False, Progress(options.seeds, "seeds")
    try:
        run = partial(run_seed, protocol=options.protocol, classes=options.faults)
        for _, outcome in run_all(run, [(seed,) for seed in seeds], options.jobs, _CHUNK):
            summary.add(outcome)
            progress.report(summary.done.total(), summary.failing_seeds())
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; what is done:")
    for line in summary.lines(all_seeds=options.all):
        print(line)
    print(f"{progress.passed_s():.0f} s")
    if summary.failed:
        return 1
    return INTERRUPTED if interrupted else 0


def _classes(text: str) -> tuple[str, ...]:
    classes = tuple(each for each in text.split(",") if each and each != "none")
    for each in classes:
        if each not in FAULT_CLASSES:
            raise argparse.ArgumentTypeError(f"expected none or some of {','.join(FAULT_CLASSES)}, got {each!r}")
    return classes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.seeds", description=__doc__)
    parser.add_argument("--seeds", type=at_least_one, default=500, help="how many seeds to run (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    add_jobs_option(parser)
    parser.add_argument("--protocol", choices=PROTOCOLS, help="this one instead of a random one per seed")
    parser.add_argument("--property", choices=PROPERTIES, action="append", help="what counts as a failure (default: all)")
    parser.add_argument(
        "--faults", type=_classes, help="these classes instead of random ones, or none: " + ",".join(FAULT_CLASSES)
    )
    parser.add_argument("--all", action="store_true", help="list all failing seeds")
    return parser
