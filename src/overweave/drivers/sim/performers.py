"""Performers of effects of simulated brokers and clients, besides frames and timers."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from overweave.contract.effects import (
    Attach,
    CloseLink,
    Deliver,
    Detach,
    MigrationEnded,
    ModuleAnswer,
    Notify,
    OpenLink,
    OverlayChanged,
    Parts,
    Persist,
    Reject,
    Rejection,
    Restart,
    Trace,
    TraceColumns,
    TraceDecision,
    TraceStatement,
)
from overweave.contract.overlay_state import OverlayState
from overweave.contract.records import Decision, Record, Statement
from overweave.drivers.effect_runner import Performers
from overweave.drivers.sim.connections import ConnectionTable
from overweave.drivers.sim.journals import Journals
from overweave.drivers.sim.nodes import Host, Node
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.supervisor import BrokerSupervisor

#: How soon a neighbour connects again whose connection was closed.
_RECONNECT_S = 0.1
#: Gets the publications of a client, by subscription.
OnDelivery = Callable[[Parts], None]


class Outcomes:
    """Deliveries, traces and refusals of a simulated network."""

    def __init__(self) -> None:
        #: Deliveries by (publisher, sequence, subscription), unless another function counts them.
        self.deliveries: Counter[tuple[str, int, str]] = Counter()
        self.records: list[Record] = []
        self.statements: list[Statement] = []
        self.decisions: list[Decision] = []
        self.refusals: list[Reject] = []
        #: The brokers that restarted because others knew a later incarnation of them, and that incarnation.
        self.restarts: list[tuple[str, int]] = []
        #: Control messages that brokers did not accept, by client.
        self.rejections: list[tuple[str, Rejection]] = []
        #: The errors of migrations by token; None: the client has moved.
        self.migrations: dict[str, str | None] = {}
        #: The states of the overlay that brokers have adopted, in this order.
        self.overlays: list[tuple[str, OverlayState]] = []
        #: The answers of modules to operators, in parts, by token.
        self.answers: dict[str, list[ModuleAnswer]] = {}

    def count_delivery(self, parts: Parts) -> None:
        """Count the deliveries to a client."""
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self.deliveries[publisher, sequence, subscription] += 1


class EffectPerformers:
    """Performs the effects of all nodes of one network."""

    def __init__(
        self,
        host: Host,
        scheduler: Scheduler,
        table: ConnectionTable,
        supervisor: BrokerSupervisor,
        journals: Journals,
        outcomes: Outcomes,
        on_delivery: OnDelivery,
    ) -> None:
        self._host, self._scheduler = host, scheduler
        self._table, self._supervisor, self._journals = table, supervisor, journals
        self._outcomes, self._on_delivery = outcomes, on_delivery

    def of(self, node: Node) -> Performers:
        """The performers of a node. None is a closure: a copy of the network must not act on the first."""
        if node.id in self._table.clients:
            return {
                Deliver: self._deliver,
                Rejection: partial(self._rejected, node),
                Attach: partial(self._attach, node),
                Detach: partial(self._detach, node),
            }
        return {
            Persist: partial(self._journals.persist, node),
            Trace: self._trace,
            TraceColumns: _reject_columns,
            TraceStatement: self._trace_statement,
            TraceDecision: self._trace_decision,
            Notify: self._notify,
            Reject: partial(self._reject, node),
            OpenLink: partial(self._open_link, node),
            CloseLink: partial(self._close_link, node),
            Restart: partial(self._restart, node),
            MigrationEnded: self._migration_ended,
            ModuleAnswer: self._module_answer,
            OverlayChanged: partial(self._overlay_changed, node),
        }

    def _deliver(self, effect: Deliver) -> None:
        self._on_delivery(effect.parts)

    def _rejected(self, node: Node, effect: Rejection) -> None:
        self._outcomes.rejections.append((node.id, effect))

    def _attach(self, node: Node, effect: Attach) -> None:
        if node.alive:
            self._table.attach(node.id, effect.peer)

    def _detach(self, node: Node, effect: Detach) -> None:
        if node.alive:
            self._table.detach(node.id, effect.peer)

    def _migration_ended(self, effect: MigrationEnded) -> None:
        self._outcomes.migrations[effect.token] = effect.error

    def _overlay_changed(self, node: Node, effect: OverlayChanged) -> None:
        self._outcomes.overlays.append((node.id, effect.state))

    def _module_answer(self, effect: ModuleAnswer) -> None:
        self._outcomes.answers.setdefault(effect.token, []).append(effect)

    def _trace(self, effect: Trace) -> None:
        self._outcomes.records.append(effect.record)

    def _trace_statement(self, effect: TraceStatement) -> None:
        self._outcomes.statements.append(effect.statement)

    def _trace_decision(self, effect: TraceDecision) -> None:
        self._outcomes.decisions.append(effect.decision)

    def _notify(self, effect: Notify) -> None:
        self._outcomes.refusals.append(Reject(effect.peer, effect.code, effect.text))

    def _open_link(self, node: Node, effect: OpenLink) -> None:
        self._host.open_link((node.id, effect.peer), effect.kind)

    def _close_link(self, node: Node, effect: CloseLink) -> None:
        self._host.close_link((node.id, effect.peer))

    def _restart(self, node: Node, effect: Restart) -> None:
        self._outcomes.restarts.append((node.id, effect.incarnation))
        self._supervisor.restart_above(node, effect.incarnation)

    def _reject(self, node: Node, effect: Reject) -> None:
        """Close the connection. A neighbour connects again; a client does not, and its session expires."""
        self._outcomes.refusals.append(effect)
        if effect.peer not in self._table.clients:
            self._table.cut_link((node.id, effect.peer), _RECONNECT_S)
            return
        self._table.remove_client(effect.peer)
        if not effect.forget:  # which the core has forgotten already
            self._table.on_disconnect(effect.peer, node.id)


def _reject_columns(effect: TraceColumns) -> None:
    raise TypeError(f"the simulator's batches are objects, got {type(effect).__name__}")
