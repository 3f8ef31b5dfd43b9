"""Changes of a live network: ``apply`` until it is complete, killed at random moments, while brokers are killed in each phase."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from overweave.errors import OverweaveError
from overweave.testing.live_reweave.brokers import SingleBrokers
from overweave.testing.live_reweave.commands import Run
from overweave.testing.live_reweave.network import LiveNetwork
from overweave.testing.live_reweave.results import PHASES

#: The earliest kill of `apply`, before its first line, how long a killed broker is away, and the latest kill in a phase.
_KILL_S_MIN, _AWAY_S, _INTO_S = -0.5, (0.0, 1.5), 0.1
_ERRORS_MAX = 3


class Applied(msgspec.Struct):
    """The result of a change."""

    #: From the first start of the command to its end, and what the last one says of itself.
    seconds: float = 0.0
    report: dict[str, Any] = {}
    #: Kills of the command by what it had said last, and kills of brokers by phase.
    kills: Counter[str] = msgspec.field(default_factory=Counter)
    broker_kills: dict[str, str] = {}
    #: Ends of the command other than success and kills.
    errors: list[str] = []

    @property
    def moved(self) -> int:
        """The clients that the last command moved."""
        return len(self.report.get("moved", ()))


class Applier:
    """Applies plans to one network."""

    def __init__(self, network: LiveNetwork, dice: random.Random, on_line: Callable[[str], None] = lambda _: None) -> None:
        self._network, self._dice, self._report_line = network, dice, on_line
        #: The phases in which a broker is still to be killed, and the present one.
        self._phases: set[str] = set()
        self._phase = ""
        self._killing, self._tasks = asyncio.Lock(), set[asyncio.Task[None]]()
        self._applied = Applied()

    async def apply(self, plan: Path, kills: int = 0, within_s: float = 0.0, *, kill_brokers: bool = False) -> Applied:
        """Run the command until it has completed the change; the kills come within some time after its first line."""
        self._applied, self._phases = Applied(), set(PHASES) if kill_brokers else set()
        applied = self._applied
        arguments = ["apply", str(plan), "--network", str(self._network.file), "--yes", "--json"]
        start_s = asyncio.get_running_loop().time()
        while True:
            run = Run(arguments, self._on_line)
            is_killed = applied.kills.total() < kills
            ended = await run.end(self._dice.uniform(_KILL_S_MIN, within_s) if is_killed else None)
            if ended.status == 0:
                break
            if ended.status == -9:
                applied.kills[run.last_line.split(";")[0].split(":")[0] or "before the first line"] += 1
                continue
            applied.errors.append(ended.text)
            if len(applied.errors) >= _ERRORS_MAX:
                raise OverweaveError(f"apply: {ended.text}")
        applied.report = msgspec.json.decode(ended.output)
        await asyncio.gather(*self._tasks)
        applied.seconds = asyncio.get_running_loop().time() - start_s
        return applied

    def _on_line(self, line: str) -> None:
        self._report_line(line)
        self._network.brokers.on_line(line)
        self._phase = next((each for each in PHASES if each in line.split(";")[0]), self._phase)
        if self._phase in self._phases:
            self._phases.discard(self._phase)
            self._tasks.add(asyncio.create_task(self._kill(self._phase)))

    async def _kill(self, phase: str) -> None:
        """Kill a broker, never two at the same time: together they may lose publications (docs/guarantees.md).

        If the phase is over when it is its turn, no broker is killed.
        """
        brokers = self._network.brokers
        assert isinstance(brokers, SingleBrokers)
        async with self._killing:
            await asyncio.sleep(self._dice.uniform(0.0, _INTO_S))
            running = await brokers.running()
            if self._phase != phase:
                return
            victim = self._dice.choice(running)
            self._applied.broker_kills[phase] = victim
            await brokers.kill(victim, self._dice.uniform(*_AWAY_S))


async def is_complete(network: LiveNetwork, plan: Path) -> str | None:
    """What a second run of the command does, if anything."""
    ended = await Run(["apply", str(plan), "--network", str(network.file), "--yes"], network.brokers.on_line).end()
    if ended.status == 0 and ended.output == "the network is as planned: nothing to do\n":
        return None
    return f"a second apply: {ended.text}"
