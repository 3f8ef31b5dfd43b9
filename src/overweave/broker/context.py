"""The parts of a broker core that its other parts share."""

from collections.abc import Iterable
from dataclasses import dataclass

from overweave.batches.base import Batch
from overweave.broker.backlogs import Backlogs
from overweave.broker.counters import Counters
from overweave.broker.deferred import DeferredMessages
from overweave.broker.failure_detector import FailureDetector
from overweave.broker.module_host import ModuleHost
from overweave.broker.peers import Peers
from overweave.broker.pending_ack import PendingAck
from overweave.broker.step import StepContext
from overweave.broker.story import Story
from overweave.broker.timers import Timers
from overweave.contract.config import BrokerConfig
from overweave.routing.base import Engine
from overweave.routing.sync import NeighbourSync


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """One broker's identity, configuration, protocol and shared state."""

    id: str
    incarnation: int
    config: BrokerConfig
    engine: Engine
    step: StepContext
    timers: Timers
    peers: Peers
    backlogs: Backlogs
    sync: NeighbourSync
    detector: FailureDetector
    deferred: DeferredMessages
    modules: ModuleHost
    story: Story
    counters: Counters

    def is_linked(self, neighbour: str) -> bool:
        """Whether a neighbour is in an epoch of the overlay: publications may go there."""
        return self.engine.epochs is None or bool(self.engine.epochs.epochs_of(neighbour))

    @property
    def undeliverable_before_s(self) -> float:
        """Deferred messages from before this time have expired."""
        return self.step.now_s - self.config.undeliverable_timeout_s

    def in_flight_acks(self) -> list[PendingAck]:
        """The acks of all publications that peers have not settled, or that are deferred."""
        return [ack for _, ack in self.in_flight(self.peers.sessions) if ack is not None]

    def in_flight(self, peers: Iterable[str]) -> list[tuple[Batch, PendingAck | None]]:
        """The publications that some peers have not settled, and the deferred ones."""
        sessions = self.peers.sessions
        sent: list[tuple[Batch, PendingAck | None]] = [
            entry for peer in peers for entry in sessions[peer].outbound.batches_holding_acks()
        ]
        return [*sent, *self.deferred.batches()]
