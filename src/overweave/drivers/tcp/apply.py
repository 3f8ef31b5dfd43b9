"""A change of a live network: observations, commands of the coordinator, and migrations at a rate."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import msgspec

from overweave.contract.observation import Observation
from overweave.contract.overlay_state import OverlayState, OverlayVersion, Phase
from overweave.contract.requests import MOVING_ALREADY
from overweave.drivers.tcp.operator import Rejected
from overweave.drivers.tcp.overlay_operators import OverlayOperators
from overweave.errors import OverweaveError
from overweave.reweave.coordinator import (
    Command,
    Done,
    Failed,
    MoveClients,
    PublishState,
    StartBroker,
    Step,
    StopBroker,
    Wait,
    WriteNetworkFile,
)
from overweave.reweave.deliveries import DeliveryMeter
from overweave.reweave.difference import STEP_S
from overweave.reweave.pacing import SAMPLE_S, Pacing
from overweave.reweave.situation import Move, Situation, version_text

#: The shortest and the longest interval between observations, and the rest of a client whose migration failed.
_INTERVAL_S, _INTERVAL_S_MAX, _REST_S = 0.2, 2.0, 2.0
#: The interval between observations as a share of the time for which they have shown the same.
_SAME_SHARE = 0.1
#: How long a client that has moved may be seen at its old broker.
_DETACH_S = 5.0
#: How long no broker may answer, and how long a migration may take.
_SILENCE_S, MIGRATION_S = 60.0, 210.0
#: Migrations in progress at the same time.
_IN_PROGRESS_MAX = 64
#: How long brokers count the delays of deliveries after an observation.
DELAYS_S = 30.0


class Processes(Protocol):
    """The broker processes of a network."""

    async def running(self) -> frozenset[str]:
        """The brokers whose processes run."""

    async def start(self, broker: str, contact: str) -> None:
        """Start a broker that joins at the URL of another one."""

    async def stop(self, broker: str) -> bool:
        """Stop a broker that has left the overlay; False: the operator has to."""


class OverlayFile(Protocol):
    """The network file of a change."""

    def is_current(self, state: OverlayState) -> bool:
        """Whether the file has the overlay of a state."""

    def named(self, observation: Observation) -> Observation:
        """An observation with the name of the last change, if the network has restarted without journals since then."""

    def write(self, state: OverlayState) -> None:
        """Rewrite the file."""

    def back_up(self, observation: Observation, epoch: int) -> None:
        """Keep the file and the places of clients from before the first epoch of a change."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a change."""

    phase: str
    moved: int = 0
    moves: int = 0
    rate_hz: float = 0.0
    #: Why nothing can be done at the moment.
    waits_for: str = ""


