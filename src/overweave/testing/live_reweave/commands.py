"""The verbs of a change as commands: ``plan`` of the live network, ``apply`` with kills, and plans that are written."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from overweave.contract.observation import Observation
from overweave.drivers.tcp.network_file import read_network
from overweave.errors import OverweaveError
from overweave.overlay.parts import link_ends
from overweave.planning.evidence import evidence_of
from overweave.planning.make import make_plan
from overweave.planning.plan import BrokerLoad, Plan
from overweave.planning.planned_for import PlannedFor
from overweave.testing.planning import random_problem

#: The time limit of one command.
_WITHIN_S = 600.0

Links = Sequence[tuple[str, str]]


class Ended(msgspec.Struct, frozen=True):
    """The end of a command; the status of a killed one is negative."""

    status: int
    output: str
    lines: tuple[str, ...]
    seconds: float

    @property
    def text(self) -> str:
        """The last lines, for people."""
        return f"status {self.status}: {' | '.join(self.lines[-4:])} {self.output[-300:]}"


class Run:
    """One command; ``on_line`` gets what it says on standard error."""

    def __init__(self, arguments: Sequence[str], on_line: Callable[[str], None] = lambda _: None) -> None:
        self._arguments, self._on_line = arguments, on_line
        self._lines: list[str] = []
        self._said = asyncio.Event()

    async def end(self, kill_after_s: float | None = None) -> Ended:
        """Run it to its end, or kill it some time after it has said something; below 0: after its start."""
        start_s, pipe = time.monotonic(), subprocess.PIPE
        command = [sys.executable, "-m", "overweave", *self._arguments]
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        assert process.stdout is not None
        assert process.stderr is not None
        said: asyncio.Future[Any] = asyncio.ensure_future(self._said.wait())
        reading: asyncio.Future[Any] = asyncio.gather(self._read(process.stderr), process.stdout.read(), process.wait())
        try:
            async with asyncio.timeout(_WITHIN_S):
                if kill_after_s is not None:
                    if kill_after_s >= 0:
                        await asyncio.wait([reading, said], return_when=asyncio.FIRST_COMPLETED)
                    await asyncio.wait([reading], timeout=abs(kill_after_s))
                    if process.returncode is None:
                        process.kill()
                _, output, status = await reading
        finally:
            said.cancel()
            if process.returncode is None:
                process.kill()
        return Ended(status, output.decode(), tuple(self._lines), time.monotonic() - start_s)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            text = line.decode(errors="replace").strip().removeprefix("overweave: ")
            self._lines.append(text)
            self._said.set()
            self._on_line(text)

    @property
    def last_line(self) -> str:
        """What it said last."""
        return self._lines[-1] if self._lines else ""


async def plan_live(url: str, out: Path, window_s: float, more: Sequence[str] = ()) -> Plan:
    """The plan of ``overweave plan`` for the network of a broker."""
    ended = await Run(["plan", url, "--window", f"{window_s:g}", "--out", str(out), "--no-frontier", *more]).end()
    if ended.status:
        raise OverweaveError(f"plan: {ended.text}")
    return Plan.decode(out.read_bytes())


async def observed(file: Path) -> Observation:
    """What ``overweave apply --status`` sees."""
    ended = await Run(["apply", "--network", str(file), "--status", "--json"]).end()
    if ended.status:
        raise OverweaveError(f"status: {ended.text}")
    return msgspec.json.decode(ended.output, type=Observation)


def written_plan(
    file: Path, seen: Observation, brokers: Sequence[str], links: Links, clients: Mapping[str, str], publishers: Mapping[str, str]
) -> Plan:
    """A plan for a target that the caller chooses, for the brokers of a network file and the present links."""
    network, problem = read_network(file), random_problem(1, brokers=4, clients=6, fill=0.3)
    everyone = [*network.overlay.brokers, *network.spares.values()]
    known = {
        each.id: (each.output_bandwidth_bytes_per_s, each.matching_delay_base_s, each.matching_delay_per_subscription_s)
        for each in everyone
    }
    present = seen.state.tree(seen.state.current).links
    return msgspec.structs.replace(
        make_plan(problem, seed=1, evidence=evidence_of(problem)),
        brokers=tuple(brokers),
        links=tuple(sorted(link_ends(*link) for link in links)),
        clients=dict(clients),
        subscribers={},
        publishers=dict(publishers),
        changes=(),
        before=None,
        frontier=(),
        load={id: BrokerLoad(10.0, 1000.0, 0.1, 0.4) for id in brokers},
        network=PlannedFor(brokers=known, links=tuple(sorted(link_ends(*link) for link in present))),
    )
