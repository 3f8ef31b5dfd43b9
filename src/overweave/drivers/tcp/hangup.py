"""SIGHUP: by convention a request to reload, but also the signal of a terminal that is closed."""

import os
import signal


class Hangup:
    """Distinguishes the two meanings, from its creation on."""

    def __init__(self) -> None:
        #: A process started by ``nohup`` outlives its terminal.
        self._stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = _has_terminal()

    def is_real(self) -> bool:
        """Whether the terminal was closed, so that the process must stop."""
        return self._had_terminal and not self._stays and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
