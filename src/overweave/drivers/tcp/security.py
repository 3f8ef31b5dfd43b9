"""Authentication and permissions of peers: TLS by certificates, names by tokens, permissions by class.

The file of tokens (``security.tokens``) has a table for each client and broker. The default of ``publish`` is no class::

    [[client]]
    name = "ticker"                       # "*": any name that has no table of its own
    token = "…"                           # or token_sha256 = "…", the hexadecimal SHA-256 of it
    publish = ["STOCK"]                   # classes; "*": all, but those of modules only with control
    subscribe = ["*"]
    control = true                        # may order migrations; the default is false
    [[broker]]
    id = "B1"
    token_sha256 = "…"

Two tables of one name are two valid tokens for it, so that tokens can be changed while both are in use.

With mutual TLS the name must also be in the certificate. A client may append ``~`` and a suffix to either.
"""

import hashlib
import hmac
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from overweave.batches.base import Batch
from overweave.contract.modules import MODULE_CLASSES
from overweave.drivers.tcp.certificates import SEPARATOR, may_be_called, names, proves
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.drivers.toml_config import check_keys, read_toml, rows
from overweave.errors import InvalidInput, LanguageError, Refused
from overweave.language.messages import Advertise, Control, Subscribe
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.relations import covers
from overweave.matching.index import Index

#: Every class, or every name.
ANY = "*"
_CLASS = "class"
_UNAUTHORIZED = "unauthorized"
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")


@dataclass(frozen=True)
class Permissions:
    """The classes that a peer may publish and subscribe to, and whether it may order migrations (``control``).

    Classes of modules are within ``*`` only with ``control``: nobody else publishes in the name of a broker.

    >>> from overweave.language.syntax import parse_filter
    >>> rights = Permissions(publish=("STOCK",))
    >>> rights.allows_control(Advertise("a", parse_filter("[class,eq,'STOCK'],[volume,>,0]")))
    True
    >>> any_class = parse_filter("[volume,>,0]")
    >>> rights.allows_control(Advertise("a", any_class)), rights.allows_control(Subscribe("s", any_class))
    (False, False)
    """

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    control: bool = False

    def allows_control(self, message: Control) -> bool:
        """Whether an advertisement or subscription is within the classes; withdrawals always are."""
        if isinstance(message, Advertise):
            classes = self.publish
            if ANY in classes and not self.control and any(covers(_filter(each), message.filter) for each in MODULE_CLASSES):
                return False
        elif isinstance(message, Subscribe):
            classes = self.subscribe
        else:
            return True
        return ANY in classes or any(covers(_filter(each), message.filter) for each in classes)

    def allows_publish(self, batch: Batch) -> bool:
        """Whether all rows are of permitted classes."""
        if self._published is not None:
            return sum(allowed.count for _, allowed in batch.split_by_link(self._published)) == batch.count
        return self.control or not batch.split_by_link(_index_of(MODULE_CLASSES))

    def includes_subscriptions_of(self, other: "Permissions") -> bool:
        """Whether all subscriptions that ``other`` permits are permitted.

        >>> some, more = Permissions(subscribe=("A",)), Permissions(subscribe=("A", "B"))
        >>> more.includes_subscriptions_of(some), some.includes_subscriptions_of(more)
        (True, False)
        """
        return ANY in self.subscribe or set(other.subscribe) <= set(self.subscribe)

    @cached_property
    def _published(self) -> Index | None:
        """The permitted classes; None: all."""
        if ANY in self.publish:
            return None
        return _index_of(self.publish)


#: The permissions of peers that need not prove anything.
ALL = Permissions((ANY,), (ANY,), control=True)
NONE = Permissions()


class Identity(NamedTuple):
    """What a peer presents: role (``client`` or ``broker``), name, token, and the certificate of its TLS connection."""

    role: str
    name: str
    token: str | None
    certificate: Mapping[str, Any] | None


class Authenticator:
    """Admits peers by the file of tokens, or by certificates alone; without either, all peers."""

    def __init__(self, security: SecuritySettings) -> None:
        self._credentials = None if security.tokens is None else read_toml(security.tokens, _read_credentials)
        self._certificates = security.mutual

    def admit(self, role: str, name: str, token: str | None, certificate: Mapping[str, Any] | None) -> Permissions:
        """The permissions of a ``client`` or ``broker`` with this ``name``, or `Refused`.

        ``certificate`` is the result of `ssl.SSLObject.getpeercert`. All tokens are compared, each in constant time and for every
        name: the duration reveals nothing about them.
        """
        if self._certificates:
            _check_certificate(role, name, certificate or {})
        if self._credentials is None:
            return ALL
        digest = _digest(token or "")
        valid = [each for each in self._credentials if hmac.compare_digest(each.digest, digest)]
        # A name with a table of its own needs the token of that table.
        wanted = self._tables(name) if role == "client" else (name,)
        for table in wanted:
            for each in valid:
                if (each.role, each.name) == (role, table):
                    return each.permissions
        if token is None:
            text = "expected a token, got none"
        elif valid:
            text = "expected the name of this token, got another name"
        else:
            text = "expected a token that is good for this name"
        raise Refused(_UNAUTHORIZED, f"{role} {name!r}: {text}")

    def proves(self, client: str) -> bool:
        """Whether the admission of a client proves its name, and not only that it may connect."""
        return self._certificates or self._tables(client) != (ANY,)

    def _tables(self, client: str) -> tuple[str, ...]:
        """The tables of a client: that of its name, else that of the longest name before a ``~``, else that of all others.

        A name before a ``~`` that a certificate proves may have the token of all others too.
        """
        listed = {each.name for each in self._credentials or () if each.role == "client"} - {ANY}
        found = max((each for each in listed if may_be_called(each, client)), key=len, default=ANY)
        return (found, ANY) if self._certificates and client not in listed else (found,)


