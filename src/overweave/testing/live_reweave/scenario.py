"""One run: a network under traffic, a plan that is applied, and the reverse one, with kills and clients that are away."""

import asyncio
import random
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from overweave.contract.observation import Observation
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.language.codec import encode_publication
from overweave.language.publications import Publication
from overweave.planning.plan import Plan
from overweave.testing.counts import Verdict
from overweave.testing.live_reweave import commands
from overweave.testing.live_reweave.away import Away
from overweave.testing.live_reweave.brokers import SingleBrokers, UpBrokers, mistakes, write_network_file
from overweave.testing.live_reweave.changes import Applied, Applier, is_complete
from overweave.testing.live_reweave.network import LiveNetwork, Measured, Size
from overweave.testing.live_reweave.orders import SLOTS
from overweave.testing.live_reweave.results import CHANGE_S_MAX, TOLERANCE, Report, is_brief, pause_p99_s, phases_left

_EXPIRY_S = 10.0
#: The bandwidth of a broker over its share of all deliveries, beside the headroom of plans: it also forwards.
_ABOVE_SHARE = 2.4
#: The most changes to kill a broker in each phase.
_CHANGES_MAX = 6


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run."""

    size: Size
    #: The number of brokers that capacities are chosen for, or that a written plan has.
    target: int = 4
    #: The window of ``overweave plan``; 0: a plan is written.
    window_s: float = 20.0
    kill_apply: int = 0
    #: The latest kill after the first line.
    kill_s: float = 4.0
    kill_brokers: bool = False
    churn: int = 0
    away: int = 0
    back: bool = False
    measure_s: float = 0.0
    #: Continuous planning for so long, with other hot symbols every now and then, and its budget of moves.
    act_s: float = 0.0
    every_s: float = 120.0
    moves_max: int = 1000
    #: The steady traffic before measurements.
    steady_s: float = 4.0
    seed: int = 1
    verbose: bool = False


class Scenario:
    """One run in a directory."""

    #: The headroom of plans.
    headroom = 0.2

    def __init__(self, options: Options, directory: Path) -> None:
        self.options, self._dice, self._directory = options, random.Random(options.seed), directory
        size = options.size
        bandwidth = bandwidth_bytes_per_s(size, options.target, self.headroom)
        self.file = write_network_file(directory, size.brokers, bandwidth, _EXPIRY_S, buffers=not options.churn)
        self.brokers = SingleBrokers(self.file) if options.kill_brokers else UpBrokers(self.file)
        self.network = LiveNetwork(self.file, self.brokers, size, options.seed)
        self.report = Report()
        self._applier = Applier(self.network, self._dice, self._say)
        self._kills_left = options.kill_apply
        #: The brokers that were killed in each change, by phase.
        self._broker_kills: list[dict[str, str]] = []

    async def run(self) -> Report:
        """The whole run."""
        start_s = time.monotonic()
        try:
            await self._enter()
            await self._work()
            await self._leave()
        except Exception as error:
            self.report.add("error", False, f"{type(error).__name__}: {error}")
            raise
        finally:
            await self.network.kill()
            await self.brokers.stop()
            self.report.seconds = time.monotonic() - start_s
        found = mistakes(self.brokers.log())
        self.report.add("logs of brokers", not found, found[0] if found else "no traceback")
        return self.report

    def _say(self, line: str) -> None:
        if self.options.verbose:
            print(f"       apply: {line}", file=sys.stderr, flush=True)

    async def _enter(self) -> None:
        options, start_s = self.options, time.monotonic()
        await self.brokers.start()
        up_s = time.monotonic() - start_s
        await self.network.enter()
        for share in (0.1, 0.4, 1.0):  # every process does much for the first time
            await self.network.publish(share * options.size.rate_hz)
            await asyncio.sleep(options.steady_s)
        await self.network.measured()
        await asyncio.sleep(options.steady_s)
        steady = await self.network.measured()
        self.report.add(
            "steady traffic",
            steady.deliveries > 0,
            f"{steady.deliveries / options.steady_s:,.0f} deliveries/s; {_text(steady)}; up in {up_s:.0f} s",
        )

        if not steady.deliveries:
            raise OverweaveError("steady traffic: nothing arrives")

    async def _work(self) -> None:
        options = self.options
        first = await commands.observed(self.file)
        plan = await self._plan(first)
        rounds = 0
        while True:
            await self._change(plan, f"change {rounds + 1}", with_away=rounds == 0)
            rounds += 1
            if not (options.back and rounds < 2) and self._kills_left <= 0 and not self._has_phases_left(rounds):
                break
            seen = await commands.observed(self.file)
            plan = self._reverse(first, seen) if rounds % 2 else self._again(first, seen)
        if options.kill_brokers:
            self._add_broker_kills()

    def _has_phases_left(self, rounds: int) -> bool:
        return self.options.kill_brokers and rounds < _CHANGES_MAX and bool(phases_left(self._broker_kills))

    def _add_broker_kills(self) -> None:
        left = phases_left(self._broker_kills)
        count = sum(map(len, self._broker_kills))
        text = f"{count} in {len(self._broker_kills)} changes; " + (f"none while {', '.join(left)}" if left else "in each phase")
        self.report.add("kills of brokers", not left, text)

    async def _plan(self, seen: Observation) -> Plan:
        options = self.options
        if options.window_s:
            url = next(iter(read_network(self.file).running_urls.values()))
            plan = await commands.plan_live(
                url, self._directory / "plan-1.json", options.window_s, ("--headroom", f"{self.headroom:g}")
            )
            loads = [each.output_utilisation for each in plan.load.values()]
            text = f"{len(plan.brokers)} brokers, highest utilisation {max(loads):.0%}"
            self.report.add("plan", len(plan.brokers) < options.size.brokers, text)
            return plan
        ids = [f"B{number}" for number in range(1, options.target + 1)]
        return self._written(seen, ids, [(ids[0], id) for id in ids[1:]])

    def _written(self, seen: Observation, ids: list[str], links: commands.Links) -> Plan:
        """A plan for some brokers, with clients at random."""
        names = {each.name for broker in seen.brokers.values() for each in broker.clients}
        publishers = names & set(self.network.size.publisher_names)
        places = {name: self._dice.choice(ids) for name in sorted(names)}
        return commands.written_plan(
            self.file,
            seen,
            ids,
            links,
            {name: at for name, at in places.items() if name not in publishers},
            {name: at for name, at in places.items() if name in publishers},
        )

    def _reverse(self, first: Observation, seen: Observation) -> Plan:
        """A plan for the overlay and the places of clients at the beginning."""
        tree = first.state.tree(first.state.current)
        places = {each.name: id for id, broker in first.brokers.items() for each in broker.clients}
        names = set(self.network.size.publisher_names)
        return commands.written_plan(
            self.file,
            seen,
            tree.brokers,
            tree.links,
            {name: at for name, at in places.items() if name not in names},
            {name: at for name, at in places.items() if name in names},
        )

    def _again(self, first: Observation, seen: Observation) -> Plan:
        """A plan for fewer brokers once more; it is another plan each time."""
        ids = sorted(self._dice.sample(sorted(first.brokers), self.options.target))
        return self._written(seen, ids, [(ids[0], id) for id in ids[1:]])

    async def _change(self, plan: Plan, name: str, *, with_away: bool) -> None:
        """Apply a plan, check it, and apply it again."""
        options, file = self.options, self._directory / f"{name.replace(' ', '-')}.json"
        file.write_bytes(plan.encode())
        away = Away(self.network, options.away) if with_away and options.away else None
        if away is not None:
            await away.enter(file)
        await self.network.churn(options.churn)
        await self.network.measured()
        if away is not None:
            away.leave()
        applied = await self._applier.apply(file, self._kills_left, options.kill_s, kill_brokers=options.kill_brokers)
        during = await self.network.measured()
        self._kills_left -= applied.kills.total()
        self._add_change(name, plan, applied, during, is_plain=not (options.kill_apply or options.kill_brokers or options.away))
        if away is not None:
            self.report.add("clients that were away", *await away.result())
        if options.churn:
            await self.network.churn(0)
            churned = (await self.network.measured()).churned
            self.report.add(f"{name}: subscriptions", churned > 0, f"{churned:,} came and went")
        if options.measure_s:
            await self._measure(plan, applied)
        problem = await is_complete(self.network, file)
        self.report.add(f"{name}: second apply", problem is None, problem or "nothing to do")
        verdict = await self.network.check()
        self.report.add(f"{name}: oracle", not verdict.failed, verdict_text(verdict))
        running = await self.brokers.running()
        self.report.add(
            f"{name}: brokers", len(running) == len(plan.brokers), f"{len(running)} run: {', '.join(sorted(running))}"
        )
        for text in self.brokers.ended():
            self.report.add("brokers", False, text)
        await self.network.publish(options.size.rate_hz)
        await asyncio.sleep(options.steady_s / 2)

    def _add_change(self, name: str, plan: Plan, applied: Applied, during: Measured, *, is_plain: bool) -> None:
        own_s = float(applied.report.get("duration_s", 0.0))
        phases = ", ".join(f"{phase} {at_s:.1f} s" for phase, at_s in applied.report.get("phases", {}).items())
        is_quick = not is_plain or applied.seconds <= CHANGE_S_MAX
        text = (
            f"{len(plan.brokers)} brokers after {own_s:.1f} s (command {applied.seconds:.1f} s), {applied.moved} moved; {phases}"
        )
        self.report.add(name, is_quick and not applied.errors, "; ".join([text, *applied.errors]))
        self.report.add(f"{name}: publishers", not is_plain or is_brief(during.pauses_s), _text(during))
        if self.options.kill_apply:
            kills = ", ".join(f"{where} {count}" for where, count in sorted(applied.kills.items()))
            self.report.add(f"{name}: kills of apply", True, f"{applied.kills.total()} ({kills}); {self._kills_left} left")
        if self.options.kill_brokers:
            self._broker_kills.append(applied.broker_kills)
            kills = ", ".join(f"{phase} {victim}" for phase, victim in applied.broker_kills.items())
            self.report.add(f"{name}: kills of brokers", True, kills or "none")

    async def _measure(self, plan: Plan, applied: Applied) -> None:
        """Compare the inputs of brokers with the loads of the plan."""
        names = dict(each.split(">", 1) for each in str(applied.report["change"]).split(" ")[1:])
        if plan.before is None:  # a plan that is written has no predictions
            return
        await asyncio.sleep(self.options.steady_s)
        found = await self.network.inputs_hz(self.options.measure_s)
        parts, is_close = [], True
        for id, load in sorted(plan.load.items()):
            now_hz = found.get(names.get(id, id), 0.0)
            share = now_hz / load.input_hz - 1 if load.input_hz else 0.0
            is_close &= abs(share) <= TOLERANCE
            parts.append(f"{names.get(id, id)} {now_hz:,.0f}/s, predicted {load.input_hz:,.0f} ({share:+.1%})")
        self.report.add("inputs of brokers", is_close, "; ".join(parts))

    async def _leave(self) -> None:
        await self.network.leave()
        left = await self.network.left(20.0 + _EXPIRY_S)
        self.report.add("all have left", not left, "; ".join(left) or "tables are empty")


def bandwidth_bytes_per_s(size: Size, brokers: int, headroom: float) -> float:
    """The output bandwidth with which about this many brokers carry all deliveries.

    >>> size = Size(brokers=12, clients=200, filters=5, publishers=40, rate_hz=2000.0)
    >>> [round(bandwidth_bytes_per_s(size, brokers, headroom=0.2)) for brokers in (4, 8)]
    [112500, 56250]
    """
    deliveries_hz = size.clients * size.filters * 1.5 / SLOTS * size.rate_hz / max(size.publishers, 1)
    bytes_each = len(encode_publication(Publication({"from": "p10", "slot": 10, "n": 1000})))
    return max(deliveries_hz * bytes_each * _ABOVE_SHARE / (1 - headroom) / brokers, 10_000.0)


def _text(measured: Measured) -> str:
    pauses = np.array(measured.pauses_s)
    return (
        f"pause p99 {pause_p99_s(measured.pauses_s) * 1000:.0f} ms, median {np.median(pauses) * 1000:.0f} ms; "
        f"delay p99 {measured.delay_p99_s * 1000:.0f} ms, longest {measured.delay_max_s * 1000:,.0f} ms"
    )


def verdict_text(verdict: Verdict) -> str:
    """A verdict for people."""
    text = f"{verdict.due:,} due: {verdict.lost:,} lost, {verdict.repeated:,} repeated, {verdict.wrong:,} wrong"
    text += f", {verdict.overtaken:,} behind a later one"
    return "; ".join([text, *verdict.examples[:5]]) if verdict.failed else text
