"""The executor of a change in a simulated network: it observes by the collector, and performs the commands of the coordinator."""

from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from overweave.contract.observation import CHANGE, COLLECTOR, OBSERVE, Observation
from overweave.contract.overlay_state import OverlayState
from overweave.drivers.sim.network import SimulatedNetwork
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
    next_step,
)
from overweave.reweave.situation import Move, Situation
from overweave.reweave.target import Target

#: The time limits of an answer and of a migration, and the interval between observations.
_ANSWER_S, _MIGRATION_S, _INTERVAL_S = 15.0, 60.0, 0.25

NextStep = Callable[[Target, Situation], Step]


class SimulatedApply:
    """One change. `tick` is called again and again while simulated time passes."""

    def __init__(
        self,
        network: SimulatedNetwork,
        target: Target,
        random: np.random.Generator,
        kill: float = 0.0,
        on_published: Callable[[OverlayState], None] = lambda _: None,
        step: NextStep = next_step,
    ) -> None:
        self._network, self._target, self._random, self._kill = network, target, random, kill
        self._on_published, self._step = on_published, step
        self._running, self._file_is_current = set(network.running()), True
        #: The end of the change, and how often the coordinator was killed.
        self.ended: Done | Failed | None = None
        self.kills = 0
        self.waits: Counter[str] = Counter()
        self.last_reason = ""
        self._forget()

    def _forget(self) -> None:
        """Restart the coordinator: it knows only what the next observation shows."""
        self._previous: Observation | None = None
        self._failures: Counter[str] = Counter()
        self._pending: tuple[str, float] | None = None
        self._orders: dict[str, tuple[Move, float]] = {}
        self._next_s = 0.0

    def tick(self) -> None:
        """Go on with what can be done now."""
        now_s = self._network.scheduler.now_s
        if self.ended is not None or self._is_moving(now_s) or now_s < self._next_s:
            return
        if self._pending is None:
            self._ask(OBSERVE, b"", now_s)
            return
        observation = self._answered(now_s)
        if observation is None:
            return
        self._next_s = now_s + _INTERVAL_S
        if self._random.random() < self._kill:
            self.kills += 1
            self._forget()
            return
        self._perform(self._next(observation), now_s)
        self._previous = observation

    def _next(self, observation: Observation) -> Step:
        situation = Situation(
            observation=observation,
            previous=self._previous,
            running=frozenset(self._running),
            file_is_current=self._file_is_current,
            failures=self._failures,
            batch=4,
        )
        return self._step(self._target, situation)

    # ---- requests

    def _ask(self, kind: str, body: bytes, now_s: float) -> None:
        """Ask a broker that stays, if one runs."""
        running = [id for id in self._network.running() if id in self._target.before]
        staying = [id for id in running if id in self._target.brokers] or running
        if staying:
            token = self._network.ask(str(self._random.choice(staying)), COLLECTOR, kind, body)
            self._pending = (token, now_s) if kind == OBSERVE else None

    def _answered(self, now_s: float) -> Observation | None:
        assert self._pending is not None
        token, since_s = self._pending
        parts = self._network.answers[token]
        if parts and not parts[-1].more:
            self._pending = None
            if parts[-1].error is None:
                return msgspec.msgpack.decode(b"".join(part.body for part in parts), type=Observation)
        elif now_s - since_s > _ANSWER_S:
            self._pending = None
        return None

    # ---- commands

    def _perform(self, step: Step, now_s: float) -> None:
        if isinstance(step, Done | Failed):
            self.ended = step
        elif isinstance(step, Wait):
            self.waits[step.reason] += 1
            self.last_reason = step.reason
        else:
            self._command(step, now_s)

    def _command(self, command: Command, now_s: float) -> None:
        network = self._network
        match command:
            case PublishState(state):
                self._ask(CHANGE, msgspec.msgpack.encode(state), now_s)
                self._file_is_current = False
                self._on_published(state)
            case StartBroker(broker, contact):
                if contact in network.running():
                    network.join_broker(broker, contact)
                    self._running.add(broker)
            case StopBroker(broker):
                if broker in network.running():
                    network.stop_broker(broker)
                    self._running.discard(broker)
            case MoveClients(moves):
                for move in moves:
                    order = network.client_processes.migrate(move.client, move.to, source=move.source)
                    self._orders[order.token] = move, now_s
            case WriteNetworkFile():
                self._file_is_current = True

    def _is_moving(self, now_s: float) -> bool:
        """Whether migrations are in progress; ended and overdue ones are counted and forgotten."""
        for token, (move, since_s) in list(self._orders.items()):
            if token in self._network.migrations:
                self._failures[move.client] += self._network.migrations[token] is not None
                del self._orders[token]
            elif now_s - since_s > _MIGRATION_S:
                del self._orders[token]
        return bool(self._orders)
