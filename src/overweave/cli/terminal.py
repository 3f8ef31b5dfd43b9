"""Messages on stderr, and progress if stderr is a terminal."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TextIO

PROGRAM = "overweave"
#: The interval between two details of a phase where no terminal shows them.
_DETAIL_S = 5.0


def say(text: str) -> None:
    """Print one line on stderr; line breaks of ``text`` become blanks, and a closed stderr is ignored."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr, flush=True)
        return
    discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discard the buffer of ``stream``, so that the flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_watched() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def waiting(text: str, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """A spinner with ``text`` during the body, which may change the text."""
    if not (shown and is_watched()):
        yield _ignore
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield lambda text: status.update(text)


@contextlib.contextmanager
def progress(text: str, total: int | None, shown: bool = True) -> Iterator[Callable[[float], None]]:
    """A progress bar with ``text``; the body reports the completed amount.

    It appears with the first report, so that a `waiting` can be shown before: a terminal has room for one of them.
    """
    if not (shown and is_watched()):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=total)

    def done(amount: float) -> None:
        bar.start()
        bar.update(task, completed=amount)

    try:
        yield done
    finally:
        bar.stop()


class TaskBar(NamedTuple):
    """The callbacks of a task bar: the current activity, and completed and known tasks (None without a terminal)."""

    say: Callable[[str], None]
    on_tasks: Callable[[int, int], None] | None


@contextlib.contextmanager
def task_bar(text: str) -> Iterator[TaskBar]:
    """A progress bar for work of initially unknown size: it pulses until tasks are known, then counts them."""
    if not is_watched():
        yield TaskBar(_ignore, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield TaskBar(
            lambda text: bar.update(task, description=text),
            lambda done, total: bar.update(task, completed=done, total=total or None),
        )


class Phases:
    """The phases of long work: a line on stderr for each; within one a spinner, or a line now and then without a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0

    @contextlib.contextmanager
    def phase(self, text: str, spinner: bool = True) -> Iterator[Callable[[str], None]]:
        """The next phase during the body, which may show details; without ``spinner`` it has its own progress."""
        self._begun += 1
        begin_s, shown = time.monotonic(), text
        say(f"{self._begun}/{self._total} {text}")

        def show(detail: str) -> None:
            nonlocal shown
            shown = f"{text}: {detail}"
            spin(shown)

        with waiting(text, spinner) as spin, _repeated(lambda: f"{shown} ({time.monotonic() - begin_s:.0f} s)", spinner):
            yield show


@contextlib.contextmanager
def _repeated(text: Callable[[], str], shown: bool) -> Iterator[None]:
    """Print a text now and then during the body where no terminal shows it."""
    if not shown or is_watched():
        yield
        return
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_DETAIL_S):
            say(text())

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _ignore(_: object) -> None:
    pass
