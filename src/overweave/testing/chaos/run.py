"""One chaos run: starts brokers, the proxy and clients in processes of their own, injects the scheduled faults, and judges."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

import msgspec

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.ports import free_ports
from overweave.testing.chaos.checker import Verdict, check
from overweave.testing.chaos.clients import FLUSH_S, NUMBERS, Orders
from overweave.testing.chaos.configurations import Configuration
from overweave.testing.chaos.history import read_history
from overweave.testing.chaos.rules import InjectedFault, Rules
from overweave.testing.chaos.schedule import PROCESSES, Fault, Schedule, client_route, link_routes, make_schedule
from overweave.testing.live import BrokerProcess, network_settings, with_changes

#: Without faults in the end: clients go on for so long before they finish.
QUIET_S = 4.0
#: How long a session lasts without its client, and how long failure detectors of links wait.
SESSION_S, SILENCE_S = 30.0, 2.0
#: What a broker would say on its standard error if something went wrong in it.
_MISTAKES = ("Traceback", "AssertionError", "never retrieved")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a run, as it is stored."""

    schedule: Schedule
    injected: list[InjectedFault]
    verdict: Verdict
    #: Errors of clients by their text, and of brokers.
    troubles: dict[str, int]
    mistakes: list[str]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether anything is wrong that no rule excludes."""
        return self.verdict.failed or bool(self.mistakes) or bool(self.troubles)

    def faults(self) -> dict[str, int]:
        """How often each kind of fault was injected."""
        return dict(Counter(each.kind for each in self.schedule.faults))


def run(configuration: Configuration, seed: int, seconds: float, out: Path | None = None) -> Result:
    """Run a configuration with faults for some time; the result and histories are left in ``out``, if given."""
    with tempfile.TemporaryDirectory(prefix="chaos") as temporary:
        directory = Path(temporary) if out is None else out / f"{configuration.name}-{seed}"
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("*.jsonl"):
            old.unlink()
        schedule = make_schedule(configuration, seed, seconds)
        (directory / "schedule.json").write_bytes(msgspec.json.format(msgspec.json.encode(schedule)))
        with tempfile.TemporaryDirectory(prefix="chaos-state") as state:
            result = asyncio.run(_Run(configuration, schedule, directory, Path(state)).run())
        (directory / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        return result


class _Run:
    def __init__(self, configuration: Configuration, schedule: Schedule, directory: Path, state: Path) -> None:
        self._configuration, self._schedule, self._directory = configuration, schedule, directory
        session = SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005)
        config = BrokerConfig(
            session,
            stall_timeout_s=configuration.stall_timeout_s,
            slow_consumer_timeout_s=5.0,
            heartbeat_s=0.5,
            link_timeout_s=SILENCE_S,
        )
        settings = with_changes(
            network_settings(configuration.overlay, routing=schedule.protocol, config=config),
            state=state, session_expiry_s=SESSION_S, ping_interval_s=1.0,
        )  # fmt: skip
        ports = {id: parse_address(each.listen).port for id, each in settings.items()}
        self._processes = [f"{kind}{i}" for kind, count in PROCESSES.items() for i in range(count)]
        pairs = [*link_routes(configuration), *((process, id) for process in self._processes for id in ports)]
        free = free_ports(len(pairs))
        self._routes = {client_route(*pair): (port, ports[pair[1]]) for pair, port in zip(pairs, free, strict=True)}
        self._brokers = {id: BrokerProcess(msgspec.structs.replace(each, urls=self._urls(id))) for id, each in settings.items()}
        self._locks = {name: asyncio.Lock() for name in (*self._brokers, *self._processes)}
        self._injected: list[InjectedFault] = []
        self._children: dict[str, _Child] = {}
        self._unfinished: list[str] = []

    async def run(self) -> Result:
        """From start to verdict."""
        start_s = time.monotonic()
        try:
            async with self._started():
                await self._inject_all()
                await asyncio.sleep(QUIET_S)
                await self._finish()
        finally:
            mistakes = [f"{id}: {text}" for id, broker in self._brokers.items() for text in _mistakes(broker)]
            mistakes += [f"{name}: {text}" for name, child in self._children.items() for text in _mistakes(child)]
            for broker in self._brokers.values():
                await asyncio.to_thread(broker.stop)
        history = read_history(self._directory / f"{process}.jsonl" for process in self._processes)
        rules = Rules(
            self._configuration, self._schedule.protocol, self._injected, link_timeout_s=SILENCE_S, session_s=SESSION_S
        )  # fmt: skip
        return Result(
            schedule=self._schedule, injected=self._injected, verdict=check(history, rules),
            troubles=dict(Counter(trouble.text for trouble in history.troubles)), mistakes=mistakes + self._unfinished,
            seconds=time.monotonic() - start_s,
        )  # fmt: skip

    # ---- processes

    def _urls(self, who: str) -> dict[str, str]:
        """Where brokers are for a broker or a process of clients: behind the proxy."""
        ends = ([*name.split(">"), port] for name, (port, _) in self._routes.items())
        return {str(target): f"tcp://127.0.0.1:{port}" for source, target, port in ends if source == who}

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        children = self._children
        try:
            children["proxy"] = _Child("overweave.testing.chaos.proxy")
            children["proxy"].say(json.dumps(self._routes))
            for process in self._processes:
                children[process] = _Child("overweave.testing.chaos.clients")
            for broker in self._brokers.values():
                broker.launch()
            for broker in self._brokers.values():
                await asyncio.to_thread(broker.wait_ready)
            for child in children.values():
                await asyncio.to_thread(child.hear, "ready")
            self._start_s = time.monotonic()
            for process in self._processes:
                children[process].say(msgspec.json.encode(self._orders(process)).decode())
            yield
        finally:
            for child in children.values():
                child.stop()

    def _orders(self, process: str) -> Orders:
        schedule = self._schedule
        return Orders(
            process=process, urls=self._urls(process), history=str(self._directory / f"{process}.jsonl"), seed=schedule.seed,
            start_s=self._start_s,
            publishers=tuple(
                (place * NUMBERS, plan) for place, plan in enumerate(schedule.publishers) if plan.process == process
            ),
            subscribers=tuple(plan for plan in schedule.subscribers if plan.process == process),
        )  # fmt: skip

    async def _finish(self) -> None:
        """Publishers first: what they have sent is to arrive."""
        for kind in PROCESSES:
            some = [process for process in self._processes if process.startswith(kind)]
            for process in some:
                self._children[process].say("finish")
            for process in some:
                try:
                    await asyncio.wait_for(asyncio.to_thread(self._children[process].hear, "finished"), 2 * FLUSH_S)
                except (TimeoutError, AssertionError) as error:
                    self._unfinished.append(f"{process} did not finish: {error}")

    # ---- faults

    async def _inject_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in self._schedule.faults:
                group.create_task(self._inject(fault))
            group.create_task(asyncio.sleep(self._schedule.seconds))

    async def _inject(self, fault: Fault) -> None:
        await asyncio.sleep(max(self._start_s + fault.at_s - time.monotonic(), 0.0))
        action = {"kill": self._kill, "stop": self._stop, "stop-clients": self._stop, "restart-all": self._restart_all}
        await action.get(fault.kind, self._break)(fault)

    async def _kill(self, fault: Fault) -> None:
        await self._kill_some([fault.target], fault.for_s)

    async def _restart_all(self, fault: Fault) -> None:
        await self._kill_some(list(self._brokers), fault.for_s)

    async def _kill_some(self, ids: list[str], for_s: float) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for id in ids:
                await stack.enter_async_context(self._locks[id])
            from_s = time.monotonic()
            for id in ids:
                self._brokers[id].kill()
            await asyncio.sleep(for_s)
            for id in ids:
                self._brokers[id].launch()
            for id in ids:
                await asyncio.to_thread(self._brokers[id].wait_ready)
                self._record("kill", id, from_s)

    async def _stop(self, fault: Fault) -> None:
        async with self._locks[fault.target]:
            pid = self._brokers[fault.target].pid if fault.target in self._brokers else self._children[fault.target].pid
            from_s = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(fault.for_s)
            finally:
                os.kill(pid, signal.SIGCONT)
            self._record(fault.kind, fault.target, from_s)

    async def _break(self, fault: Fault) -> None:
        from_s = time.monotonic()
        self._children["proxy"].say(json.dumps([fault.kind, fault.target, fault.for_s]))
        await asyncio.sleep(fault.for_s)
        self._record(fault.kind, fault.target, from_s)

    def _record(self, kind: str, target: str, from_s: float) -> None:
        self._injected.append(InjectedFault(kind=kind, target=target, from_s=from_s, until_s=time.monotonic()))


class _Child:
    """A process of this package that takes lines and says some."""

    def __init__(self, module: str) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True, text=True
        )
        self._said = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self, line: str) -> None:
        assert self._process.stdout is not None
        heard = self._process.stdout.readline().strip()
        assert heard == line, f"expected {line!r}, heard {heard!r}: {self.errors()[-2000:]}"

    def errors(self) -> str:
        if self._errors.closed:
            return self._said
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def stop(self) -> None:
        self._said = self.errors()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._errors.close()


def _mistakes(process: "BrokerProcess | _Child") -> list[str]:
    said = process.errors()
    return [said[max(at - 200, 0) : at + 2000] for each in _MISTAKES if (at := said.find(each)) >= 0][:1]
