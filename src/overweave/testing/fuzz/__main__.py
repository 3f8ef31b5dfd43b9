"""``python -m overweave.testing.fuzz --seconds N --seed S``."""

import argparse
import sys

import msgspec

from overweave.errors import OverweaveError
from overweave.testing.fuzz import fuzz


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Attack a live broker, and see that good clients notice nothing.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = fuzz(arguments.seconds, arguments.seed)
    for name, value in msgspec.structs.asdict(report).items():
        print(f"{name}: {value}")
    try:
        report.check()
    except (AssertionError, OverweaveError) as error:
        sys.exit(f"failed: {error}")


if __name__ == "__main__":
    main()
