"""Orders for a process of clients, and its responses: values that both sides read.

The publication at place i of a publisher has the slot i mod `SLOTS` and the number i div `SLOTS`. A subscription wants a range of
slots of one publisher.
"""

import msgspec

from overweave.testing.counts import Due, Verdict

SLOTS = 20


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """A subscription: the slots of a publisher from ``low`` to below ``high``.

    >>> Interest("p1", 2, 4).filter
    "[from,eq,'p1'],[slot,>=,2],[slot,<,4]"
    """

    publisher: str
    low: int
    high: int

    @property
    def filter(self) -> str:
        """The filter as text."""
        return f"[from,eq,'{self.publisher}'],[slot,>=,{self.low}],[slot,<,{self.high}]"


class Subscriber(msgspec.Struct, frozen=True):
    """A client that subscribes."""

    name: str
    url: str
    interests: tuple[Interest, ...]


class ClientOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The clients of one process."""

    #: Names and URLs.
    publishers: tuple[tuple[str, str], ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    #: Whether sessions may be lost, if subscriptions say so: clients that are away for long.
    may_lose: bool = False
    failover_s: float = 30.0
    seed: int = 0


class Window(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The time in which a subscription to a publisher is in force; ``until_s`` None: still."""

    publisher: str
    since_s: float
    until_s: float | None


class Places(msgspec.Struct, frozen=True, array_like=True):
    """The places of the publications of a window: what begins after it opened, and is acknowledged before it closes."""

    first: int
    end: int

    def due(self, slot: int) -> Due:
        """The numbers of a slot.

        >>> Places(3, 43).due(2), Places(3, 43).due(3)
        (Due(first=1, end=3), Due(first=0, end=2))
        """
        return Due(-((slot - self.first) // SLOTS), -((slot - self.end) // SLOTS))


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One of: publish at other rates, open windows, resolve or check them, let subscriptions come and go, measure, leave."""

    #: By publisher, in publications per second; 0: pause, and wait until everything is acknowledged.
    rates: dict[str, float] | None = None
    #: Whether the windows of all subscriptions are wanted.
    windows: bool = False
    resolve: tuple[Window, ...] = ()
    check: tuple[tuple[Window, Places], ...] | None = None
    #: The number of subscriptions that come and go from now on.
    churn: int | None = None
    #: Restart the measurements.
    measure: bool = False
    end: bool = False


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a command, with the measurements so far."""

    windows: tuple[Window, ...] = ()
    places: tuple[Places, ...] = ()
    verdict: Verdict | None = None
    #: The longest pause of each publisher, beyond its schedule.
    pauses_s: tuple[float, ...] = ()
    #: The 99th percentile and the maximum of delays from publishing to delivery, and their number.
    delay_p99_s: float = 0.0
    delay_max_s: float = 0.0
    deliveries: int = 0
    #: Subscriptions that came and went, and losses of sessions that subscriptions named.
    churned: int = 0
    told: int = 0
