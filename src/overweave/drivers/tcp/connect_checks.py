"""Checks of a peer's `Connect` before it is authenticated: version, role and name."""

from overweave.contract.wire import VERSION, Connect
from overweave.drivers.tcp.admission import check_name
from overweave.drivers.tcp.directory import Directory
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import Refused
from overweave.overlay.checks import nearest
from overweave.routing import PROTOCOLS

_NAME_BYTES_MAX = 255


def check_connect(message: Connect, settings: BrokerSettings, directory: Directory) -> None:
    """Raise `Refused` unless a peer of this name and role may authenticate."""
    name = message.name
    if message.version != VERSION:
        raise Refused("version", f"expected version {VERSION} of the protocol, got {message.version}")
    if message.role not in ("client", "broker") or not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
        raise Refused("bad-frame", "expected a client or a broker with a name of 1 to 255 bytes")
    if message.role == "broker":
        check_broker(name, settings, directory)
        return
    if name in directory or "/" in name:
        raise Refused("bad-name", f"client {name!r}: expected a name that is no broker's, without '/'")
    check_name(name)


def check_broker(name: str, settings: BrokerSettings, directory: Directory) -> None:
    """Raise `Refused` unless a peer of this name may be a broker.

    Without tokens a certificate proves a name, but not that it is a broker's: then only known brokers may connect.
    """
    if name == settings.id or "/" in name or name in (".", ".."):
        raise Refused("bad-name", f"broker {name!r}: expected a name that is not {settings.id!r}, without '/'")
    kind = PROTOCOLS[settings.routing]
    if kind.brokers_max is not None and name not in (settings.numbered_overlay if kind.knows_overlay else settings.overlay):
        raise Refused("bad-name", f"broker {name!r}: expected one of the network file, as {settings.routing!r} numbers brokers")
    security = settings.security
    if security.mutual and security.tokens is None and not directory.is_member(name):
        raise Refused("bad-name", f"broker {name!r}: expected one of the network, {nearest(name, directory)}")
