"""Client options of ``pub``, ``sub``, ``move`` and ``drain``, and the connection of the former two to a broker.

The first connection is retried until ``--connect-timeout``. A lost connection is retried without limit, and another broker may
replace an unreachable one. All of this is reported on stderr. Permanent errors (an unknown host, an untrusted certificate) end
the verb at once.
"""

import contextlib
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.stopping import terminating
from overweave.cli.terminal import say
from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.drivers.tcp.blocking import BlockingClient, connect_blocking
from overweave.drivers.tcp.outbound_handshake import connect_error
from overweave.drivers.tcp.security import client_context
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import InvalidInput, OverweaveError, ParseError
from overweave.language.codec import encode_filter
from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter

TOKEN_VARIABLE = "OVERWEAVE_TOKEN"
CONNECT_TIMEOUT_S = 10.0

Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Client name (default: random and unique).")]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TEXT", envvar=TOKEN_VARIABLE, help="Authentication token for the client name.")
]
CaFile = Annotated[
    Path | None, typer.Option("--cafile", metavar="PEM", help="Trusted certificate authorities (default: those of the system).")
]
Certificate = Annotated[Path | None, typer.Option("--certificate", metavar="PEM", help="Client certificate for mutual TLS.")]
Key = Annotated[Path | None, typer.Option("--key", metavar="PEM", help="Private key, if not in the file of --certificate.")]
ConnectTimeout = Annotated[
    float, typer.Option("--connect-timeout", min=0, metavar="SECONDS", help="Time limit for the first connection.")
]

_RETRY_S = 0.1
_ANSWER_S = 5.0
_POLL_S = 0.25
#: The time without progress after which a wait for the network is reported.
STALL_S = 1.5


class Credentials(msgspec.Struct, frozen=True):
    """The identity of a client and its trust in the broker."""

    name: str | None = None
    token: str | None = None
    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def filter_of(option: str, text: str) -> Filter:
    """The filter given as ``option``; errors name the option.

    >>> filter_of("FILTER", "[volume,>,]")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: FILTER:11: expected a number or a text in single quotes, found ']'
    """
    try:
        wanted = parse_filter(text)
        encode_filter(wanted)
    except ParseError as error:
        raise InvalidInput(f"{option}:{error.column}: expected {error.expected}, found {error.found}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{option}: {error}") from None
    return wanted


@contextlib.contextmanager
def connected(
    option: str, url: str, credentials: Credentials, timeout_s: float, advertise: bool = True
) -> Iterator[BlockingClient]:
    """A client of the broker at ``url``, the value of ``option``. It closes without a flush.

    SIGTERM and SIGHUP end the body as Ctrl-C does: a client that does not leave would hold its publishers back.
    """
    address = parse_address(url, option)
    context = tls_context(address, credentials)
    end_s = time.monotonic() + timeout_s
    _wait_for(address, context, end_s)
    with terminating(signal.SIGTERM, signal.SIGHUP):
        client = connect_blocking(
            url,
            **{name: getattr(credentials, name) for name in credentials.__struct_fields__},
            advertise=advertise,
            timeout_s=max(end_s - time.monotonic(), _ANSWER_S),
        )
        hint = "" if address.tls else "; if it speaks TLS, use tls://"
        try:
            with stall_reports(lambda: True, lambda: f"waiting for {_awaited(client, address, f'an answer of {address}{hint}')}"):
                client.__enter__()
        except TimeoutError:
            found = _awaited(client, address, f"{address}: expected a broker, found another server{hint}")
            raise OverweaveError(found) from None
        with contextlib.closing(client), _connection_reports(client, address):
            yield client


def _awaited(client: BlockingClient, address: Address, other: str) -> str:
    """Why a broker rejects a client for now, or ``other`` if it has not answered."""
    return other if client.rejection is None else f"{address}: {client.rejection.text}"


def tls_context(address: Address, credentials: Credentials) -> ssl.SSLContext | None:
    """The TLS context for a broker; None without TLS. Errors name the options."""
    given = {"--cafile": credentials.authorities, "--certificate": credentials.certificate, "--key": credentials.key}
    if not address.tls:
        for option, file in given.items():
            if file is not None:
                raise InvalidInput(f"{option}: expected none for {address}, which is not tls://")
        return None
    if credentials.key is not None and credentials.certificate is None:
        raise InvalidInput("--certificate: expected a PEM file, as --key is given")
    if credentials.certificate is not None and credentials.authorities is None:
        raise InvalidInput("--cafile: expected a PEM file, as --certificate is given")
    security = SecuritySettings(
        authorities=credentials.authorities,
        certificate=credentials.certificate,
        key=credentials.key,
        mutual=credentials.certificate is not None,
    )
    try:
        return client_context(security)
    except InvalidInput as error:
        text = str(error).replace("security.authorities", "--cafile", 1).replace("security.", "--", 1)
        raise InvalidInput(text) from None


def _wait_for(address: Address, context: ssl.SSLContext | None, end_s: float) -> None:
    """Return when a trusted server accepts connections."""
    reported = False
    while True:
        try:
            with socket.create_connection((address.host, address.port), timeout=_ANSWER_S) as plain:
                if context is not None:
                    context.wrap_socket(plain, server_hostname=address.host).close()
            return
        except (ssl.SSLError, socket.gaierror) as error:
            raise OverweaveError(f"{address}: {connect_error(error)}") from None
        except OSError as error:
            if time.monotonic() >= end_s:
                raise OverweaveError(f"{address}: {connect_error(error)}") from None
            if not reported:
                say(f"waiting for {address}: {connect_error(error)}")
                reported = True
        time.sleep(_RETRY_S)


@contextlib.contextmanager
def stall_reports(progress: Callable[[], object], text: Callable[[], str], after_s: float | None = None) -> Iterator[None]:
    """A message on stderr, once, while ``progress`` stays the same for a while during the body; None: nothing is awaited."""
    limit_s = STALL_S if after_s is None else after_s

    def check() -> Iterator[None]:
        last, since_s, reported = progress(), time.monotonic(), False
        while True:
            yield
            now = progress()
            if now != last or now is None:
                last, since_s, reported = now, time.monotonic(), False
            elif not reported and time.monotonic() - since_s >= limit_s:
                say(text())
                reported = True

    checks = check()
    with _polling(lambda: next(checks)):
        yield


@contextlib.contextmanager
def _connection_reports(client: BlockingClient, address: Address) -> Iterator[None]:
    """Messages on stderr when the connection is lost and restored, or another broker has replaced the one that is lost."""
    up, first = True, client.broker
    lost = first

    def check() -> None:
        nonlocal up, lost
        if client.connected == up:
            return
        up, now = not up, client.broker
        where = str(address) if now == first else f"broker {now}"
        if not up:
            lost = now
            say(f"{where}: connection lost, reconnecting")
        else:
            say(f"{where}: reconnected" if now == lost else f"{where}: connected, replaces {lost}")

    with _polling(check):
        yield


@contextlib.contextmanager
def _polling(check: Callable[[], None]) -> Iterator[None]:
    """Calls of ``check`` in a thread of their own during the body."""
    done = threading.Event()

    def watch() -> None:
        with contextlib.suppress(OverweaveError):  # the client has closed
            while not done.wait(_POLL_S):
                check()

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
