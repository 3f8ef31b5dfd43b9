"""Kill -9 at random moments of migrations: the old broker, the new one, one between them, and the client itself."""

import asyncio
import contextlib
import random
import time

from overweave.errors import OverweaveError
from overweave.overlay.paths import path_between
from overweave.testing.counts import Verdict
from overweave.testing.live_migrations.moves import PUBLISHERS, SUBSCRIBERS, Report, network
from overweave.testing.live_migrations.network import EXPIRY_S, LiveNetwork

VICTIMS = ("old", "new", "between", "client")
#: The time limit for a migration to end, one way or the other, and all clients to have one home.
_WITHIN_S = 300.0
#: The longest delay from the order to the kill, and from that to the restart.
_KILL_S, _RESTART_S = 0.25, 1.5


async def run(kills: int, rate_hz: float, seed: int, victims: tuple[str, ...] = VICTIMS, routing: str = "filter") -> Report:
    """Kill each victim ``kills`` times, one for each migration; everything is checked after each."""
    dice, start_s = random.Random(seed), time.monotonic()
    order = [victim for victim in victims for _ in range(kills)]
    dice.shuffle(order)
    async with network(routing, kinds=1) as made:
        report = Report(Verdict())
        for number, victim in enumerate(order):
            homes = await made.settled_homes(_WITHIN_S)
            await made.publish(rate_hz)
            await asyncio.sleep(0.2)
            text = await _round(made, dice, victim, homes, report)
            report.verdict = await made.check()
            if report.verdict.failed:
                report.failures.append(f"round {number}: {text}")
                break
            print(f"{number + 1}/{len(order)}: {text}", flush=True)
        report.failures += [*await made.leave(60.0 + EXPIRY_S), *made.mistakes()]
    report.seconds = time.monotonic() - start_s
    return report


async def _round(made: LiveNetwork, dice: random.Random, victim: str, homes: dict[str, str], report: Report) -> str:
    """One migration with one kill, until all clients have one home again; what happened, for people."""
    client = dice.choice(dice.choice((PUBLISHERS, SUBSCRIBERS)))
    source = homes[client]
    paths = [path for to in made.overlay.ids if to != source and (path := path_between(made.overlay, source, to))]
    path = dice.choice([each for each in paths if len(each) > 2] if victim == "between" else paths)
    ordered_s, delay_s = time.monotonic(), dice.random() * _KILL_S
    ordering = asyncio.create_task(_order(made, client, source, path[-1]))
    await asyncio.sleep(delay_s)
    if victim == "client":
        await made.kill_client(client)
        await asyncio.sleep(dice.random() * _RESTART_S)
        await made.return_client(client, dice.choice(made.overlay.ids))
    else:
        broker = made.brokers[{"old": source, "new": path[-1], "between": dice.choice(path[1:-1] or path)}[victim]]
        await asyncio.to_thread(broker.kill)
        await asyncio.sleep(dice.random() * _RESTART_S)
        await asyncio.to_thread(broker.start)
    settled = await made.settled_homes(_WITHIN_S)
    ended_s = time.monotonic() - ordered_s
    report.durations_s.append(ended_s)
    ordering.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ordering
    report.migrations += settled[client] == path[-1] and victim != "client"
    where = settled[client]
    return f"{client} {source} → {path[-1]}, {victim} killed after {delay_s:.3f} s; at {where} after {ended_s:.1f} s"


async def _order(made: LiveNetwork, client: str, source: str, to: str) -> None:
    with contextlib.suppress(OverweaveError):  # the connection is lost with the broker
        await made.move(client, source, to)
