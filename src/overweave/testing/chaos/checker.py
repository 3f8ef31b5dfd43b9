"""The checker of a chaos run: compares the history with an oracle that looks at every publication and subscription.

Due is a publication that was acknowledged to its publisher, to every subscriber whose ``subscribe`` had returned before it was
published and who did not begin to leave before it was acknowledged. What is due and did not arrive is lost, unless a stated rule
(`overweave.testing.chaos.rules`) excludes it.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.testing.chaos.history import Got, History, Interest, Sent

#: The rule that excludes a loss, or None.
Rule = Callable[[Sent, Interest], str | None]
#: The violations of each kind that are described.
_EXAMPLES = 20


class Verdict(msgspec.Struct):
    """Counts of a run, and examples of what is wrong with it."""

    publications: int = 0
    acknowledged: int = 0
    #: Deliveries that are due, among them those excluded.
    expected: int = 0
    lost: int = 0
    excluded: dict[str, int] = msgspec.field(default_factory=dict)
    duplicated: int = 0
    #: Delivered to whoever does not want it, changed, or never published.
    wrong: int = 0
    #: Overtaken by a later one of the same publisher; no failure where paths change.
    order_violations: int = 0
    #: Sent and never acknowledged, by publishers that had the time to wait.
    unsettled: int = 0
    examples: list[str] = msgspec.field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything is wrong that no rule excludes."""
        return bool(self.lost or self.duplicated or self.wrong or self.unsettled)


def check(history: History, rule: Rule = lambda _, __: None) -> Verdict:
    """Judge a history."""
    verdict = Verdict(publications=len(history.sent))
    contents = {number: _content(sent.number, sent.kind, sent.x) for number, sent in history.sent.items()}
    got = _received(history, contents, verdict)
    excluded: Counter[str] = Counter()
    for sent in history.sent.values():
        if sent.acknowledged_s is None:
            verdict.unsettled += 1
            _example(verdict, f"never acknowledged: {_about(sent)}")
            continue
        verdict.acknowledged += 1
        for interest in history.interests.values():
            if not is_due(sent, interest) or not matches(interest.filter, contents[sent.number]):
                continue
            verdict.expected += 1
            if (sent.number, interest.id) in got:
                continue
            why = rule(sent, interest)
            if why is not None:
                excluded[why] += 1
            else:
                verdict.lost += 1
                _example(verdict, f"lost: {_about(sent)}, for {interest.id} at {interest.broker}, in force {interest.in_force_s}")
    verdict.excluded = dict(sorted(excluded.items()))
    return verdict


def is_due(sent: Sent, interest: Interest) -> bool:
    """Whether an acknowledged publication must reach a subscription if it matches."""
    assert sent.acknowledged_s is not None
    if interest.in_force_s is None or interest.in_force_s > sent.at_s:
        return False
    return interest.ends_s is None or interest.ends_s >= sent.acknowledged_s


def _received(history: History, contents: dict[int, Publication], verdict: Verdict) -> set[tuple[int, str]]:
    """Who has got what; counts what came twice, is wrong, or out of order."""
    seen: set[tuple[int, str]] = set()
    last: dict[tuple[str, str], int] = {}
    for got in history.got:
        sent, interest = history.sent.get(got.number), history.interests.get(got.subscription)
        if sent is None or (got.kind, got.x) != (sent.kind, sent.x):
            verdict.wrong += 1
            _example(verdict, f"never published: {_what(got)}")
        elif interest is None or not matches(interest.filter, contents[got.number]):
            verdict.wrong += 1
            _example(verdict, f"not wanted: {_what(got)}")
        elif (got.number, got.subscription) in seen:
            verdict.duplicated += 1
            _example(verdict, f"twice: {_what(got)}")
        else:
            seen.add((got.number, got.subscription))
            pair = sent.publisher, got.subscription
            verdict.order_violations += got.number < last.get(pair, -1)
            last[pair] = max(got.number, last.get(pair, -1))
    return seen


def _content(number: int, kind: str, x: int) -> Publication:
    return Publication({"class": kind, "x": x, "n": number})


def _example(verdict: Verdict, text: str) -> None:
    if sum(each.partition(":")[0] == text.partition(":")[0] for each in verdict.examples) < _EXAMPLES:
        verdict.examples.append(text)


def _about(sent: Sent) -> str:
    return f"{sent.number} of {sent.publisher} at {sent.broker}, sent {sent.at_s:.3f}, acknowledged {sent.acknowledged_s}"


def _what(got: Got) -> str:
    return f"{got.number} ({got.kind}, {got.x}) at {got.subscription}, {got.at_s:.3f}"
