"""``overweave broker``: runs one broker of a network in this process."""

import asyncio
import enum
import logging
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import waiting
from overweave.drivers.tcp.logs import configure
from overweave.drivers.tcp.memory import keep_freed_memory
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.processes import READY, stop_with_parent
from overweave.errors import InvalidInput

EXAMPLE = "overweave broker --config examples/network.toml --id B1"


class LogLevel(enum.StrEnum):
    """Log levels."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def broker(
    config: Annotated[Path, typer.Option(metavar="FILE", help="Network file in TOML.", show_default=False)],
    id: Annotated[str, typer.Option(metavar="ID", help="Broker id.", show_default=False)],
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="State directory (default: that of the network file).")
    ] = None,
    log: Annotated[LogLevel, typer.Option(help="Minimum log level.")] = LogLevel.warning,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    drain_on_sigterm: Annotated[
        float | None,
        typer.Option(
            "--drain-on-sigterm",
            min=0,
            metavar="SECONDS",
            help="At SIGTERM, first move clients to neighbours, for this time at most (default: that of the network file).",
        ),
    ] = None,
    join: Annotated[
        str | None, typer.Option(metavar="URL", help="Join a running network at this broker (default: by the network file).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="URL", help="With --join: where to listen (default: by the network file).")
    ] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", help="Also stop at the end of standard input.")] = False,
) -> None:
    """Run one broker of a network until Ctrl-C or SIGTERM. Publications in flight are settled before it exits.

    With --join the broker need not be in the overlay of the network file. It is a leaf at the broker that it joins, adopts the
    overlay of the running network, and leaves it again when it stops without clients.

    It prints one line when it accepts connections, with --join when it has joined: 'ready', or a longer one on a terminal.
    """
    configure(sys.stderr, as_json=log_json, level=logging.getLevelNamesMapping()[log.upper()])
    network = read_network(config)
    if state is not None:
        network = msgspec.structs.replace(network, state=state)
    if listen is not None and join is None:
        raise InvalidInput("--listen: expected --join with it; a broker of the overlay listens at the URL in the network file")
    settings = network.settings(id, join, listen)
    if drain_on_sigterm is not None:
        settings = msgspec.structs.replace(settings, drain_clients_s=drain_on_sigterm)
    asked_s: list[float] = []
    if until_eof:
        stop_with_parent(sys.stdin.fileno(), on_drain=asked_s.append)
    keep_freed_memory()
    with waiting("preparing (first run: compiling takes half a minute)"):
        from overweave.drivers.tcp.serve import serve
        from overweave.drivers.tcp.warm import warm_up

        warm_up()

    def ready() -> None:
        seen = sys.stdout.isatty()
        put(f"{id} listens on {settings.listen}; Ctrl-C stops it\n".encode() if seen else READY + b"\n")

    asyncio.run(serve(settings, ready, lambda: asked_s[-1] if asked_s else None))
