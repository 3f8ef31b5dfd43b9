"""``overweave up``: runs all brokers of a network on this machine, one process each."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.broker_command import broker_command
from overweave.cli.client_options import stall_reports
from overweave.cli.output import put
from overweave.cli.terminal import is_watched, say, waiting
from overweave.drivers.tcp.network_file import NetworkFile, read_network
from overweave.drivers.tcp.processes import STOP_S, stop_with_parent, supervise
from overweave.drivers.tcp.security import Authenticator, server_context
from overweave.drivers.tcp.supervisor import Supervisor, supervisor_lock

EXAMPLE = """\
printf '%s\\n' '[network]' 'shape = "chain"' 'brokers = 3' 'port = 7400' > network.toml
overweave up network.toml"""

#: The time after which preparations are reported where no terminal shows them.
_PREPARING_S = 5.0
#: The time for all brokers to stop, before this process ends by force.
_STOP_S = 2 * STOP_S


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Network file in TOML.", show_default=False)],
    ready_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File with the JSON document; it exists while all brokers are up.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help='Write {"brokers": {id: url}} when all are up.')] = False,
    until_eof: Annotated[bool, typer.Option("--until-eof", help="Also stop at the end of standard input.")] = False,
) -> None:
    """Run a whole network on this machine until Ctrl-C or SIGTERM, and print the URLs of its brokers.

    If a broker process exits, the others are stopped and the exit status is 1. Spare brokers are not started. Other processes
    of the same user, such as 'overweave apply', can start and stop single brokers. Without ``state`` in the file the state is
    in a temporary directory and lost afterwards. 'overweave protocols' lists the routing protocols and the options for
    [routing].
    """
    network = read_network(file)
    if until_eof:
        stop_with_parent(sys.stdin.fileno(), _STOP_S)
    # Errors in these files are reported once, here, instead of by every broker.
    Authenticator(network.security), server_context(network.security)
    with supervisor_lock(file):
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        try:
            _run(file, network, ready_file, as_json=json)
        finally:
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)


def _run(file: Path, network: NetworkFile, ready_file: Path | None, *, as_json: bool) -> None:
    document = msgspec.json.encode({"brokers": network.running_urls}) + b"\n"
    text = "preparing (first run: compiling takes half a minute)"
    with waiting(text), contextlib.nullcontext() if is_watched() else stall_reports(lambda: True, lambda: text, _PREPARING_S):
        from overweave.drivers.tcp.warm import warm_up

        warm_up()

    def on_ready() -> None:
        if ready_file is not None:
            _write(ready_file, document)
        put(document if as_json else "".join(f"{id}\t{url}\n" for id, url in network.running_urls.items()).encode())

    with _state(network) as state:
        supervisor = Supervisor(file, lambda broker, *at: broker_command(file, broker, state, *at))
        commands = {id: broker_command(file, id, state) for id in network.overlay.ids}
        asyncio.run(supervise(commands, on_ready, lambda name, line: say(f"{name}: {line}"), control=supervisor.control))


@contextlib.contextmanager
def _state(network: NetworkFile) -> Iterator[Path]:
    if network.state is not None:
        yield network.state
        return
    with tempfile.TemporaryDirectory(prefix="overweave-") as directory:
        yield Path(directory)


def _write(file: Path, data: bytes) -> None:
    """Write atomically: another process may wait for the file."""
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(data)
    part.replace(file)
