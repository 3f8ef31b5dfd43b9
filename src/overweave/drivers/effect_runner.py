"""The effect runner: the one place where the effects of a core are carried out, for live brokers, clients and the simulator.

Effects are carried out in the order given. A driver supplies connections, a scheduler, and one performer for each further kind
of effect that its core may ask for; a missing or superfluous one is an error at the start, not at run time.
`overweave.testing.drivers` has the checks that all drivers mean the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from overweave.contract.effects import (
    Attach,
    CloseLink,
    Deliver,
    Detach,
    Effect,
    MigrationEnded,
    ModuleAnswer,
    Notify,
    OpenLink,
    OverlayChanged,
    Persist,
    Reject,
    Rejection,
    Restart,
    SendFrame,
    SetTimer,
    Trace,
    TraceColumns,
    TraceDecision,
    TraceStatement,
)
from overweave.contract.frames import Frame

#: What the cores of brokers and of clients ask for, besides frames and timers.
BROKER_EFFECTS = frozenset(
    (
        Persist, Trace, TraceColumns, TraceStatement, TraceDecision, Notify, OpenLink, CloseLink, Reject, Restart,
        MigrationEnded, OverlayChanged, ModuleAnswer,
    )
)  # fmt: skip
CLIENT_EFFECTS = frozenset((Deliver, Rejection, Attach, Detach))


class Outlet(Protocol):
    """A connection to a peer."""

    def send(self, frame: Frame) -> None:
        """Send a frame."""


class Connections(Protocol):
    """The open connections by peer, which the driver changes as they come and go."""

    def get(self, peer: str, /) -> Outlet | None:
        """The connection to a peer, if there is one."""


class Alarm(Protocol):
    """A timer that is set."""

    def cancel(self) -> None:
        """Do not fire."""


#: Calls something with a name at a time of the core's clock.
Schedule = Callable[[float, Callable[[str], None], str], Alarm]
Performers = Mapping[type, Callable[[Any], None]]


class EffectRunner:
    """Carries out the effects of one core; ``fire`` tells the core that a timer is due."""

    __slots__ = ("_connections", "_fire", "_perform", "_running", "_schedule", "_timers")

    def __init__(
        self,
        kinds: Iterable[type],
        connections: Connections,
        schedule: Schedule,
        fire: Callable[[str], None],
        performers: Performers,
    ) -> None:
        if set(performers) != set(kinds):
            odd = ", ".join(sorted(kind.__name__ for kind in set(performers) ^ set(kinds)))
            raise TypeError(f"expected one performer for each kind of effect, differing in {odd}")
        self._connections = connections
        self._schedule, self._fire = schedule, fire
        self._perform = dict(performers)
        self._timers: dict[str, Alarm] = {}
        #: The effects that are being carried out, if any are.
        self._running: list[Effect] | None = None

    def run(self, effects: list[Effect]) -> None:
        """Carry out effects, in order; a frame to a peer without a connection is dropped.

        A performer may cause further effects, as a connection does that it closes. These come after the present ones.
        """
        if self._running is not None:
            self._running += effects
            return
        self._running = effects
        connections = self._connections
        try:
            for effect in effects:
                if isinstance(effect, SendFrame):
                    connection = connections.get(effect.peer)
                    if connection is not None:
                        connection.send(effect.frame)
                elif isinstance(effect, SetTimer):
                    self._set_timer(effect)
                else:
                    self._perform[type(effect)](effect)
        finally:
            self._running = None

    def cancel_timers(self) -> None:
        """Let no timer fire any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _set_timer(self, effect: SetTimer) -> None:
        before = self._timers.get(effect.name)
        if before is not None:
            before.cancel()
        self._timers[effect.name] = self._schedule(effect.at_s, self._on_timer, effect.name)

    def _on_timer(self, name: str) -> None:
        del self._timers[name]
        self._fire(name)
