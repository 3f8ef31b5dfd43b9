"""The command line of a broker that is a child of this process."""

import sys
from pathlib import Path


def broker_command(file: Path, id: str, state: Path, join: str | None = None, listen: str | None = None) -> list[str]:
    """The command of one broker; -P keeps files of the current directory off the module path."""
    options = ["--config", str(file), "--id", id, "--state", str(state), "--until-eof"]
    options += ["--drain-on-sigterm", "0"]  # all brokers stop together: clients have nowhere to go
    for option, value in (("--join", join), ("--listen", listen)):
        options += [] if value is None else [option, value]
    return [sys.executable, "-P", "-m", "overweave", "broker", *options]
