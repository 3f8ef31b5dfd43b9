"""Where brokers listen: ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""

import ipaddress
import re
from typing import NamedTuple

from overweave.errors import InvalidInput
from overweave.language.values import excerpt

PORT_MAX = 65535
_URL = re.compile(r"(?P<scheme>tcp|tls)://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/?#@\[\]]+)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A place to listen at, or to connect to.

    >>> Address("::1", 7401), str(Address("::1", 7401)), Address("::1", 7401).is_loopback
    (Address(host='::1', port=7401, tls=False), 'tcp://[::1]:7401', True)
    """

    host: str
    port: int
    tls: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than ``localhost`` may be anywhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"


def parse_address(url: str, field: str = "url") -> Address:
    """The address of a url; an error names ``field``.

    >>> parse_address("tls://localhost:7401")
    Address(host='localhost', port=7401, tls=True)
    >>> parse_address("localhost:7401")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'localhost:7401'
    >>> parse_address("tcp://b1..lan:7401", "join")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: join: expected tcp://HOST:PORT or tls://HOST:PORT, got 'tcp://b1..lan:7401'
    """
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found["port"]) <= PORT_MAX or not _is_host(found):
        raise InvalidInput(f"{field}: expected tcp://HOST:PORT or tls://HOST:PORT, got {excerpt(url)}")
    return Address(found["six"] or found["host"], int(found["port"]), found["scheme"] == "tls")


def _is_host(found: re.Match[str]) -> bool:
    """Whether a host is an IPv6 address, or a name that can be looked up: without empty or overlong labels."""
    try:
        if found["six"]:
            return ipaddress.ip_address(found["six"]).version == 6
        found["host"].encode("idna")
    except ValueError:
        return False
    return True
