"""``overweave plan tcp://…``: the tables of a plan, read from a live network."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from overweave.cli.client_options import Credentials
from overweave.cli.operators import operator_of
from overweave.cli.plan_options import PlanArguments
from overweave.cli.stopping import terminating
from overweave.cli.terminal import is_watched, say
from overweave.contract.observation import Observation
from overweave.contract.profiles import BITS, ProfileRequest
from overweave.drivers.profile_tables import ProfileTables
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.croc import Croc
from overweave.errors import InvalidInput, OverweaveError

if TYPE_CHECKING:
    from overweave.pipeline.plan_brokers import Network

#: The time for which a live network is profiled.
WINDOW_S = 30.0
_SCHEMES = ("tcp://", "tls://")


def is_live(arguments: PlanArguments) -> bool:
    """Whether SOURCE is a broker of a live network; options that do not fit are errors."""
    given = arguments
    live = given.source.startswith(_SCHEMES)
    only_live: dict[str, object] = {
        "window": given.window,
        "profile-bits": given.profile_bits,
        "profiles-out": given.profiles_out,
    }
    only_live |= {"name": given.name, "cafile": given.cafile, "certificate": given.certificate, "key": given.key}
    for name, value in ({"network": given.network, "follow": given.follow or None} if live else only_live).items():
        if value is not None:
            raise InvalidInput(f"--{name}: expected {'without' if live else 'with'} the URL of a broker as SOURCE")
    return live


def read_live(arguments: PlanArguments, directory: Path, show: Callable[[str], None]) -> "Network":
    """Profile a live network for a while, and write its tables; Ctrl-C ends the profile."""
    from overweave.pipeline.live_tables import live_network, write_live_tables

    window_s = WINDOW_S if arguments.window is None else arguments.window
    bits = BITS if arguments.profile_bits is None else arguments.profile_bits
    if not window_s > 0:
        raise InvalidInput(f"--window: expected a time above 0, found {window_s:g}")
    try:
        ProfileRequest("", bits).check()
    except InvalidInput as error:
        raise InvalidInput(f"--profile-{error}") from None
    with terminating(signal.SIGTERM, signal.SIGHUP):
        seen, tables = asyncio.run(_profiled(arguments, window_s, bits, show))
    network = live_network(seen, arguments.source)
    if not tables.publishers["publisher"]:
        raise OverweaveError(f"{arguments.source}: no publications within {window_s:g} s: nothing to plan for")
    write_live_tables(tables, directory)
    return network


async def _profiled(
    arguments: PlanArguments, window_s: float, bits: int, show: Callable[[str], None]
) -> tuple[Observation, ProfileTables]:
    given, address = arguments, parse_address(arguments.source, "SOURCE")
    credentials = Credentials(given.name, given.token, given.cafile, given.certificate, given.key)
    async with contextlib.AsyncExitStack() as stack:
        show(f"connecting to {address}")
        croc = Croc(await stack.enter_async_context(operator_of(credentials, address)))
        profiling = await stack.enter_async_context(croc.profiling(bits))
        count = len(profiling.brokers)
        if not is_watched():
            say(f"profiling {count:,} brokers for {window_s:g} s")
        await profiling.wait(window_s, lambda left_s: show(f"profiling {count:,} brokers: {left_s:.0f} s left"))
        show("reading profiles")
        tables = await profiling.read()
        if profiling.restarts:
            say("brokers started during the window: profiles restart from there")
        seen = await croc.observe()
    if seen.missing:
        raise OverweaveError(f"broker {seen.missing[0]} did not answer in time")
    if not seen.state.is_stable:
        raise OverweaveError(f"{arguments.source}: the overlay is changing: plan again afterwards")
    return seen, tables
