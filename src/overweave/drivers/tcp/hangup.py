"""SIGHUP: by convention a wish to reload, but also what a terminal that is closed sends to whoever runs in it."""

import os
import signal


class Hangup:
    """Tells the two meanings apart, from when it is made on."""

    def __init__(self) -> None:
        #: Whom ``nohup`` has started is to outlive its terminal.
        self._stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = _has_terminal()

    def is_real(self) -> bool:
        """Whether there was a terminal and now is none, so that the process has to end."""
        return self._had_terminal and not self._stays and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