class LiveApply:
    """One change of a live network. Stopped and started again, it goes on from what it observes."""

    def __init__(
        self,
        operators: OverlayOperators,
        processes: Processes,
        file: OverlayFile,
        next_step: Callable[[Situation], Step],
        preferred: tuple[str, ...],
        rate_hz: float,
        report: Callable[[Progress], None],
    ) -> None:
        self._operators, self._processes, self._file = operators, processes, file
        self._next_step, self._preferred, self._report = next_step, preferred, report
        self._pacing, self._meter = Pacing(rate_hz), DeliveryMeter()
        self._sampled_s = time.monotonic()
        self._failures: Counter[str] = Counter()
        self._rests: dict[str, float] = {}
        #: Since when no order to a broker has got a result.
        self._lost_s: dict[str, float] = {}
        self._previous: Observation | None = None
        self._answered_s = time.monotonic()
        #: How long the last answer took.
        self._answer_s = 0.0
        #: What a step waits for, and since when.
        self._waits_for, self._waits_since_s = "", 0.0
        #: The state that was rejected last, and the version that was observed then.
        self._rejected: tuple[OverlayState, OverlayVersion] | None = None
        self._stopped = asyncio.Event()
        #: The clients that have moved, with their brokers.
        self.moved: dict[str, str] = {}
        #: The phases that this coordinator has begun, with their times.
        self.phases: list[tuple[OverlayVersion, float]] = []
        #: What it has done after the last phase.
        self.finished: list[str] = []
        self._pending = 0

    def stop(self) -> None:
        """End `run` after the present step."""
        self._stopped.set()

    async def run(self) -> Done | Failed | None:
        """Go on until the change is complete or cannot go on, for whatever reason; None: stopped."""
        try:
            return await self._run()
        except OverweaveError as error:  # what has been done up to here counts
            return Failed(str(error))

    async def _run(self) -> Done | Failed | None:
        while not self._stopped.is_set():
            observation = await self._observe()
            if observation is None:
                continue
            observation = self._file.named(observation)
            step = self._next_step(await self._situation(observation))
            self._previous = observation
            if isinstance(step, Done | Failed):
                return step
            if isinstance(step, Wait):
                self._report_progress(version_text(observation.state.version), waits_for=step.reason)
                await self._pause(self._interval_s(step.reason))
            else:
                self._waits_for = ""
                if failed := await self._perform(step, observation):
                    return failed
        return None

    def _interval_s(self, reason: str) -> float:
        """The time until the next observation: longer while it shows the same, and where brokers answer slowly."""
        now_s = time.monotonic()
        if reason != self._waits_for:
            self._waits_for, self._waits_since_s = reason, now_s
        return min(max(_INTERVAL_S, _SAME_SHARE * (now_s - self._waits_since_s), self._answer_s), _INTERVAL_S_MAX)

    async def _observe(self) -> Observation | None:
        asked_s = time.monotonic()
        try:
            found = await self._operators.observe(self._preferred, DELAYS_S)
        except OverweaveError as error:
            if time.monotonic() - self._answered_s > _SILENCE_S:
                raise
            self._report_progress("observing", waits_for=str(error))
            await self._pause(5 * _INTERVAL_S)
            return None
        self._answered_s = time.monotonic()
        self._answer_s = self._answered_s - asked_s
        if self._answered_s - self._sampled_s >= SAMPLE_S:  # what is usual is known before anything moves
            self._sample(found)
        return found

    def _sample(self, observation: Observation) -> None:
        """Adapt the rate of migrations to an observation."""
        elapsed_s, self._sampled_s = time.monotonic() - self._sampled_s, time.monotonic()
        self._pacing.sample(self._meter.measure(observation), elapsed_s)
        if observation.missing:
            self._pacing.back_off()

    async def _keep_sampling(self) -> None:
        """Adapt the rate again and again; a broker that does not answer slows migrations down, too."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                self._sample(await self._operators.observe_again(DELAYS_S))
            except OverweaveError:
                self._pacing.back_off()

    async def _situation(self, observation: Observation) -> Situation:
        now_s = time.monotonic()
        self._rests = {client: until_s for client, until_s in self._rests.items() if until_s > now_s}
        return Situation(
            observation=observation,
            previous=self._previous,
            running=await self._processes.running(),
            file_is_current=self._file.is_current(observation.state),
            failures=dict(self._failures),
            resting=frozenset(self._rests),
            batch=max(1, round(self._pacing.rate_hz * STEP_S)),
        )

    # ---- commands

    async def _perform(self, command: Command, observation: Observation) -> Failed | None:
        match command:
            case PublishState(state):
                return await self._publish(state, observation)
            case MoveClients(moves):
                await self._move(moves)
            case StartBroker(broker, contact):
                self._report_progress(f"starting {broker}")
                await self._processes.start(broker, observation.brokers[contact].url)
            case StopBroker(broker):
                self._report_progress(f"stopping {broker}")
                await self._operators.close(broker)
                if await self._processes.stop(broker):
                    self.finished.append(f"broker {broker} stopped")
            case WriteNetworkFile(state):
                self._report_progress("writing the network file")
                self._file.write(state)
                self.finished.append("network file written")
        return None

    async def _publish(self, state: OverlayState, observation: Observation) -> Failed | None:
        """Have a state adopted. One that is rejected again though the network has not changed is never adopted."""
        if _is_first_state(state, observation.state):
            self._file.back_up(observation, state.version.epoch)
        phase = version_text(state.version)
        self._report_progress(phase)
        try:
            await self._operators.publish(state)
        except Rejected as error:  # another coordinator may have been faster: that is observed next
            rejected = state, observation.state.version
            if self._rejected == rejected:
                return Failed(f"{phase}: {error}")
            self._rejected = rejected
            await self._retry(phase, error)
        except OverweaveError as error:  # the connection is lost
            await self._retry(phase, error)
        else:
            self.phases.append((state.version, time.monotonic()))
        return None

    async def _retry(self, phase: str, error: OverweaveError) -> None:
        """Pause before the next observation."""
        self._report_progress(phase, waits_for=str(error))
        await self._pause(5 * _INTERVAL_S)

    async def _move(self, moves: tuple[Move, ...]) -> None:
        """Order migrations at the rate of the moment. Those that a lower rate leaves over belong to the next step."""
        self._pending = len(moves)
        end_s = time.monotonic() + 2 * STEP_S
        tasks: set[asyncio.Task[None]] = set()
        sampling = asyncio.create_task(self._keep_sampling())
        try:
            for move in moves:
                if self._stopped.is_set() or time.monotonic() > end_s:
                    break
                tasks.add(asyncio.create_task(self._migrate(move)))
                await self._pause(self._pacing.interval_s)
                if sum(not task.done() for task in tasks) >= _IN_PROGRESS_MAX:
                    await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*tasks)
        finally:
            for task in (sampling, *tasks):
                task.cancel()
            await asyncio.gather(sampling, *tasks, return_exceptions=True)

    async def _migrate(self, move: Move) -> None:
        start_s = time.monotonic()
        try:
            error = await self._operators.migrate(move.client, move.source, move.to, MIGRATION_S)
            self._lost_s.pop(move.source, None)
            is_failure = error is not None and not error.endswith(MOVING_ALREADY)
        except OverweaveError as lost:  # the client may move nevertheless: it is observed next
            error = str(lost)
            is_failure = time.monotonic() - self._lost_s.setdefault(move.source, start_s) > _SILENCE_S
        if error is None:
            self.moved[move.client] = move.to
            self._rests[move.client] = time.monotonic() + _DETACH_S
        else:
            self._failures[move.client] += is_failure
            self._rests[move.client] = time.monotonic() + _REST_S
        self._report_progress(
            "moving clients", waits_for="" if error is None else f"{move.client} stays at {move.source}: {error}"
        )

    # ---- progress

    def _report_progress(self, phase: str, waits_for: str = "") -> None:
        progress = Progress(
            phase=phase, moved=len(self.moved), moves=self._pending, rate_hz=self._pacing.rate_hz, waits_for=waits_for
        )
        self._report(progress)

    async def _pause(self, time_s: float) -> None:
        """Wait, but not longer than until `stop`."""
        try:
            async with asyncio.timeout(time_s):
                await self._stopped.wait()
        except TimeoutError:
            pass


def _is_first_state(state: OverlayState, observed: OverlayState) -> bool:
    """Whether a state is the first one of a change: one that begins again has begun before, unless that was taken back."""
    is_other = state.change != observed.change or observed.version.phase is Phase.REVERTED
    return is_other and state.version.epoch != observed.version.epoch
