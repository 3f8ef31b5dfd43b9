"""``python -m overweave.testing.seeds``: see `overweave.testing.seeds.runner`."""

from overweave.testing.many_runs import exit_with
from overweave.testing.seeds.runner import main

if __name__ == "__main__":
    exit_with(main)
