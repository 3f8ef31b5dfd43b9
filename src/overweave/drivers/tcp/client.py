"""The client library: publish and subscribe from Python.

::

    async with connect("tcp://localhost:7401") as client:
        await client.publish({"class": "STOCK", "volume": 7})
        receipt = await client.flush()
        async with client.subscribe("[class,eq,'STOCK'],[volume,>,5]") as quotes:
            async for publication in quotes:
                ...

A broken connection is restored, and unsettled publications are sent again, without any action of the program. If the broker
has lost the session meanwhile, publications may be missing: subscriptions raise `SessionLost`, once. Publications of one turn of
the event loop are sent together. Content that is not advertised yet is advertised before it is published.
"""

import secrets
import ssl
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from overweave.batches.raw import RawRows
from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.drivers.tcp.attachment import CONFIG, Attachment, ClientIdentity
from overweave.drivers.tcp.certificates import SEPARATOR, common_name
from overweave.drivers.tcp.client_host import ClientHost
from overweave.drivers.tcp.publisher import Publisher, Receipt
from overweave.drivers.tcp.subscriptions import QUEUE_MAX, Subscription, Subscriptions
from overweave.errors import InvalidInput
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter

__all__ = ["CONFIG", "QUEUE_MAX", "Client", "Receipt", "Subscription", "connect"]

#: The default time after which another broker replaces an unreachable one.
FAILOVER_S = 30.0


class Client:
    """A client of a network, at one broker or, while it moves, at two; use `connect`."""

    def __init__(
        self,
        address: Address,
        name: str | None,
        token: str | None,
        context: ssl.SSLContext | None,
        prefix: str = "client-",
        advertise: bool = True,
        failover_s: float | None = None,
    ) -> None:
        self.name = name or f"{prefix}{secrets.token_hex(6)}"
        identity = ClientIdentity(self.name, token, secrets.token_hex(16), is_named=name is not None)
        self._subscriptions = Subscriptions()
        #: Its core and its connections.
        self.host = ClientHost(address, context, identity, self._subscriptions, failover_s)
        self._subscriptions.attach(self.host)
        self._publisher = Publisher(self.name, self.host, lambda: self._new_id("a"), advertise=advertise)
        #: Part of all ids: a client that returns under its name, perhaps to another broker, reuses none.
        self._suffix = f"-{secrets.token_hex(6)}" if name else ""
        self._counter = 0

    async def __aenter__(self) -> "Client":
        await self.host.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self.host.error is None:
                await self.flush()  # raises `NotAdvertised` at the latest
        finally:
            await self.close()

    async def advertise(self, filter: str | Filter, *, wait: bool = True) -> str:
        """Advertise future publications; the id with which the advertisement can be withdrawn.

        Returns when the advertisement is in force: every broker has it, and all subscriptions that it attracts have arrived. With
        ``wait=False`` at once.
        """
        return await self._publisher.advertise(_filter(filter), wait=wait)

    async def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement, when all that was published under it is settled: it may have to be sent again."""
        await self._publisher.unadvertise(id)

    async def publish(self, publication: Mapping[str, object], payload: bytes = b"") -> None:
        """Publish; waits only while the window is full, or until it is advertised. `flush` waits until all is settled.

        `NotAdvertised` is raised, once, if an earlier publication reached nobody because it was not advertised.
        """
        await self._publisher.publish(publication if isinstance(publication, Publication) else Publication(publication), payload)

    async def publish_encoded(self, rows: RawRows) -> None:
        """Publish rows that are encoded already (see `encode`), any number of times: the fastest method for many publications.

        Rows that `encode` made are advertised like others. Rows of another encoder have to be advertised before.
        """
        await self._publisher.publish_encoded(rows)

    async def publish_rows(self, rows: RawRows) -> None:
        """The former name of `publish_encoded`."""
        warnings.warn("publish_rows is deprecated, use publish_encoded", DeprecationWarning, stacklevel=2)
        await self._publisher.publish_encoded(rows)

    def encode(self, publications: list[Mapping[str, object]], payload: bytes = b"") -> RawRows:
        """Publications as rows of this client, for `publish_encoded`."""
        return self._publisher.encode(publications, payload)

    def subscribe(self, *filters: str | Filter, wait: bool = True) -> Subscription:
        """A subscription to publications that match any of the filters, from entering the context until leaving it.

        The context is entered when the subscription is in force: every broker that needs it has it. With ``wait=False`` at once.
        """
        if not filters:
            raise InvalidInput("filters: expected at least one")
        return Subscription(self._subscriptions, self._new_id("s"), [_filter(filter) for filter in filters], wait)

    async def flush(self) -> Receipt:
        """Wait until everything sent before is settled: every connected subscriber has received it.

        The receipt counts the publications that were settled since the last one. `NotAdvertised` is raised, once, if some
        reached nobody because they were not advertised.
        """
        return await self._publisher.flush()

    async def settle(self) -> None:
        """Wait until everything sent before is settled, without a receipt."""
        await self.host.settle()

    async def close(self) -> None:
        """Leave permanently; publications that are not flushed may be lost."""
        await self.host.close()

    @property
    def attachments(self) -> list[Attachment]:
        """The connections to brokers: one, or two while the client moves."""
        return list(self.host.attachments)

    @property
    def broker(self) -> str:
        """The id of the broker that it publishes to, "" until the first connection."""
        return self.host.core.broker

    @property
    def connected(self) -> bool:
        """Whether a broker serves the client now; a broken connection is restored."""
        return any(each.is_up for each in self.host.attachments)

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.host.attachments.is_encrypted

    @property
    def unsettled(self) -> int:
        """The number of publications that are not settled."""
        return self.host.unsettled

    @property
    def unmatched(self) -> int:
        """The number of settled publications that were unmatched, since the start."""
        return self.host.core.unmatched_publications()

    def now_s(self) -> float:
        """The time in headers of publications: wall clock time that never jumps."""
        return self.host.now_s()

    def _new_id(self, kind: str) -> str:
        self._counter += 1
        return f"{self.name}/{kind}{self._counter}{self._suffix}"


def connect(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    authorities: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    advertise: bool = True,
    failover_s: float | None = FAILOVER_S,
) -> Client:
    """A client of the broker at ``url`` (``tcp://HOST:PORT`` or ``tls://HOST:PORT``), to be entered.

    ``authorities`` is a PEM file of the authorities that sign the broker's certificate (else the system's). ``certificate`` and
    ``key`` are the client's own. ``token`` proves the ``name`` where a broker requires it. Without a name the client gets a
    unique one: ``client-HEX``, or ``NAME~HEX`` if the common name in its certificate is NAME.
    Unless ``advertise`` is False, publications that no advertisement of the client covers are advertised first, by class and
    attributes.
    When the broker is unreachable for ``failover_s`` seconds, the client fails over to another one, and subscriptions
    raise `SessionLost`, once. With None it waits for its broker.

    >>> connect("http://localhost")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'http://localhost'
    """
    address, context, prefix = parse_address(url), None, "client-"
    if address.tls:
        context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        if certificate is not None:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
            found = common_name(certificate)
            if found and "/" not in found:  # client names have no slash
                prefix = f"{found}{SEPARATOR}"
    return Client(address, name, token, context, prefix, advertise, failover_s)


def _filter(filter: str | Filter) -> Filter:
    if not isinstance(filter, str | Filter):
        raise InvalidInput(f"filter: expected a text or a Filter, got {filter!r}")
    return parse_filter(filter) if isinstance(filter, str) else filter
