"""Messages of a connection beside frames: how peers open it, end it, and what brokers tell clients over it."""

import msgspec

from overweave.overlay.parts import LinkKind

#: The version of the wire (of wire).
VERSION = 8


class Gap(msgspec.Struct, frozen=True):
    """Why a broker ended a client's session, how long ago, and how many publications it dropped then."""

    code: str
    text: str
    ago_s: float
    rows: int


class Connect(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who opens a connection: a broker or a client, with a name, what proves it, and a key by which it can come back.

    A broker answers a client with another key, which stays the same as long as it remembers the client, and with the number of
    publications that a client may have in flight. It says whether it ``knows`` what the client has subscribed to, perhaps from
    its journal, and which ``gap`` there is if it had to forget that. For that a client that comes back says how many of its
    ``subscriptions`` were acknowledged: a journal may have been damaged.
    """

    role: str
    name: str
    token: str | None = None
    key: str | None = None
    version: int = VERSION
    window: int | None = None
    knows: bool = False
    gap: Gap | None = None
    subscriptions: int = 0
    #: The kind of a link between brokers.
    link: LinkKind = LinkKind.PRIMARY
    #: In a broker's answer to a client: the other brokers of the network with their addresses, in order of failover.
    brokers: tuple[tuple[str, str], ...] = ()
    #: Of a broker: where it listens, and whether it joins the other end as a guest (docs/decisions/0023).
    listen: str = ""
    guest: bool = False


class Addresses(msgspec.Struct, frozen=True):
    """The other brokers of the network have changed: all of them with their addresses, as in the answer to a client."""

    brokers: tuple[tuple[str, str], ...]


class Error(msgspec.Struct, frozen=True):
    """Why a connection is closed."""

    code: str
    text: str


class Notice(msgspec.Struct, frozen=True):
    """What a client did wrong, while the connection stays open; ``number`` counts up, so that none is heard twice."""

    code: str
    text: str
    number: int


class Ping(msgspec.Struct, frozen=True):
    """A sign of life."""


class Disconnect(msgspec.Struct, frozen=True):
    """The sender leaves permanently; its session ends."""
