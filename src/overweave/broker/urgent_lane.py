"""The urgent lane: control publications of modules that do not wait behind data.

They are routed hop by hop like all publications, but outside the numbered streams (`UrgentFrame`). So they may be lost: no peer
acknowledges, retransmits or defers them. Their dedup windows are apart too, so that an urgent publication cannot push an
ordered one out of its window. They reach modules only, not clients.
"""

from collections.abc import Hashable, Iterator

import numpy as np

from overweave.batches.base import Batch
from overweave.broker.dedup import DedupWindow
from overweave.broker.module_host import ModuleHost
from overweave.broker.session import Session
from overweave.broker.step import StepContext
from overweave.contract.effects import Reject
from overweave.contract.frames import UrgentFrame
from overweave.errors import InvalidInput, WireError
from overweave.language.headers import Priority
from overweave.routing.base import Routing


class UrgentLane:
    """The urgent publications of one broker; sessions and neighbours are the broker's own."""

    def __init__(
        self,
        step: StepContext,
        routing: Routing,
        sessions: dict[str, Session],
        neighbours: dict[str, None],
        modules: ModuleHost,
        window: int,
    ) -> None:
        self._step, self._routing, self._modules = step, routing, modules
        self._sessions, self._neighbours = sessions, neighbours
        self._ingress = _UrgentIngress(routing, window)
        #: Rows received from neighbours and sent to them.
        self.rows_in = self.rows_out = 0

    def on_frame(self, frame: UrgentFrame, peer: str, session: Session) -> None:
        """Route an urgent frame of a neighbour; a stale one, or one of a client, is dropped."""
        if peer not in self._neighbours or not session.is_current(frame):
            return
        try:
            parts = list(self._ingress.admit(_checked(frame.batch), peer))
        except InvalidInput as error:
            self._step.effects.append(Reject(peer, "bad-frame", str(error)))
            return
        self.rows_in += frame.batch.count
        for batch, is_local in parts:
            self._route(batch, peer, is_local)

    def publish(self, batch: Batch) -> None:
        """Route an urgent publication of a module of this broker."""
        for some, is_local in self._ingress.admit(batch, None):
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
                    self.rows_out += unexpired.count
            elif is_local and to not in self._sessions:
                self._modules.receive(to, some)


class _UrgentIngress:
    """Deduplication of urgent publications, in the same scopes as ordered ones."""

    def __init__(self, routing: Routing, window: int) -> None:
        self._routing, self._window = routing, window
        self._seen = DedupWindow(window)
        self._seen_in: dict[Hashable, DedupWindow] = {}

    def admit(self, batch: Batch, origin: str | None) -> Iterator[tuple[Batch, bool]]:
        """The parts of a batch to route, each with whether it is new to local modules; rows are marked as seen."""
        here, transit = self._routing.arriving(batch, origin)
        if transit is not None:
            yield transit, False
        if here is None:
            return
        scopes = [self._scope(name) for name in self._routing.lanes(origin, batch.tag)]
        new = here.mark_seen(scopes[0] if scopes and origin is not None else self._seen)
        if new is not None and not len(new):
            return
        here = here if new is None else here.take(new)
        if origin is None or not scopes:
            for scope in scopes:
                here.mark_seen(scope)
            yield here, True
            return
        first = here.mark_seen(self._seen)
        first = np.arange(here.count) if first is None else first
        for rows, is_local in ((first, True), (np.setdiff1d(np.arange(here.count), first), False)):
            if len(rows):
                yield here.take(rows), is_local

    def _scope(self, name: Hashable) -> DedupWindow:
        scope = self._seen_in.get(name)
        if scope is None:
            scope = self._seen_in[name] = DedupWindow(self._window)
        return scope


def _checked(batch: Batch) -> Batch:
    """A batch from another broker, if it is well formed and urgent."""
    batch.validate_layout()
    if batch.priority() is not Priority.URGENT:
        raise WireError(0, "urgent publications in an urgent frame")
    return batch
