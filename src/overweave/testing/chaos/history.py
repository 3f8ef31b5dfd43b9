"""The history of a chaos run: what clients did and got, each with its time on the clock that all processes share."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter


class Subscribing(msgspec.Struct, frozen=True, tag=True):
    """A subscriber begins to subscribe."""

    at_s: float
    subscription: str
    process: str
    broker: str
    filter: str


class SubscriptionReturned(msgspec.Struct, frozen=True, tag=True):
    """``subscribe`` has returned."""

    at_s: float
    subscription: str


class Unsubscribing(msgspec.Struct, frozen=True, tag=True):
    """A subscriber begins to leave, or was told why it has to (``reason``)."""

    at_s: float
    subscription: str
    reason: str | None = None


class Publishing(msgspec.Struct, frozen=True, tag=True):
    """A publisher begins to publish; the numbers are unique in a run."""

    at_s: float
    publisher: str
    broker: str
    number: int
    kind: str
    x: int


class Flushed(msgspec.Struct, frozen=True, tag=True):
    """``flush`` has returned: everything up to a number of this publisher is acknowledged."""

    at_s: float
    publisher: str
    number: int


class Got(msgspec.Struct, frozen=True, tag=True):
    """A subscriber got something."""

    at_s: float
    subscription: str
    number: int
    kind: str
    x: int


#: Reasons that tell a subscriber of a gap, as codes of refusals or names of errors. Any other error of a client is a failure.
GAPS = frozenset(("slow-consumer", "session-lost", "SessionLost"))


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """A client met an error that is not of `GAPS`."""

    at_s: float
    client: str
    text: str


Event = Subscribing | SubscriptionReturned | Unsubscribing | Publishing | Flushed | Got | Trouble


class Sent(msgspec.Struct, kw_only=True):
    """A publication."""

    number: int
    publisher: str
    broker: str
    kind: str
    x: int
    at_s: float
    acknowledged_s: float | None = None


class Interest(msgspec.Struct, kw_only=True):
    """A subscription."""

    id: str
    process: str
    broker: str
    filter: Filter
    asked_s: float
    in_force_s: float | None = None
    ends_s: float | None = None
    #: Why it ended, if it was told.
    reason: str | None = None


class History(msgspec.Struct):
    """All that clients did and got."""

    sent: dict[int, Sent] = msgspec.field(default_factory=dict)
    interests: dict[str, Interest] = msgspec.field(default_factory=dict)
    got: list[Got] = msgspec.field(default_factory=list)
    troubles: list[Trouble] = msgspec.field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Take in what one process has written down."""
        open_numbers: dict[str, list[int]] = {}
        for event in events:
            match event:
                case Publishing():
                    self.sent[event.number] = Sent(
                        number=event.number,
                        publisher=event.publisher,
                        broker=event.broker,
                        kind=event.kind,
                        x=event.x,
                        at_s=event.at_s,
                    )
                    open_numbers.setdefault(event.publisher, []).append(event.number)
                case Flushed():
                    waiting = open_numbers.get(event.publisher, [])
                    for number in waiting:
                        if number <= event.number:
                            self.sent[number].acknowledged_s = event.at_s
                    open_numbers[event.publisher] = [number for number in waiting if number > event.number]
                case Got():
                    self.got.append(event)
                case Subscribing():
                    self.interests[event.subscription] = Interest(
                        id=event.subscription, process=event.process, broker=event.broker, filter=parse_filter(event.filter),
                        asked_s=event.at_s,
                    )  # fmt: skip
                case SubscriptionReturned():
                    self.interests[event.subscription].in_force_s = event.at_s
                case Unsubscribing():
                    interest = self.interests[event.subscription]
                    if interest.ends_s is None:
                        interest.ends_s, interest.reason = event.at_s, event.reason
                case Trouble():
                    self.troubles.append(event)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


class Writer:
    """Writes events to a file, a line each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def write(self, event: Event) -> None:
        """Write down one event."""
        self._file.write(_ENCODER.encode(event) + b"\n")

    def flush(self) -> None:
        """Leave nothing in buffers."""
        self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()


def read_history(paths: Iterable[Path]) -> History:
    """The history from the files of all processes."""
    history = History()
    for path in paths:
        with path.open("rb") as lines:
            history.add(_DECODER.decode(line) for line in lines)
    return history
