"""What only people see, on stderr: messages, and progress when it is a terminal. In a pipe progress is silent."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, TextIO

PROGRAM = "overweave"


def say(text: str) -> None:
    """One line on stderr, whatever ``text`` holds; that nobody can read it is no second error."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr, flush=True)
        return
    discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Send what ``stream`` still buffers nowhere, so that the interpreter does not fail once more when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_watched() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def waiting(text: str, shown: bool = True) -> Iterator[Callable[[str], None]]:
    """A spinner with ``text`` while the body runs; the body may change the text."""
    if not (shown and is_watched()):
        yield _ignore
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield lambda text: status.update(text)


@contextlib.contextmanager
def progress(text: str, total: int | None, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar with ``text`` that the body moves by telling how much is done; it appears when it is first told.

    That it appears late lets the body show a `waiting` before: a terminal has room for one moving line.
    """
    if not (shown and is_watched()):
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(text, total=total)

    def done(amount: int) -> None:
        bar.start()
        bar.update(task, completed=amount)

    try:
        yield done
    finally:
        bar.stop()


class TaskBar(NamedTuple):
    """How a body tells what is being done, and how many tasks are done and how many there are so far (none: nobody looks)."""

    say: Callable[[str], None]
    on_tasks: Callable[[int, int], None] | None


@contextlib.contextmanager
def task_bar(text: str) -> Iterator[TaskBar]:
    """A bar with ``text`` for work whose size shows while it is done: it swings until there are tasks, then it counts them."""
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


def _ignore(_: object) -> None:
    pass
