"""The command line of a broker that is a child of this process."""

import sys
from pathlib import Path


def broker_command(file: Path, id: str, state: Path) -> list[str]:
    """The command of one broker; -P keeps files of the current directory off the module path."""
    options = ["--config", str(file), "--id", id, "--state", str(state), "--until-eof"]
    return [sys.executable, "-P", "-m", "overweave", "broker", *options]
