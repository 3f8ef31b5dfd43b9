"""When continuous planning acts: a saving above a threshold, a cool-down, a budget of moves, and a circuit breaker."""

from collections import deque

import msgspec

#: The interval of the budget.
BUDGET_S = 3600.0


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of continuous planning."""

    #: The share of brokers or messages that a plan has to save.
    saving_min: float = 0.1
    #: The time after a change during which nothing is changed.
    cooldown_s: float = 120.0
    #: The clients that may move in any hour.
    moves_per_hour_max: int = 1000
    #: How many times their usual value delays may be, and how long the breaker stays open.
    delay_factor_max: float = 3.0
    breaker_s: float = 300.0


class Health(msgspec.Struct, frozen=True):
    """The condition of the network now."""

    #: The 99th percentile of delays of deliveries; None: unknown.
    delay_s: float | None = None
    #: The brokers that do not answer.
    missing: tuple[str, ...] = ()


class Proposal(msgspec.Struct, frozen=True):
    """A plan that could be applied: the share of brokers or messages that it saves, and the clients that it moves."""

    saving: float
    moves: int


class Verdict(msgspec.Struct, frozen=True):
    """Whether to act, and why."""

    is_act: bool
    reason: str


class Hysteresis:
    """Decides on proposals; times are of any monotonic clock.

    >>> hysteresis = Hysteresis(Limits(saving_min=0.1))
    >>> hysteresis.decide(Proposal(0.05, 10), Health(), 0.0).reason
    'it would save 5.0%, at least 10.0% is needed'
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Changes with their moves, of the last hour.
        self._moves: deque[tuple[float, int]] = deque()
        self._changed_s: float | None = None
        self._open_until_s = float("-inf")
        self._open_reason = ""
        self._delay_s: float | None = None

    def observe(self, health: Health, now_s: float) -> str | None:
        """Take the condition of the network into account; the reason if the breaker is open."""
        if health.missing:
            self._open(f"no answer from {', '.join(health.missing)}", now_s)
        elif health.delay_s is not None:
            usual = self._delay_s
            if usual is not None and health.delay_s > self._limits.delay_factor_max * usual:
                self._open(f"deliveries take {health.delay_s:.3g} s instead of {usual:.3g} s", now_s)
            else:
                self._delay_s = health.delay_s if usual is None else 0.8 * usual + 0.2 * health.delay_s
        return self._open_reason if now_s < self._open_until_s else None

    def decide(self, proposal: Proposal, health: Health, now_s: float) -> Verdict:
        """Whether to apply a plan now."""
        limits = self._limits
        if reason := self.observe(health, now_s):
            return Verdict(False, f"the circuit breaker is open: {reason}")
        if self._changed_s is not None and (left_s := self._changed_s + limits.cooldown_s - now_s) > 0:
            return Verdict(False, f"{left_s:.0f} s of the cool-down are left")
        if proposal.saving < limits.saving_min:
            return Verdict(False, f"it would save {proposal.saving:.1%}, at least {limits.saving_min:.1%} is needed")
        left = limits.moves_per_hour_max - self.moves(now_s)
        if proposal.moves > left:
            return Verdict(False, f"{proposal.moves:,} moves exceed the {left:,} that are left of this hour's budget")
        return Verdict(True, f"it saves {proposal.saving:.1%} for {proposal.moves:,} moves")

    def acted(self, moves: int, now_s: float) -> None:
        """Count a change that ended now, completely or not."""
        self._changed_s = now_s
        self._moves.append((now_s, moves))

    def moves(self, now_s: float) -> int:
        """The clients that moved within the last hour."""
        while self._moves and self._moves[0][0] <= now_s - BUDGET_S:
            self._moves.popleft()
        return sum(count for _, count in self._moves)

    def _open(self, reason: str, now_s: float) -> None:
        self._open_until_s, self._open_reason = now_s + self._limits.breaker_s, reason
