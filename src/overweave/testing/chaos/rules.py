"""The stated rules by which something acknowledged may be lost, judged by the faults that really happened."""

import msgspec

from overweave.routing import PROTOCOLS
from overweave.testing.chaos.configurations import Configuration
from overweave.testing.chaos.history import GAPS, Interest, Sent
from overweave.testing.paths import Ends, cluster_of_links, reachable

TOLD = "subscriber told {}"
EXPIRED = "subscriber away longer than its session"
KEPT = "buffered for a stalled subscriber by a broker that crashed"
LEFT = "buffered for a stalled subscriber that unsubscribed"
UNREACHABLE = "no path to the subscriber's broker"
#: To notice a change and tell everybody, besides the time that failure detectors wait.
_NOTICE_S = 2.0


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as it was injected; times on the clock that all processes share. A broker is back when it is ready."""

    kind: str
    target: str
    from_s: float
    until_s: float


class Rules:
    """The rules of one run."""

    def __init__(
        self,
        configuration: Configuration,
        protocol: str,
        injected: list[InjectedFault],
        *,
        link_timeout_s: float,
        session_s: float,
    ) -> None:
        overlay = configuration.overlay
        self._stall_s, self._link_timeout_s, self._session_s = configuration.stall_timeout_s, link_timeout_s, session_s
        finds_paths = PROTOCOLS[protocol].reroutes
        self._clusters = cluster_of_links(overlay, by_cluster=protocol == "merc") if finds_paths else None
        self._brokers = frozenset(overlay.ids)
        self._injected = injected

    def __call__(self, sent: Sent, interest: Interest) -> str | None:
        """The rule that excludes a loss, or None."""
        if interest.reason in GAPS:
            return TOLD.format(interest.reason)
        away = [each for each in self._injected if self._is_away(each, interest)]
        if any(each.until_s - each.from_s > self._session_s for each in away):
            return EXPIRED
        if self._stall_s is not None and self._kept_and_crashed(sent, interest, away):
            return KEPT
        if self._stall_s is not None and any(_leaves_meanwhile(sent, interest, each) for each in away):
            return LEFT
        return UNREACHABLE if self._clusters is not None and not self._could_reach(sent, interest) else None

    def _is_away(self, injected: InjectedFault, interest: Interest) -> bool:
        """Whether a fault parts a subscriber from its broker."""
        return injected.target in (interest.process, f"{interest.process}>{interest.broker}")

    def _kept_and_crashed(self, sent: Sent, interest: Interest, away: list[InjectedFault]) -> bool:
        crashes_s = [each.from_s for each in self._injected if each.kind == "kill" and each.target == interest.broker]
        return any(
            each.from_s <= crash_s and each.until_s + 1.0 >= sent.at_s
            for crash_s in crashes_s
            if crash_s >= sent.at_s
            for each in away
        )

    def _could_reach(self, sent: Sent, interest: Interest) -> bool:
        """Whether a path stood from a moment before until it was acknowledged. The publisher's broker itself is no excuse."""
        assert self._clusters is not None
        assert sent.acknowledged_s is not None
        margin_s = _NOTICE_S + self._link_timeout_s
        from_s, until_s = sent.at_s - margin_s, sent.acknowledged_s
        down: set[str] = set()
        cut: set[Ends] = set()
        for each in self._injected:
            if each.until_s - each.from_s > 0.6 * self._link_timeout_s and each.from_s <= until_s and each.until_s >= from_s:
                if each.target in self._brokers:
                    down.add(each.target)
                elif tuple(each.target.split(">")) in self._clusters:
                    one, other = each.target.split(">")
                    cut |= {(one, other), (other, one)}
        links = frozenset(ends for ends in self._clusters if ends not in cut)
        living = (self._brokers - down) | {sent.broker}
        return interest.broker in reachable(sent.broker, links, living, self._clusters)


def _leaves_meanwhile(sent: Sent, interest: Interest, away: InjectedFault) -> bool:
    """Whether a subscriber ends its subscription while it is away, or at most so long after that it has not caught up."""
    ends_s = interest.ends_s
    return ends_s is not None and away.from_s <= ends_s <= away.until_s + 1.0 and sent.at_s >= away.from_s - 1.0
