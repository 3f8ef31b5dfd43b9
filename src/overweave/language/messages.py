"""Messages between clients and brokers, and between brokers, each with a typed `Header`.

Publications are content and move in batches; all others are control. An id names an advertisement or a subscription
in the whole network, so that it can be withdrawn wherever it went.
"""

from typing import TYPE_CHECKING

import msgspec

from overweave.language.headers import Header
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

_EMPTY = Header()


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
    """A publication in transit; the payload takes no part in matching.

    >>> Publish(Publication({"volume": 7}), Header("p1", 1)).header.sequence
    1
    """

    publication: Publication
    header: Header = _EMPTY
    payload: bytes = b""


class RoutingMessage(msgspec.Struct, frozen=True):
    """The base class of a routing protocol's own control messages, each with an ``id`` and a ``header``.

    A protocol registers a codec for each of them (`overweave.contract.control_codecs`).
    """

    if TYPE_CHECKING:  # fields of the subclasses, in an order of their own

        @property
        def id(self) -> str:
            """The name of the message's subject."""

        @property
        def header(self) -> Header:
            """The routing state of the message."""


#: Messages that change routing tables.
Control = Advertise | Unadvertise | Subscribe | Unsubscribe | RoutingMessage
Message = Control | Publish
