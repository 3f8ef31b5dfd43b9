"""Signals as the way in which what goes on for ever is meant to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stopping(event: threading.Event, *signals: signal.Signals) -> Iterator[None]:
    """Set by signals, which are how following is meant to end; the second time they do what they did before."""
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
