"""Delayed acknowledgements: when the sessions of a core acknowledge."""

from typing import TYPE_CHECKING

from overweave.contract.effects import Effect

if TYPE_CHECKING:
    from overweave.broker.session.inbound import Inbound
    from overweave.broker.session.session import Session


class AckScheduler:
    """The sessions of one core with an acknowledgement due: at the end of the step, very soon (control), or after a delay."""

    __slots__ = ("control", "delayed", "now", "selective")

    def __init__(self, selective: bool = False) -> None:
        self.now: dict[Inbound, None] = {}
        #: Settled control: its sender waits for the acknowledgement, but several messages may share one.
        self.control: dict[Inbound, None] = {}
        self.delayed: dict[Inbound, None] = {}
        #: Whether acknowledgements have ranges. On overlays with cycles, brokers would otherwise deadlock: each would wait for
        #: rows behind others that wait.
        self.selective = selective

    def flush_now(self, effects: list[Effect]) -> None:
        """Send the acknowledgements that are due now."""
        for inbound in self.now:
            self._flush_one(inbound, effects)
        self.now.clear()

    def flush_control(self, effects: list[Effect]) -> None:
        """Send the acknowledgements of control."""
        for inbound in self.control:
            self._flush_one(inbound, effects)
        self.control.clear()

    def flush_delayed(self, effects: list[Effect]) -> None:
        """Send all delayed acknowledgements, except those that other frames have carried."""
        due, self.delayed = self.delayed, {}
        for inbound in due:
            if inbound.has_unacknowledged():
                inbound.acknowledge(effects, self.selective)

    def forget(self, session: "Session") -> None:
        """Drop the acknowledgements of a closed session."""
        for acks_due in (self.now, self.control, self.delayed):
            acks_due.pop(session.inbound, None)

    def _flush_one(self, inbound: "Inbound", effects: list[Effect]) -> None:
        self.delayed.pop(inbound, None)
        inbound.acknowledge(effects, self.selective)

    def validate(self, inbounds: "set[Inbound]") -> None:
        """Check the invariants: only present sessions acknowledge."""
        assert all(several.keys() <= inbounds for several in (self.now, self.control, self.delayed))
