"""Addresses of a network: where every broker listens and serves metrics, and whether the security suffices for it."""

from collections.abc import Mapping, Sequence

from overweave.drivers.tcp.addresses import PORT_MAX, Address, parse_address
from overweave.drivers.tcp.security import check_security
from overweave.drivers.tcp.settings import BrokerSettings, SecuritySettings
from overweave.errors import InvalidInput


def listen_urls(
    ids: Sequence[str], given: Mapping[str, tuple[str, str]], default: tuple[str, int | None, bool], security: SecuritySettings
) -> dict[str, str]:
    """The URL of every broker: unique, and on an address for which the security suffices.

    ``given`` has URLs with the fields that they are from. Other brokers listen at ``default``: host, base port and TLS.
    """
    host, port, tls = default
    if len(given) < len(ids):
        _check_base("port", port, len(ids))
    users: dict[tuple[str, int], str] = {}
    urls = {}
    for position, broker_id in enumerate(ids, 1):
        if broker_id in given:
            url, field = given[broker_id]
            address = parse_address(url, field)
        else:
            address, field = Address(host, (port or 0) + position, tls), "network.host"
            parse_address(str(address), field)
        check_address(field, address, security)
        place = address.host, address.port
        if place in users:
            raise InvalidInput(
                f"{field}: expected an address of its own for {broker_id!r}, got that of {users[place]!r}: {address}"
            )
        users[place] = broker_id
        urls[broker_id] = str(address)
    return urls


def check_metrics_ports(base: int | None, urls: Mapping[str, str]) -> None:
    """Refuse metrics ports on which a broker listens."""
    if base is None:
        return
    _check_base("metrics_port", base, len(urls))
    ports = range(base + 1, base + len(urls) + 1)
    for broker_id, url in urls.items():
        if parse_address(url).port in ports:
            raise InvalidInput(
                f"network.metrics_port: expected {len(ports)} ports above it on which no broker listens, got "
                f"{base}, and {broker_id!r} listens on {url}"
            )


def check_listen(settings: BrokerSettings) -> None:
    """Refuse an address that other machines can reach without authentication."""
    check_security(settings.security)
    check_address("listen", parse_address(settings.listen, "listen"), settings.security)


def check_address(field: str, address: Address, security: SecuritySettings) -> None:
    """Refuse an address, named by ``field``, that needs more security."""
    if address.tls and security.certificate is None:
        raise InvalidInput(f"security.certificate: expected a PEM file, which {field} needs for {address}")
    if security.mutual and not address.tls:
        raise InvalidInput(f"{field}: expected tls://, as security.mutual asks for certificates, got {address}")
    proven = address.tls and (security.mutual or security.tokens is not None)
    if not (address.is_loopback or proven or security.insecure):
        raise InvalidInput(
            f"{field}: expected a loopback address, got {address}: others can reach it, which needs tls:// with security.mutual "
            "or security.tokens, or else security.insecure = true"
        )


def _check_base(field: str, port: int | None, brokers: int) -> None:
    """Refuse a base port with too few ports above it for all brokers."""
    last = PORT_MAX - brokers
    if port is None or not 0 < port <= last:
        raise InvalidInput(f"network.{field}: expected an integer from 1 to {last}, got {'none' if port is None else port}")
