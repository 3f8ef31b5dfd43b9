"""The command line: ``overweave VERB …``.

A verb is one file of this package and one line in `VERBS`. The file ``cli/VERB.py`` exports a function of the same name,
whose signature is the verb's options (typer) and whose docstring is its help, and ``EXAMPLE``, a command that can be
pasted. `overweave.cli.app` adds exit statuses and one-line errors to every verb.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

#: The exit status after Ctrl-C, by convention of shells.
INTERRUPTED = 130
#: Every verb and its summary. The file of a verb is imported only when the verb is called.
VERBS = {
    "demo": "Run a demonstration on embedded stock quotes.",
    "match": "Match a file of publications against a file of filters.",
    "simulate": "Run a scenario in the simulator.",
    "protocols": "List the routing protocols and their options.",
    "analyze": "Compute the cost of routing in closed form.",
    "sweep": "Run a grid of scenarios on Spark.",
    "workload": "Generate tables of publications and subscriptions.",
    "broker": "Run one broker of a network.",
    "up": "Run a whole network on this machine.",
    "status": "Show the state of the brokers of a network.",
    "top": "Monitor the brokers of a network.",
    "move": "Move a client to another broker.",
    "drain": "Move all clients of a broker to other brokers.",
    "pub": "Publish the lines of a file or of standard input.",
    "sub": "Print the publications that match a filter.",
    "profile": "Profile the traffic of a network from its traces.",
    "plan": "Plan the fewest brokers for the traffic.",
    "apply": "Apply a plan to a running network.",
    "undo": "Return to the network before the last change.",
    "reweave": "Apply plans continuously, when they pay.",
    "report": "Write an HTML report of a profile, a sweep or a plan.",
    "reproduce": "Re-run the evaluation of a paper.",
    "bench": "Run a benchmark against a baseline.",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 success, 1 runtime error, 2 invalid input, 130 interrupted."""
    try:
        # Imports take most of the start-up time: here Ctrl-C during them is handled, too.
        from overweave.cli.app import run

        status = run(VERBS, sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        from overweave.cli.terminal import say

        say("interrupted")
        status = INTERRUPTED
    sys.exit(status)
