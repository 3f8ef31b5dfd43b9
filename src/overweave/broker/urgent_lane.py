"""The urgent lane: control publications of modules that do not wait behind data.

They are routed hop by hop like all publications, but outside the numbered streams (`UrgentFrame`). So they may be lost: no peer
acknowledges, retransmits or defers them. Their dedup windows are apart too, so that an urgent publication cannot push an
ordered one out of its window. They reach modules only, not clients.
"""

from overweave.batches.base import Batch
from overweave.broker.context import BrokerContext
from overweave.broker.session import Session
from overweave.contract.effects import Reject
from overweave.contract.frames import UrgentFrame, UrgentMessageFrame
from overweave.errors import InvalidInput, WireError
from overweave.language.headers import Priority
from overweave.routing.ingress import Admitted, fresh_rows


class UrgentLane:
    """The urgent publications of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._step, self._counters, self._modules = context.step, context.counters, context.modules
        self._routing = context.engine.routing
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._ingress = context.engine.ingress(2 * max(context.config.session.window, context.config.publisher_window))

    def on_frame(self, frame: UrgentFrame, peer: str, session: Session) -> None:
        """Route an urgent frame of a neighbour; a stale one is dropped, one of a client is rejected."""
        if not self._is_of_neighbour(frame, peer, session):
            return
        try:
            admitted = self._ingress.admit(_checked(frame.batch), peer)
        except InvalidInput as error:
            self._step.effects.append(Reject(peer, "bad-frame", str(error)))
            return
        self._counters.control_in += frame.batch.count
        self._counters.traffic.count_batch(frame.batch, is_sent=False)
        if isinstance(admitted, Admitted) and admitted.transit is not None:
            self._route(admitted.transit, peer, False)
        for batch, is_local in fresh_rows(admitted):
            self._route(batch, peer, is_local)

    def on_message(self, frame: UrgentMessageFrame, peer: str, session: Session) -> None:
        """Deliver an urgent message of a neighbour's module; a stale one is dropped, one of a client is rejected."""
        if self._is_of_neighbour(frame, peer, session):
            self._modules.on_message(peer, frame.message)

    def publish(self, batch: Batch) -> None:
        """Route an urgent publication of a module of this broker."""
        for some, is_local in fresh_rows(self._ingress.admit(batch, None)):
            self._route(some, None, is_local)

    def validate(self) -> None:
        """Check the invariants."""
        self._ingress.validate()

    def _is_of_neighbour(self, frame: UrgentFrame | UrgentMessageFrame, peer: str, session: Session) -> bool:
        """Whether a frame belongs to the present session with a neighbour. A client that sends one is rejected."""
        if peer not in self._neighbours:
            self._step.effects.append(Reject(peer, "bad-frame", "expected no urgent frame of a client: they are for brokers"))
            return False
        return session.is_current(frame)

    def _route(self, batch: Batch, origin: str | None, is_local: bool) -> None:
        try:
            forwards = self._routing.route(batch.next_hop(), origin)
        except InvalidInput:
            return  # without an advertisement it has no path, and urgent publications are not deferred
        for to, some in forwards:
            if to is None:
                continue
            if to in self._neighbours:
                unexpired = some if some.ttl > 0 else some.unexpired()
                if unexpired is not None:
                    self._sessions[to].send_urgent(unexpired, self._step.effects)
                    self._counters.control_out += unexpired.count
                    self._counters.traffic.count_batch(unexpired, is_sent=True)
            elif is_local and to not in self._sessions:
                self._modules.deliver(to, some)


def _checked(batch: Batch) -> Batch:
    """A batch from another broker, if it is well formed and urgent."""
    batch.validate_layout()
    if batch.priority() is not Priority.URGENT:
        raise WireError(0, "urgent publications in an urgent frame")
    return batch
