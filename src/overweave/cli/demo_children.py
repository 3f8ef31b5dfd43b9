"""Processes of ``overweave demo``: each exchanges lines with its parent, and is gone when the demonstration ends."""

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from overweave.errors import OverweaveError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Child:
    """A process in a session of its own, so that Ctrl-C reaches only its parent. It stops at the end of its standard input."""

    def __init__(self, name: str, module: str, arguments: Sequence[str]) -> None:
        self.name = name
        self._last_error = ""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # -P keeps files of the current directory off the module path.
        command, pipe = [sys.executable, "-P", "-m", module, *arguments], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_output, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def send(self, line: bytes) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._error() from None

    def line(self, limit_s: float) -> bytes | None:
        """The next line of its standard output; None if none comes within the time limit. An error if the process has ended."""
        try:
            found = self._lines.get(timeout=limit_s)
        except queue.Empty:
            return None
        if found is None:
            raise self._error()
        return found

    def check(self) -> None:
        """Raise an error if the process has ended."""
        if self._process.poll() is not None:
            raise self._error()

    def stop(self, number: signal.Signals, limit_s: float) -> None:
        """Send a signal, and wait until the process has ended. After half of the time limit its input ends, then it is killed."""
        assert self._process.stdin is not None
        # A library that is being imported may swallow the signal. The end of the input is heard in any case.
        end_input, kill = self._process.stdin.close, self._process.kill
        actions: list[Callable[[], None]] = [lambda: self._process.send_signal(number), end_input, kill]
        for action in actions:
            with contextlib.suppress(OSError):
                action()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit_s / 2)
                break
        self._process.wait()
        for reader in self._readers:
            reader.join(limit_s)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _error(self) -> OverweaveError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # its output has ended, so it does
        reason = f": {self._last_error}" if self._last_error else ""
        return OverweaveError(f"{self.name} ended with status {self._process.returncode}{reason}")

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_error = line.decode(errors="replace").strip() or self._last_error


@contextlib.contextmanager
def child(name: str, module: str, arguments: Sequence[str], number: signal.Signals, limit_s: float) -> Iterator[Child]:
    """A process during the body; then it is stopped by a signal within a time limit, whatever happens."""
    started: Child | None = None
    try:
        with held_signals():
            started = Child(name, module, arguments)
        yield started
    finally:
        if started is not None:
            with held_signals():
                started.stop(number, limit_s)


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the end of the body, so that what it begins or removes is complete."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    held: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # nohup stays so

    def hold(number: int, _: object) -> None:
        held.append(number)

    for number in heard:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number in heard:
            if signal.getsignal(number) is hold:  # the body may have set a handler for the time after it
                signal.signal(number, before[number])
        if held and sys.exc_info()[0] is None:
            signal.raise_signal(held[0])
