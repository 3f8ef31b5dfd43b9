"""The oracle of a simulated run: what its history must look like, by plain comparison of filters with publications."""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches

#: What is checked, by name.
PROPERTIES = {
    "in-force": "what is published after the advertisement and the subscription have settled is delivered",
    "once": "nothing is delivered twice, to the wrong subscription, or changed",
    "convergence": "some time after the last fault, fresh publications reach all who want them, and nobody else",
    "settlement": "everything settles, and publications not before they are delivered",
    "state": "brokers validate, and hold nothing when all clients have left",
    "error": "no core raises an error",
}


class Failure(msgspec.Struct, frozen=True):
    """One property that did not hold."""

    property: str
    text: str


class Published(msgspec.Struct, kw_only=True):
    """A publication, and when its publisher saw it settled."""

    number: int
    client: str
    broker: str
    content: Publication
    at_s: float
    #: Published when everything should be well.
    fresh: bool = False
    settled_s: float | None = None


class Subscribed(msgspec.Struct, kw_only=True):
    """A subscription: when it was sent, settled, and withdrawn or left."""

    id: str
    broker: str
    filter: Filter
    said_s: float
    in_force_s: float | None = None
    ends_s: float | None = None


class Delivered(msgspec.Struct, frozen=True):
    """What a subscription got."""

    at_s: float
    subscription: str
    number: int
    content: Publication


class History(msgspec.Struct):
    """All that clients did and got."""

    published: dict[int, Published] = msgspec.field(default_factory=dict)
    subscribed: dict[str, Subscribed] = msgspec.field(default_factory=dict)
    delivered: list[Delivered] = msgspec.field(default_factory=list)


#: Whether a stated rule of the protocol excuses a loss, by the brokers of publisher and subscriber and the time.
Excused = Callable[[str, str, float], bool]


def check(history: History, excused: Excused) -> Iterator[Failure]:
    """All that is wrong with what was delivered."""
    got_s: dict[tuple[int, str], float] = {}
    for each in history.delivered:
        got_s.setdefault((each.number, each.subscription), each.at_s)
    yield from _once(history)
    for publication in history.published.values():
        for subscription in history.subscribed.values():
            if not matches(subscription.filter, publication.content):
                continue
            at_s = got_s.get((publication.number, subscription.id))
            if publication.fresh:
                if at_s is None and subscription.ends_s is None:
                    yield Failure("convergence", _lost(publication, subscription))
            elif _is_due(publication, subscription) and not excused(publication.broker, subscription.broker, publication.at_s):
                if at_s is None:
                    yield Failure("in-force", _lost(publication, subscription))
                elif publication.settled_s is not None and at_s > publication.settled_s:
                    yield Failure("settlement", f"settled before it was delivered: {_lost(publication, subscription)}")


def is_expected(publication: Published, subscription: Subscribed) -> bool:
    """Whether the oracle expects a delivery, for counts."""
    due = subscription.ends_s is None if publication.fresh else _is_due(publication, subscription)
    return due and matches(subscription.filter, publication.content)


def _is_due(publication: Published, subscription: Subscribed) -> bool:
    """In force before, and not withdrawn before the publisher saw it settled."""
    if subscription.in_force_s is None or subscription.in_force_s > publication.at_s:
        return False
    ends_s = subscription.ends_s
    return ends_s is None or (publication.settled_s is not None and publication.settled_s <= ends_s)


def _once(history: History) -> Iterator[Failure]:
    counts = Counter((each.number, each.subscription) for each in history.delivered)
    for (number, subscription), count in counts.items():
        if count > 1:
            yield Failure("once", f"{subscription} got publication {number} {count} times")
    for each in history.delivered:
        publication, wanted = history.published.get(each.number), history.subscribed.get(each.subscription)
        if publication is None or publication.content != each.content:
            yield Failure("once", f"{each.subscription} got {each.content}, which nobody published")
        elif wanted is None or not matches(wanted.filter, each.content):
            yield Failure("once", f"{each.subscription} got {each.content}, which it does not want")


def _lost(publication: Published, subscription: Subscribed) -> str:
    since = "never" if subscription.in_force_s is None else f"{subscription.in_force_s:.3f} s"
    return (
        f"publication {publication.number} of {publication.client} at {publication.broker}, sent at {publication.at_s:.3f} s,"
        f" for {subscription.id} at {subscription.broker}, in force since {since}"
    )
