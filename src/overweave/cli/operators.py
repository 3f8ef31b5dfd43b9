"""Connections of operators' verbs to the brokers of a network."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, NamedTuple, Self

import msgspec
import typer

from overweave.cli.client_options import Credentials, tls_context
from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.drivers.tcp.certificates import SEPARATOR, common_name
from overweave.drivers.tcp.network_file import NetworkFile, read_network
from overweave.drivers.tcp.operator import Operator
from overweave.drivers.tcp.unavailable import UNAVAILABLE
from overweave.errors import InvalidInput, OverweaveError, Refused
from overweave.overlay.checks import nearest

NetworkArgument = Annotated[Path, typer.Argument(metavar="NETWORK", help="Network file in TOML.", show_default=False)]


class Target(NamedTuple):
    """A network file, and the credentials for its brokers."""

    network: NetworkFile
    credentials: Credentials

    def check_broker(self, option: str, broker: str) -> None:
        """Refuse a broker that is not of the network."""
        if broker not in self.network.urls:
            known = nearest(broker, self.network.urls)
            raise InvalidInput(f"{option}: broker {broker!r}: expected one of the network, {known}")


def target_of(file: Path, credentials: Credentials) -> Target:
    """The network of a file; its authorities are those of its brokers with TLS unless others are given."""
    network = read_network(file)
    addresses = [parse_address(url) for url in network.urls.values()]
    if not any(address.tls for address in addresses):
        tls_context(addresses[0], credentials)  # options that are for TLS only are errors
    elif credentials.authorities is None:
        credentials = msgspec.structs.replace(credentials, authorities=network.security.authorities)
    return Target(network, credentials)


class Operators:
    """Operators of some brokers by id; an asynchronous context manager. Rejections are errors, unreachable brokers are not."""

    def __init__(self, target: Target, brokers: Iterable[str]) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._made = {broker: operator_at(target, target.network.urls[broker]) for broker in brokers}
        self.connected: dict[str, Operator] = {}
        #: Why other brokers are not.
        self.unreachable: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        async with self._stack:
            await asyncio.gather(*(self._connect(broker, operator) for broker, operator in self._made.items()))
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def _connect(self, broker: str, operator: Operator) -> None:
        try:
            await self._stack.enter_async_context(operator)
        except Refused as refused:
            if refused.code not in UNAVAILABLE:
                raise
            self.unreachable[broker] = str(refused)
        except OverweaveError as error:
            self.unreachable[broker] = str(error)
        else:
            if operator.broker == broker:
                self.connected[broker] = operator
            else:
                self.unreachable[broker] = f"broker {operator.broker} answers there"


def unreachable_text(unreachable: Mapping[str, str]) -> str:
    """The unreachable brokers with their reasons, as the end of a sentence."""
    listed = "; ".join(f"{broker}: {reason}" for broker, reason in sorted(unreachable.items()))
    return f"; unreachable: {listed}" if listed else ""


def operator_at(target: Target, url: str) -> Operator:
    """An operator of the broker at a URL; one without TLS is not asked for its certificate."""
    address, credentials = parse_address(url), target.credentials
    if not address.tls:
        credentials = msgspec.structs.replace(credentials, authorities=None, certificate=None, key=None)
    return operator_of(credentials, address)


def operator_of(credentials: Credentials, address: Address) -> Operator:
    """An operator with a name of its own, ``NAME~HEX``: another verb with the same credentials does not take it over."""
    name, certificate = credentials.name, credentials.certificate
    if address.tls and name is None and certificate is not None:
        found = common_name(certificate)
        name = found if found and "/" not in found else None
    prefix = "operator-" if name is None else f"{name}{SEPARATOR}"
    return Operator(address, tls_context(address, credentials), None, credentials.token, prefix)
