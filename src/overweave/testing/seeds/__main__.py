"""``python -m overweave.testing.seeds``: see `overweave.testing.seeds.runner`."""

import signal
import sys

from overweave.testing.seeds.runner import main

if __name__ == "__main__":
    # Whoever is stopped says what is done, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