def server_context(security: SecuritySettings) -> ssl.SSLContext | None:
    """The TLS context for inbound connections; None without a certificate. With mutual TLS peers must present theirs."""
    if security.certificate is None:
        return None
    check_security(security)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_certificate(context, security)
    if security.mutual:
        _load_authorities(context, security.authorities)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(security: SecuritySettings) -> ssl.SSLContext:
    """The TLS context for outbound connections: the host of the url is verified by our authorities, else by the system's."""
    check_security(security)
    if security.authorities is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authorities(context, security.authorities)
    if security.mutual:
        _load_certificate(context, security)
    return context


def check_security(security: SecuritySettings) -> None:
    """Refuse settings that need another one that is missing."""
    if security.key is not None and security.certificate is None:
        raise InvalidInput("security.certificate: expected a PEM file, as security.key is given")
    for name, value in (("certificate", security.certificate), ("authorities", security.authorities)):
        if security.mutual and value is None:
            raise InvalidInput(f"security.{name}: expected a PEM file, which security.mutual needs")


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    token: str | None = None
    token_sha256: str | None = None


class _Client(_Secret, frozen=True, kw_only=True):
    name: str
    publish: list[str] = []
    subscribe: list[str] = []
    control: bool = False


class _Broker(_Secret, frozen=True, kw_only=True):
    id: str


class _Credential(NamedTuple):
    role: str
    name: str
    digest: bytes
    permissions: Permissions


def _read_credentials(document: dict[str, Any]) -> list[_Credential]:
    check_keys("", document, ("client", "broker"))
    credentials = []
    for number, client in enumerate(rows(_Client, "client", document.get("client", []))):
        path = f"client[{number}]"
        for field, classes in (("publish", client.publish), ("subscribe", client.subscribe)):
            _check_classes(f"{path}.{field}", classes)
        permissions = Permissions(tuple(client.publish), tuple(client.subscribe), client.control)
        credentials.append(_Credential("client", client.name, _secret(path, client), permissions))
    for number, broker in enumerate(rows(_Broker, "broker", document.get("broker", []))):
        credentials.append(_Credential("broker", broker.id, _secret(f"broker[{number}]", broker), ALL))
    return credentials


def _check_classes(path: str, classes: Iterable[str]) -> None:
    for each in classes:
        try:
            _filter(each)
        except LanguageError as error:
            raise InvalidInput(f"{path}: expected names of classes, got {each!r}: {error}") from None


def _secret(path: str, secret: _Secret) -> bytes:
    if (secret.token is None) == (secret.token_sha256 is None):
        raise InvalidInput(
            f"{path}.token: expected either this or token_sha256, got {'none' if secret.token is None else 'both'}"
        )
    if secret.token is not None:
        if not secret.token:
            raise InvalidInput(f"{path}.token: expected a text that is not empty")
        return _digest(secret.token)
    if not _SHA256.fullmatch(secret.token_sha256 or ""):
        raise InvalidInput(f"{path}.token_sha256: expected 64 hexadecimal digits")
    return bytes.fromhex(secret.token_sha256 or "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


@cache
def _index_of(classes: tuple[str, ...]) -> Index:
    """A filter for each class, all under one link, so that a row matches at most once."""
    index = Index()
    index.add_many((each, _filter(each), _CLASS) for each in dict.fromkeys(classes))
    return index


def _filter(name: str) -> Filter:
    return Filter((Predicate(_CLASS, Operator.EQ, name),))


def _check_certificate(role: str, name: str, certificate: Mapping[str, Any]) -> None:
    found = names(certificate)
    if proves(certificate, name) if role == "client" else name in found:
        return
    listed = ", ".join(map(repr, sorted(found))) or "none"
    more = f", or such a name followed by {SEPARATOR!r} and anything" if role == "client" else ""
    raise Refused(
        _UNAUTHORIZED, f"{role} {name!r}: expected a common name or DNS name of its certificate{more}; found {listed} there"
    )


def _load_certificate(context: ssl.SSLContext, security: SecuritySettings) -> None:
    certificate, key = security.certificate, security.key
    assert certificate is not None
    for field, file in (("certificate", certificate), ("key", key)):
        if file is not None:
            _check_readable(field, file)
    found = certificate.read_bytes()
    if key is None and b"CERTIFICATE" in found and b"PRIVATE KEY" not in found:
        raise InvalidInput(f"security.key: expected a PEM file, as {certificate} has no private key")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        where = f"{certificate}" if key is None else f"{certificate} with {key}"
        raise InvalidInput(f"security.certificate: expected a PEM certificate and its key, got {where}: {error}") from None


def _no_password() -> NoReturn:
    # Without this OpenSSL asks on the terminal, and a background broker would wait for ever.
    raise ValueError("the key needs a passphrase")


def _load_authorities(context: ssl.SSLContext, authorities: Path | None) -> None:
    assert authorities is not None
    _check_readable("authorities", authorities)
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise InvalidInput(f"security.authorities: expected PEM certificates, got {authorities}: {error}") from None


def _check_readable(field: str, file: Path) -> None:
    try:
        file.read_bytes()
    except OSError as error:
        text = (error.strerror or str(error)).lower()
        raise InvalidInput(f"security.{field}: expected a readable file, found {text}: {file}") from None
