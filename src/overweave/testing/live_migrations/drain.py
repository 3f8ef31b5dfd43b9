"""A drain of a broker with many clients under traffic, by ``overweave drain``."""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from overweave.errors import OverweaveError
from overweave.overlay.graph import Overlay
from overweave.testing.counts import Verdict
from overweave.testing.live_migrations.moves import Report
from overweave.testing.live_migrations.network import LiveNetwork

DRAINED, BROKERS, PROCESSES, PUBLISHERS, KINDS = "B2", 3, 2, 2, 20
#: The time limits for the drain, for the command to give up, and for all clients to have one home then.
DRAINED_WITHIN_S, _WITHIN_S, _HOMES_S = 60.0, 300.0, 60.0


class Drained(msgspec.Struct):
    """The output of ``overweave drain --json``."""

    empty: bool
    moved: dict[str, str]
    stayed: dict[str, str]
    duration_s: float


async def run(clients: int, rate_hz: float, orders_hz: float) -> Report:
    """Drain a broker of ``clients`` subscribers and two publishers, which publish ``rate_hz`` in all."""
    start_s, subscribers = time.monotonic(), [f"s{number}" for number in range(clients)]
    links = [("B1", "B2"), ("B2", "B3")]
    with tempfile.TemporaryDirectory(prefix="drain") as directory:
        async with LiveNetwork(Overlay([f"B{number + 1}" for number in range(BROKERS)], links), Path(directory)) as made:
            kinds = [f"K{number}" for number in range(KINDS)]
            await asyncio.gather(*(made.add_subscribers(subscribers[i::PROCESSES], DRAINED, kinds) for i in range(PROCESSES)))
            for number in range(PUBLISHERS):
                await made.add_publisher(f"p{number}", DRAINED, kinds)
            await made.publish(rate_hz)
            traffic_s = time.monotonic()
            await asyncio.sleep(1.0)
            drained = await _drain(made, links, orders_hz)
            await asyncio.sleep(1.0)
            report = Report(Verdict(), len(drained.moved), durations_s=[drained.duration_s])
            published, traffic_s = await made.published(), time.monotonic() - traffic_s
            report.verdict = await made.check()
            # Each number goes to all kinds at once: the next one of each publisher may just be due.
            report.measure_rates(published, traffic_s, rate_hz - PUBLISHERS * KINDS / traffic_s)
            report.rejected = [f"{client} stays: {reason}" for client, reason in drained.stayed.items()]
            report.failures += failures_of(drained)
            try:
                homes = await made.settled_homes(_HOMES_S)
                report.failures += [f"{client} is still at {home}" for client, home in homes.items() if home == DRAINED]
            except OverweaveError as error:
                report.failures += [*made.ended(), str(error)[:1000]]
            report.failures += [*await made.leave(), *made.mistakes()]
    report.seconds = time.monotonic() - start_s
    return report


def failures_of(drained: Drained) -> list[str]:
    """What is wrong with a drain.

    >>> failures_of(Drained(True, {"c": "B1"}, {}, 59.0)), failures_of(Drained(False, {}, {"c": "is gone"}, 61.0))
    ([], ['B2 is not empty', 'c stays: is gone', 'the drain took 61.0 s, expected at most 60 s'])
    """
    found = [] if drained.empty else [f"{DRAINED} is not empty"]
    found += [f"{client} stays: {reason}" for client, reason in drained.stayed.items()]
    if drained.duration_s > DRAINED_WITHIN_S:
        found.append(f"the drain took {drained.duration_s:.1f} s, expected at most {DRAINED_WITHIN_S:g} s")
    return found


async def _drain(made: LiveNetwork, links: list[tuple[str, str]], orders_hz: float) -> Drained:
    """Run the command."""
    file = made.directory / "network.toml"
    brokers = [f'[[broker]]\nid = "{id}"\nlisten = "{each.listen}"\n' for id, each in made.settings.items()]
    file.write_text("".join([*brokers, *(f'[[link]]\nbetween = ["{a}", "{b}"]\n' for a, b in links)]))
    command = [sys.executable, "-m", "overweave", "drain", DRAINED, str(file), "--rate", f"{orders_hz:g}", "--json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert output, errors.decode()
    return msgspec.json.decode(output, type=Drained)
