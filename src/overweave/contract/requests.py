"""Requests of operators to a broker, and its replies: outside the session streams, each with a token that its reply repeats."""

import msgspec

#: The end of the error for a client that another order moves: it does not stay.
MOVING_ALREADY = "is moving already"
#: The beginning of the error for a subscription that the client does not have at this broker; it may have it at another one.
NO_SUBSCRIPTION = "the client has no subscription"


class MigrationRequest(msgspec.Struct, frozen=True, tag="migrate"):
    """Order a client of this broker to move subscriptions (None: all) or its publishing to another broker."""

    token: str
    client: str
    to: str
    subscriptions: tuple[str, ...] | None = None
    publishing: bool = True


class MigrationReply(msgspec.Struct, frozen=True, tag="migrated"):
    """The end of a migration: it is complete, or the client stays because of an ``error``."""

    token: str
    error: str | None = None


class ClientsRequest(msgspec.Struct, frozen=True, tag="clients"):
    """Ask for the clients after a name, in order; or for one ``client`` only."""

    token: str
    after: str = ""
    client: str | None = None


class ClientEntry(msgspec.Struct, frozen=True):
    """A client of a broker."""

    name: str
    subscriptions: int
    advertisements: int
    connected: bool
    #: The broker that the client is moving to.
    moving_to: str | None = None


class ClientsReply(msgspec.Struct, frozen=True, tag="listed"):
    """Some clients of a broker, and whether there are ``more`` behind the last one; none if there is an ``error``."""

    token: str
    clients: tuple[ClientEntry, ...] = ()
    more: bool = False
    error: str | None = None


class ModuleRequest(msgspec.Struct, frozen=True, tag="ask"):
    """A request to a module of this broker, of a kind that the module knows."""

    token: str
    module: str
    kind: str
    body: bytes = b""


class ModuleReply(msgspec.Struct, frozen=True, tag="answer"):
    """The answer of a module, or a part of it: ``more`` parts follow."""

    token: str
    body: bytes = b""
    error: str | None = None
    more: bool = False


Request = MigrationRequest | ClientsRequest | ModuleRequest
Reply = MigrationReply | ClientsReply | ModuleReply
