"""Continuous planning of a live network: plans again and again, ``reweave --act``, and other publishers that become hot."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from overweave.contract.observation import Observation
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.reweave.hysteresis import BUDGET_S
from overweave.testing.live_reweave.commands import observed, plan_live
from overweave.testing.live_reweave.network import GROUPS
from overweave.testing.live_reweave.results import Report
from overweave.testing.live_reweave.scenario import Scenario, verdict_text

#: How many times the rate of others a hot publisher has.
_HOT = 6.0
#: The options of `reweave`; and the time in which nothing may change before the next symbols are hot.
_EVERY_S, _SAVING, _COOLDOWN_S, CALM_S = 3.0, 0.05, 20.0, 20.0


class Decision(msgspec.Struct, frozen=True):
    """What `reweave` said, and when."""

    at_s: float
    action: str
    reason: str
    moves: int | None = None
    moves_last_hour: int = 0


class _Line(msgspec.Struct):
    action: str
    reason: str
    moves: int | None = None
    moves_last_hour: int = 0


class Places:
    """The brokers of clients as observations show them; what `reweave` says of its moves does not count."""

    def __init__(self) -> None:
        self._at: dict[str, set[str]] | None = None
        #: The moves that each observation showed, with its time.
        self._moves: list[tuple[float, int]] = []

    def see(self, observation: Observation, now_s: float) -> None:
        """Count the clients that are at a broker where they were not before."""
        found: dict[str, set[str]] = {}
        for id, broker in observation.brokers.items():
            for client in broker.clients:
                found.setdefault(client.name, set()).add(id)
        if self._at is not None:
            self._moves.append((now_s, sum(len(at - self._at.get(name, at)) for name, at in found.items())))
        self._at = {**(self._at or {}), **found}

    @property
    def moves_max(self) -> int:
        """The most moves in any time of the budget."""
        return max(
            (sum(count for at_s, count in self._moves if end_s - BUDGET_S < at_s <= end_s) for end_s, _ in self._moves), default=0
        )


class Reweaving:
    """``overweave reweave --act``, and the plans that it follows."""

    def __init__(self, scenario: Scenario, moves_max: int) -> None:
        self._scenario, self._moves_max = scenario, moves_max
        self._plan = scenario.file.with_name("follow.json")
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.decisions: list[Decision] = []
        self.places, self._looking = Places(), asyncio.Lock()
        self.plans, self.rejected = 0, list[str]()

    async def start(self) -> None:
        """Plan and follow from now on."""
        await self.look()
        command = [sys.executable, "-m", "overweave", "reweave", str(self._plan), "--network", str(self._scenario.file), "--act"]
        command += ["--every", f"{_EVERY_S:g}", "--saving", f"{_SAVING:g}", "--cooldown", f"{_COOLDOWN_S:g}"]
        command += ["--moves", f"{self._moves_max}", "--json"]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._replan())]

    async def stop(self) -> int | None:
        """Plan no more; the exit status of the command after Ctrl-C."""
        assert self._process is not None
        self._tasks[1].cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self._process.wait(), 90.0)
        except TimeoutError:
            self._process.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks[0].result()
        return self._process.returncode

    @property
    def acted(self) -> list[Decision]:
        """The changes that were made."""
        return [each for each in self.decisions if each.action == "acted"]

    async def look(self) -> None:
        """Observe where clients are."""
        async with self._looking:
            self.places.see(await observed(self._scenario.file), time.monotonic())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            found = msgspec.json.decode(line, type=_Line)
            self.decisions.append(Decision(time.monotonic(), found.action, found.reason, found.moves, found.moves_last_hour))
            print(f"       reweave: {found.action}: {found.reason}", flush=True)
            if found.action != "held":
                await self.look()

    async def _replan(self) -> None:
        """Plan the network again and again; while it is being changed it cannot be planned."""
        while True:
            url = next(iter(read_network(self._scenario.file).running_urls.values()))
            try:
                await plan_live(url, self._plan, self._scenario.options.window_s, ("--headroom", f"{ActingScenario.headroom:g}"))
                self.plans += 1
            except OverweaveError as error:
                self.rejected.append(str(error))
                print(f"       {error}", flush=True)
                await asyncio.sleep(1.0)


class ActingScenario(Scenario):
    """A run of some minutes; other symbols are hot every ``every_s``."""

    #: Until the next plan, other symbols are hot at the same brokers.
    headroom = 0.4

    async def _work(self) -> None:
        options = self.options
        reweaving = Reweaving(self, options.moves_max)
        await reweaving.start()
        start_s, turns = time.monotonic(), list[float]()
        while (now_s := time.monotonic()) < start_s + options.act_s:
            turns.append(now_s)
            await self.network.publish(options.size.rate_hz, self._weights(len(turns)))
            print(f"       group {len(turns) % GROUPS} is hot", flush=True)
            await reweaving.look()
            end_s = min(now_s + options.every_s, start_s + options.act_s)
            await asyncio.sleep(max(end_s - time.monotonic(), 0.0))
        await self._results(reweaving, turns)

    def _weights(self, turn: int) -> Sequence[float]:
        return [_HOT if number % GROUPS == turn % GROUPS else 1.0 for number in range(self.options.size.publishers)]

    async def _results(self, reweaving: Reweaving, turns: list[float]) -> None:
        end_s, report = time.monotonic(), self.report
        status = await reweaving.stop()
        acted = reweaving.acted
        text = f"{reweaving.plans} plans, {len(reweaving.rejected)} rejected; {len(acted)} changes; exit status {status}"
        report.add("reweave --act", status in (0, 130), text)
        add_turns(report, [each.at_s for each in acted], turns, end_s)
        await reweaving.look()
        reported = max((each.moves_last_hour for each in reweaving.decisions), default=0)
        add_budget(report, reweaving.places, reported, self.options.moves_max)
        measured = await self.network.measured()
        report.add(
            "publishers", True, f"longest delay {measured.delay_max_s:.2f} s, longest pause {max(measured.pauses_s):.2f} s"
        )
        verdict = await self.network.check()
        report.add("oracle", not verdict.failed, verdict_text(verdict))
        running = await self.brokers.running()
        report.add("brokers", len(running) <= self.options.size.brokers, f"{len(running)} run: {', '.join(sorted(running))}")


def add_turns(report: Report, acted_s: Sequence[float], turns: Sequence[float], end_s: float) -> None:
    """A change ends some time before the next turn, and most turns have one: no plan is for the symbols before."""
    acting = 0
    for number, (turn_s, next_s) in enumerate(zip(turns, [*turns[1:], end_s], strict=True), 1):
        within = [at_s for at_s in acted_s if turn_s <= at_s < next_s]
        acting += bool(within)
        is_calm = not within or next_s - within[-1] >= CALM_S
        text = f"{len(within)} changes, the last after {within[-1] - turn_s:.0f} s" if within else "no change"
        report.add(f"turn {number}", is_calm, text)
    report.add("turns with a change", acting > len(turns) / 2, f"{acting} of {len(turns)}")


def add_budget(report: Report, places: Places, reported: int, moves_max: int) -> None:
    """The moves that observations show are within the budget, whatever `reweave` says of them."""
    text = f"{places.moves_max} of {moves_max} in an hour, as observed; {reported} as reported"
    report.add("budget of moves", places.moves_max <= moves_max, text)
