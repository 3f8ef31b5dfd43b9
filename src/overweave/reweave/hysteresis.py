"""When continuous planning acts: a saving above a threshold, a cool-down, a budget of moves, and a circuit breaker."""

from collections.abc import Iterable

import msgspec

from overweave.reweave.baseline import Baseline
from overweave.reweave.deliveries import Deliveries

#: The interval of the budget.
BUDGET_S = 3600.0
#: Delays and unsettled publications that never open the breaker.
_DELAY_S_MIN, _UNSETTLED_MIN = 0.25, 1_000
#: How fast calm values become usual, and others: permanently grown traffic does not keep the breaker open.
_CALM_S, _SLOW_S = 60.0, 1800.0


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of continuous planning."""

    #: The share of brokers or messages that a plan has to save.
    saving_min: float = 0.1
    #: The time after a change during which nothing is changed.
    cooldown_s: float = 120.0
    #: The clients that may move in any hour.
    moves_per_hour_max: int = 1000
    #: How many times their usual value delays and unsettled publications may be, and how long the breaker stays open.
    delay_factor_max: float = 3.0
    breaker_s: float = 300.0


class Health(msgspec.Struct, frozen=True):
    """The condition of the network now."""

    deliveries: Deliveries = Deliveries()
    #: The brokers that do not answer.
    missing: tuple[str, ...] = ()


class Applied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that was applied, completely or not: when it ended, and the clients that moved."""

    at_s: float
    moves: int


class Proposal(msgspec.Struct, frozen=True):
    """A plan that could be applied: the share of brokers or messages that it saves, and the clients that it moves."""

    saving: float
    moves: int


class Verdict(msgspec.Struct, frozen=True):
    """Whether to act, and why."""

    is_approved: bool
    reason: str


class Hysteresis:
    """Decides on proposals; times are seconds of one clock. ``applied`` are the changes of an earlier run.

    >>> hysteresis = Hysteresis(Limits(saving_min=0.1))
    >>> hysteresis.decide(Proposal(0.05, 10), 0.0).reason
    'it would save 5.0%, at least 10.0% is needed'
    """

    def __init__(self, limits: Limits, applied: Iterable[Applied] = ()) -> None:
        self._limits = limits
        #: The changes of the last hour, and the last one.
        self.applied: tuple[Applied, ...] = tuple(applied)
        self._open_until_s = float("-inf")
        self._open_reason = ""
        factor = limits.delay_factor_max
        self._delay_s = Baseline(factor=factor, harmless=_DELAY_S_MIN, calm_s=_CALM_S, slow_s=_SLOW_S)
        self._unsettled = Baseline(factor=factor, harmless=_UNSETTLED_MIN, calm_s=_CALM_S, slow_s=_SLOW_S)
        self._observed_s: float | None = None

    def observe(self, health: Health, now_s: float) -> None:
        """Take the condition of the network into account."""
        elapsed_s = 0.0 if self._observed_s is None else now_s - self._observed_s
        self._observed_s = now_s
        delay_s, unsettled = health.deliveries.delay_s, health.deliveries.unsettled
        usual_s, usual = self._delay_s.value, self._unsettled.value
        if delay_s is not None and self._delay_s.add(delay_s, elapsed_s):
            self.trip(f"deliveries take {delay_s:.3g} s instead of {usual_s:.3g} s", now_s)
        if self._unsettled.add(unsettled, elapsed_s):
            self.trip(f"{unsettled:,} publications are unsettled instead of {usual:,.0f}", now_s)
        if health.missing:
            self.trip(f"no answer from {', '.join(health.missing)}", now_s)

    def trip(self, reason: str, now_s: float) -> None:
        """Open the breaker."""
        self._open_until_s, self._open_reason = now_s + self._limits.breaker_s, reason

    def open_reason(self, now_s: float) -> str | None:
        """Why the breaker is open; None if it is closed."""
        return f"the circuit breaker is open: {self._open_reason}" if now_s < self._open_until_s else None

    def decide(self, proposal: Proposal, now_s: float) -> Verdict:
        """Whether to apply a plan now."""
        limits = self._limits
        if reason := self.open_reason(now_s):
            return Verdict(False, reason)
        if self.applied and (left_s := self.applied[-1].at_s + limits.cooldown_s - now_s) > 0:
            return Verdict(False, f"{left_s:.0f} s of the cool-down are left")
        if proposal.saving < limits.saving_min:
            return Verdict(False, f"it would save {proposal.saving:.1%}, at least {limits.saving_min:.1%} is needed")
        left = limits.moves_per_hour_max - self.moves(now_s)
        if proposal.moves > left:
            return Verdict(False, f"{proposal.moves:,} moves exceed the {left:,} that are left of this hour's budget")
        return Verdict(True, f"it saves {proposal.saving:.1%} for {proposal.moves:,} moves")

    def begin(self, moves: int, now_s: float) -> None:
        """Count a change that begins now with all its moves: it may be killed."""
        recent = (each for each in self.applied if each.at_s > now_s - BUDGET_S)
        self.applied = (*recent, Applied(now_s, moves))

    def end(self, moves: int, now_s: float) -> None:
        """Count the moves that the change really had."""
        self.applied = (*self.applied[:-1], Applied(now_s, moves))

    def moves(self, now_s: float) -> int:
        """The clients that moved within the last hour."""
        return sum(each.moves for each in self.applied if each.at_s > now_s - BUDGET_S)
