"""Signals as stop requests: of endless verbs, and of verbs with a session that must end cleanly."""

import contextlib
import signal
import threading
from collections.abc import Iterator

#: The offset of exit statuses after a signal, by convention of shells.
_SIGNALLED = 128


class Terminated(BaseException):
    """A termination signal that ends a verb as Ctrl-C does, with the exit status of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = _SIGNALLED + number


@contextlib.contextmanager
def terminating(*signals: signal.Signals) -> Iterator[None]:
    """Raise `Terminated` at the first signal; a second one has its previous effect. Ignored signals stay ignored (nohup)."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def terminate(number: int, _: object) -> None:
        restore()
        raise Terminated(number)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, terminate)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def stopping(event: threading.Event, *signals: signal.Signals) -> Iterator[None]:
    """Set ``event`` on the first signal; a second one has its previous effect."""
    before = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(*_: object) -> None:
        event.set()
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def restored(*signals: signal.Signals) -> Iterator[None]:
    """Give signals the handlers again that they had before the body."""
    before = {number: signal.getsignal(number) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
