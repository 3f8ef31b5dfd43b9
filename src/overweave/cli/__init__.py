"""The command line: ``overweave VERB …``.

A verb is one file of this package and one line in `VERBS`. The file ``cli/VERB.py`` exports a function of the same name,
whose signature is the verb's options (typer) and whose docstring is its help, and ``EXAMPLE``, a command that can be
pasted. `overweave.cli.frame` gives every verb its exit statuses and its one-line errors.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

#: The exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130
#: Every verb and what the list of verbs says about it. A verb's file is imported only when the verb is called.
VERBS = {
    "demo": "See it work on embedded stock quotes.",
    "match": "Match a file of publications against a file of filters.",
    "simulate": "Run a scenario in the simulator.",
    "protocols": "List the routing protocols and their options.",
    "analyze": "Say what routing will cost, in closed form.",
    "sweep": "Run a grid of scenarios on Spark.",
    "workload": "Make tables of publications and subscriptions.",
    "broker": "Run one broker of a network.",
    "up": "Run a whole network on this machine.",
    "status": "Say how the brokers of a network are.",
    "top": "Watch the brokers of a network.",
    "pub": "Publish lines of a file or of standard input.",
    "sub": "Print what a filter receives.",
    "profile": "Profile what a network carried, from its traces.",
    "plan": "Plan as few brokers as the traffic needs.",
    "report": "Write what a profile, a sweep or a plan says as a page.",
    "reproduce": "Re-run a paper's evaluation, ours next to theirs.",
    "bench": "Measure against a baseline in the same run.",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit status: 0 done, 2 the input is wrong, 1 it failed, 130 interrupted."""
    try:
        # Imports are most of the start, and Ctrl-C may well come in them: all that can wait happens here.
        from overweave.cli.frame import run

        status = run(VERBS, sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        from overweave.cli.terminal import say

        say("interrupted")
        status = INTERRUPTED
    sys.exit(status)
