"""Profiles of a running network on the wire (THESIS 6.1.2): requests of operators to the module `collector`, and its answers.

The answers of brokers are merged on the paths back (`Gather`). Vectors are rings: the bit of a publication stands at its sequence
number's remainder by the number of bits, in words of 64 bits, the least significant byte first.
"""

from typing import Self, TypeVar

import msgspec

from overweave.contract.observation import BrokerObservation
from overweave.errors import InvalidInput

#: The kinds of requests: to begin a profile or to extend its lease, to read the windows of publishers, to limit the profile to
#: publications up to some numbers, to read all profiles, and to stop. Their bodies are `ProfileRequest`.
PROFILE_START, PROFILE_WINDOWS, PROFILE_LIMIT = "profile-start", "profile-windows", "profile-limit"
PROFILE_READ, PROFILE_STOP = "profile-read", "profile-stop"
PROFILE_KINDS = (PROFILE_START, PROFILE_WINDOWS, PROFILE_LIMIT, PROFILE_READ, PROFILE_STOP)
#: The window of THESIS ch 6 in publications, and the limit of a request.
BITS, BITS_MAX = 1_280, 1 << 16
LEASE_S_MAX = 3600.0
#: The most bytes of the vectors of all subscriptions of one broker: 500,000 of 1,280 bits.
VECTORS_BYTES_MAX = 80_000_000
_WORD = 64
_T = TypeVar("_T")


class ProfileRequest(msgspec.Struct, frozen=True):
    """A request about the profile ``name``. A broker has one profile at a time."""

    name: str
    bits: int = BITS
    #: The profile ends at this time after the last start.
    lease_s: float = 60.0
    #: The time for the answers of all brokers.
    deadline_s: float = 10.0
    #: With PROFILE_LIMIT: the last sequence number of each publisher that is profiled.
    limits: dict[str, int] = {}

    def check(self) -> None:
        """Raise an error unless all fields are within their bounds.

        >>> ProfileRequest("p", bits=100).check()
        Traceback (most recent call last):
        overweave.errors.InvalidInput: bits: expected a multiple of 64 from 64 to 65,536, got 100
        """
        if not _WORD <= self.bits <= BITS_MAX or self.bits % _WORD:
            raise InvalidInput(f"bits: expected a multiple of {_WORD} from {_WORD} to {BITS_MAX:,}, got {self.bits}")
        for name in ("lease_s", "deadline_s"):
            value = getattr(self, name)
            if not 0.5 <= value <= LEASE_S_MAX:
                raise InvalidInput(f"{name}: expected a time from 0.5 to {LEASE_S_MAX:g} s, got {value:g}")


class Observed(msgspec.Struct, tag="observed"):
    """Observations of brokers."""

    brokers: dict[str, BrokerObservation]

    def add(self, other: Self) -> None:
        """Add those of other brokers."""
        self.brokers.update(other.brokers)


class ProfilesChanged(msgspec.Struct, tag="changed"):
    """The brokers that have begun, limited or stopped a profile just now; and those that have another one, by its name."""

    brokers: list[str]
    busy: dict[str, str]

    def add(self, other: Self) -> None:
        """Add those of other brokers."""
        self.brokers += other.brokers
        self.busy.update(other.busy)


class PublisherWindow(msgspec.Struct, frozen=True, array_like=True):
    """What a publisher has published at one broker since the profile began."""

    publisher: str
    broker: str
    first_sequence: int
    last_sequence: int
    vector: bytes
    publications: int
    bytes: int
    first_at_s: float
    last_at_s: float


class PublisherWindows(msgspec.Struct, tag="windows"):
    """Publishers, and the brokers that have no profile."""

    publishers: list[PublisherWindow]
    idle: list[str]

    def add(self, other: Self) -> None:
        """Add those of other brokers."""
        self.publishers += other.publishers
        self.idle += other.idle


class ProfiledSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A subscription that is in force at a broker."""

    subscription: str
    client: str
    broker: str
    filter: str


class SubscriptionProfiles(msgspec.Struct, tag="profiles"):
    """Subscriptions in force, and the rings of subscriptions, also of those that were withdrawn or have moved away.

    A ring is a row of four columns: places of its subscription, publisher and vector among the distinct ones, and the sequence
    number at its end.
    """

    in_force: list[ProfiledSubscription]
    idle: list[str]
    #: The number of rings that brokers had no room for.
    dropped: int = 0
    subscriptions: dict[str, int] = {}
    publishers: dict[str, int] = {}
    vectors: dict[bytes, int] = {}
    of_subscription: list[int] = []
    of_publisher: list[int] = []
    of_vector: list[int] = []
    ends: list[int] = []

    def append(self, subscription: str, publisher: str, vector: bytes, end: int) -> None:
        """Append a ring."""
        self.of_subscription.append(self.subscriptions.setdefault(subscription, len(self.subscriptions)))
        self.of_publisher.append(self.publishers.setdefault(publisher, len(self.publishers)))
        self.of_vector.append(self.vectors.setdefault(vector, len(self.vectors)))
        self.ends.append(end)

    def add(self, other: Self) -> None:
        """Add those of other brokers; equal vectors are stored once."""
        self.in_force += other.in_force
        self.idle += other.idle
        self.dropped += other.dropped
        self.of_subscription += _renumbered(self.subscriptions, other.subscriptions, other.of_subscription)
        self.of_publisher += _renumbered(self.publishers, other.publishers, other.of_publisher)
        self.of_vector += _renumbered(self.vectors, other.vectors, other.of_vector)
        self.ends += other.ends


Collected = Observed | ProfilesChanged | PublisherWindows | SubscriptionProfiles


class ProfileAnswer(msgspec.Struct, frozen=True):
    """The answer to a request about profiles, and the brokers that did not answer their neighbour in time."""

    found: Collected
    missing: tuple[str, ...] = ()


def _renumbered(mine: dict[_T, int], others: dict[_T, int], column: list[int]) -> list[int]:
    """A column of places among others, which are in this order, as places among mine; the missing ones are added."""
    places = [mine.setdefault(each, len(mine)) for each in others]
    return [places[place] for place in column]
