"""The urgent lane: control publications of modules that do not wait behind data.

They are routed hop by hop like all publications, but outside the numbered streams (`UrgentFrame`). So they may be lost: no peer
acknowledges, retransmits or defers them. Their dedup windows are apart too, so that an urgent publication cannot push an
ordered one out of its window. They reach modules only, not clients.
"""

from overweave.batches.base import Batch
from overweave.broker.context import BrokerContext
from overweave.broker.session import Session
from overweave.contract.effects import Reject
from overweave.contract.frames import UrgentFrame
from overweave.errors import InvalidInput, WireError
from overweave.language.headers import Priority


class UrgentLane:
    """The urgent publications of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._step, self._counters, self._modules = context.step, context.counters, context.modules
        self._routing = context.engine.routing
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._ingress = context.engine.ingress(2 * max(context.config.session.window, context.config.publisher_window))

    def on_frame(self, frame: UrgentFrame, peer: str, session: Session) -> None:
        """Route an urgent frame of a neighbour; a stale one, or one of a client, is dropped."""
        if peer not in self._neighbours or not session.is_current(frame):
            return
        try:
            transit, fresh, _ = self._ingress.admit(_checked(frame.batch), peer)
        except InvalidInput as error:
            self._step.effects.append(Reject(peer, "bad-frame", str(error)))
            return
        self._counters.control_in += frame.batch.count
        if transit is not None:
            self._route(transit, peer, False)
        for batch, is_local in fresh:
            self._route(batch, peer, is_local)

    def publish(self, batch: Batch) -> None:
        """Route an urgent publication of a module of this broker."""
        for some, is_local in self._ingress.admit(batch, None).fresh:
            self._route(some, None, is_local)

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
            elif is_local and to not in self._sessions:
                self._modules.receive(to, some)


def _checked(batch: Batch) -> Batch:
    """A batch from another broker, if it is well formed and urgent."""
    batch.validate_layout()
    if batch.priority() is not Priority.URGENT:
        raise WireError(0, "urgent publications in an urgent frame")
    return batch
