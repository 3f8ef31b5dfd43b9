"""Messages: what clients say to brokers and brokers to each other, each with a typed `Header`.

Publications are content and move in batches; all others are control. An id names an advertisement or a subscription
in the whole network, so that it can be withdrawn wherever it went.
"""

import msgspec

from overweave.language.headers import Epoch, Header, Origin
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

_EMPTY = Header()
#: A route in a snapshot: its id, filter, path of clusters, whether it is a backup, and its origin (see `Header`).
SnapshotEntry = tuple[str, Filter, tuple[str, ...], bool, Origin | None]


class Advertise(msgspec.Struct, frozen=True, gc=False, tag="advertise"):
    """A publisher will publish within ``filter``.

    >>> from overweave.language.syntax import parse_filter
    >>> Advertise("a1", parse_filter("[class,eq,'STOCK']")).id
    'a1'
    """

    id: str
    filter: Filter
    header: Header = _EMPTY


class Unadvertise(msgspec.Struct, frozen=True, gc=False, tag="unadvertise"):
    """The advertisement ``id`` no longer holds."""

    id: str
    header: Header = _EMPTY


class Subscribe(msgspec.Struct, frozen=True, gc=False, tag="subscribe"):
    """A subscriber wants what ``filter`` admits."""

    id: str
    filter: Filter
    header: Header = _EMPTY


class Unsubscribe(msgspec.Struct, frozen=True, gc=False, tag="unsubscribe"):
    """The subscription ``id`` no longer holds."""

    id: str
    header: Header = _EMPTY


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    """Content on its way; the payload takes no part in matching.

    >>> Publish(Publication({"volume": 7}), Header("p1", 1)).header.sequence
    1
    """

    publication: Publication
    header: Header = _EMPTY
    payload: bytes = b""


class LinkState(msgspec.Struct, frozen=True, tag="link-state"):
    """The links of the broker ``id`` as it sees them (DEST III-C); it is flooded, and a later one replaces it.

    ``number`` stands for the broker in destination lists. A broker that has just started does not know yet which of its links
    work: these are ``pending``.
    """

    id: str
    number: int
    incarnation: int
    version: int
    up: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    header: Header = _EMPTY


class StateSnapshot(msgspec.Struct, frozen=True, tag="standing"):
    """The advertisements of the broker ``id`` for another one, or its subscriptions in reply to the other's advertisements.

    It replaces all updates up to the header's epoch. A sender that ``asks`` expects the other's advertisements in return.
    ``answers`` are the advertisements that it replies to, with the epochs of their updates; only subscriptions that intersect
    these are replaced.
    """

    id: str
    entries: tuple[SnapshotEntry, ...]
    header: Header = _EMPTY
    asks: bool = False
    answers: tuple[tuple[str, Epoch], ...] | None = None


#: What changes routing tables.
Control = Advertise | Unadvertise | Subscribe | Unsubscribe | LinkState | StateSnapshot
Message = Control | Publish
