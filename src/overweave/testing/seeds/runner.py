"""``python -m overweave.testing.seeds --seeds 10000 --jobs 2``: many simulated runs, with a summary of what failed."""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from overweave.routing import PROTOCOLS
from overweave.testing.seeds.checks import PROPERTIES
from overweave.testing.seeds.scenario import FAULT_CLASSES, draw
from overweave.testing.seeds.simulate import Outcome, run_seed

_PROGRESS_S = 5.0
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
    interrupted, start_s = False, time.monotonic()
    said_s = start_s
    try:
        for outcome in _outcomes(seeds, options.jobs, partial(run_seed, protocol=options.protocol, classes=options.faults)):
            summary.add(outcome)
            if time.monotonic() - said_s > _PROGRESS_S:
                said_s = time.monotonic()
                rate_hz = summary.done.total() / (said_s - start_s)
                print(
                    f"{summary.done.total():,} of {options.seeds:,} seeds, {summary.failing_seeds():,} failed, {rate_hz:.1f}/s",
                    file=sys.stderr,
                )
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; what is done:")
    for line in summary.lines(all_seeds=options.all):
        print(line)
    print(f"{time.monotonic() - start_s:.0f} s")
    if summary.failed:
        return 1
    return 130 if interrupted else 0


def _outcomes(seeds: Sequence[int], jobs: int, run: Callable[[int], Outcome]) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    # Not forked: compiled kernels may have threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupt)
    try:
        chunks = (pool.submit(_run_all, run, seeds[first : first + _CHUNK]) for first in range(0, len(seeds), _CHUNK))
        for chunk in as_completed(list(chunks)):
            yield from chunk.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _run_all(run: Callable[[int], Outcome], seeds: Sequence[int]) -> list[Outcome]:
    return [run(seed) for seed in seeds]


def _ignore_interrupt() -> None:
    """Ctrl-C is for whoever started the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _classes(text: str) -> tuple[str, ...]:
    classes = tuple(each for each in text.split(",") if each and each != "none")
    for each in classes:
        if each not in FAULT_CLASSES:
            raise argparse.ArgumentTypeError(f"expected none or some of {','.join(FAULT_CLASSES)}, got {each!r}")
    return classes


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.seeds", description=__doc__)
    parser.add_argument("--seeds", type=_at_least_one, default=500, help="how many seeds to run (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    parser.add_argument("--jobs", type=_at_least_one, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="this one instead of a random one per seed")
    parser.add_argument("--property", choices=PROPERTIES, action="append", help="what counts as a failure (default: all)")
    parser.add_argument(
        "--faults", type=_classes, help="these classes instead of random ones, or none: " + ",".join(FAULT_CLASSES)
    )
    parser.add_argument("--all", action="store_true", help="list all failing seeds")
    return parser
