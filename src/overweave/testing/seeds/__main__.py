"""``python -m overweave.testing.seeds``: see `overweave.testing.seeds.runner`."""

import sys

from overweave.testing.seeds.runner import main

if __name__ == "__main__":
    sys.exit(main())
