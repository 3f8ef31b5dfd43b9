"""The timers of a broker core: which are needed after a step, and what they do."""

from collections.abc import Callable

from overweave.broker.guests import GUESTS
from overweave.broker.leaving import LEAVE
from overweave.broker.lifecycle import PeerLifecycle
from overweave.broker.migration import MIGRATIONS
from overweave.broker.orphans import ORPHANS, ORPHANS_S
from overweave.broker.overlay_control import OUTSIDERS
from overweave.broker.parts import BrokerParts
from overweave.broker.retirement import RETIRE
from overweave.broker.slow_consumers import CHECK_SLOW, CHECK_SLOW_FAST
from overweave.contract.effects import Reject
from overweave.contract.stimuli import PeerLeft, TimerFired

ACKNOWLEDGE, ACKNOWLEDGE_CONTROL, RESEND, HEARTBEAT = "acknowledge", "acknowledge-control", "resend", "pulse"
#: A timer that is this late shows that the broker was paused or busy: it could not read acknowledgements either.
_LATE_S = 0.5


class TimerDispatch:
    """The timers of one broker by name."""

    def __init__(self, parts: BrokerParts, lifecycle: PeerLifecycle) -> None:
        self._parts, self._lifecycle = parts, lifecycle
        context = parts.context
        self._step, self._timers, self._acks = context.step, context.timers, context.peers.acks
        self._acknowledge_delay_s = context.config.session.acknowledge_delay_s
        periods_s = (RESEND, context.config.session.retransmit_s), (HEARTBEAT, context.detector.tick_s)
        self._periods_s = [(name, period_s) for name, period_s in periods_s if period_s is not None]
        self._control, self._retirement, self._orphans = parts.control, parts.retirement, parts.orphans
        self._slow_consumers, self._overlay = parts.consumers, parts.overlay
        self._handlers: dict[str, Callable[[], None]] = {
            ACKNOWLEDGE_CONTROL: self._acknowledge_control,
            RESEND: self._retransmit,
            ORPHANS: parts.orphans.retry,
            HEARTBEAT: parts.recovery.on_heartbeat,
            RETIRE: parts.retirement.on_timer,
            LEAVE: parts.clients.withdraw_slice,
            MIGRATIONS: parts.migration.on_timer,
            OUTSIDERS: parts.overlay.on_timer,
            GUESTS: parts.overlay.on_timer,
        }

    # Methods, not closures: a copy of a broker must not act on the first one.
    def _acknowledge_control(self) -> None:
        self._acks.flush_control(self._step.effects)

    def on_timer(self, stimulus: TimerFired) -> None:
        """A timer has fired: of the core, the protocol, or a module."""
        name = stimulus.name
        late_s = self._timers.fired(name)
        if name == ACKNOWLEDGE:  # the most frequent one
            self._acks.flush_delayed(self._step.effects)
            return
        handler = self._handlers.get(name)
        if handler is not None:
            handler()
        elif name in (CHECK_SLOW, CHECK_SLOW_FAST):
            self._check_slow(name, late_s)
        elif not self._control.on_timer(name):
            self._parts.context.modules.on_timer(name)

    def end_step(self) -> None:
        """Retire and close links, send due acknowledgements, and set the timers that are needed."""
        acks, timers = self._acks, self._timers
        if self._control.retired:
            self._control.retired, retired = [], self._control.retired
            for neighbour in retired:
                self._retirement.retire(neighbour)
        if self._overlay.closing_epochs:
            self._overlay.close_quiet_epochs()
        if self._retirement.links:
            self._retirement.check()
        if acks.now:
            acks.flush_now(self._step.effects)
        if self._orphans.pending:
            timers.set(ORPHANS, ORPHANS_S)
        if acks.control:
            timers.set(ACKNOWLEDGE_CONTROL, 0.0)
        if acks.delayed and ACKNOWLEDGE not in timers.due_s:
            timers.set(ACKNOWLEDGE, self._acknowledge_delay_s)
        for name, period_s in self._periods_s:
            if name not in timers.due_s:
                timers.set(name, period_s)
        if self._slow_consumers.needed:
            for name, delay_s in self._slow_consumers.timers():
                timers.set(name, delay_s)

    def _retransmit(self) -> None:
        for session in self._parts.context.peers.sessions.values():
            session.retransmit(self._step.effects)

    def _check_slow(self, timer: str, late_s: float) -> None:
        """Disconnect slow consumers."""
        if late_s > _LATE_S:
            self._slow_consumers.exclude_pause(late_s)
        for session, why in self._slow_consumers.check(timer, self._step.now_s):
            rows = session.outbound.unsettled_rows()
            self._step.effects.append(Reject(session.peer, "slow-consumer", why, rows, forget=True))
            self._lifecycle.on_left(PeerLeft(session.peer))

    def validate(self) -> None:
        """Check the invariants: at the end of a step, all that is due later has a timer."""
        acks, due_s = self._acks, self._timers.due_s
        assert not acks.now
        assert not acks.control or ACKNOWLEDGE_CONTROL in due_s
        assert not acks.delayed or ACKNOWLEDGE in due_s
        assert not self._orphans.pending or ORPHANS in due_s
        assert all(name in due_s for name, _ in self._periods_s)
