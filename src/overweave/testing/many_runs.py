"""Many independent runs in several processes, with progress on stderr: for the runners of seeds, which take minutes to hours."""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from types import FrameType
from typing import Any, TypeVar

_Arguments = TypeVar("_Arguments", bound=tuple[Any, ...])
_Result = TypeVar("_Result")
#: The interval of reports on a terminal, and in a log.
_TERMINAL_S, _LOG_S = 5.0, 60.0
INTERRUPTED = 130


def run_all(
    run: Callable[..., _Result], each: Sequence[_Arguments], jobs: int, chunk: int = 1
) -> Iterator[tuple[_Arguments, _Result]]:
    """The arguments and the result of all runs as they end, in ``jobs`` processes that take ``chunk`` runs at a time."""
    if jobs == 1 or len(each) <= chunk:
        for arguments in each:
            yield arguments, run(*arguments)
        return
    # Not forked: compiled kernels may have threads.
    context = multiprocessing.get_context("spawn")
    others, pool = multiprocessing.active_children(), ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupt)
    try:
        chunks: dict[Future[list[_Result]], Sequence[_Arguments]] = {}
        for first in range(0, len(each), chunk):
            some = each[first : first + chunk]
            chunks[pool.submit(_run_some, run, [tuple(arguments) for arguments in some])] = some
        for done in as_completed(list(chunks)):
            yield from zip(chunks.pop(done), done.result(), strict=True)
    except BaseException:  # also Ctrl-C: runs in progress may take a minute
        for worker in multiprocessing.active_children():
            if worker not in others:
                worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def add_jobs_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--jobs``."""
    parser.add_argument("--jobs", type=at_least_one, default=os.cpu_count() or 1, help="processes (default: one per core)")


def at_least_one(text: str) -> int:
    """The value of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def exit_with(main: Callable[[], int]) -> None:
    """Exit with the status of a runner. Whoever is stopped says what is done, as after Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    sys.exit(main())


class Progress:
    """Reports on stderr how many of ``total`` runs have ended, from time to time."""

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self._start_s = self._said_s = time.monotonic()

    def report(self, done: int, failed: int) -> None:
        """Report, if it is time to."""
        now_s = time.monotonic()
        if now_s - self._said_s > (_TERMINAL_S if sys.stderr.isatty() else _LOG_S):
            self._said_s = now_s
            rate_hz = done / (now_s - self._start_s)
            print(f"{done:,} of {self._total:,} {self._what}, {failed:,} failed, {rate_hz:.1f}/s", file=sys.stderr, flush=True)

    def passed_s(self) -> float:
        """The time since the beginning."""
        return time.monotonic() - self._start_s


def _run_some(run: Callable[..., _Result], each: Sequence[tuple[Any, ...]]) -> list[_Result]:
    return [run(*arguments) for arguments in each]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt once: a second Ctrl-C would break the end of the workers, for which Python then waits for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.default_int_handler(number, frame)


def _ignore_interrupt() -> None:
    """Ctrl-C is for whoever started the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
