"""Signals as stop requests of endless verbs."""

import contextlib
import signal
import threading
from collections.abc import Iterator


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
