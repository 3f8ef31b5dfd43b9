"""What the verbs that are clients of a broker have in common: options, and how they get and keep a connection.

A broker that is not there at the start is waited for as long as ``--wait`` says; one that goes away later, without limit. Both is
told on stderr. What waiting cannot mend (a host without an address, a certificate that nobody vouches for) ends the verb at once.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

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
WAIT_S = 10.0

Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What to be called; without it, something that nobody else is.")
]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TEXT", envvar=TOKEN_VARIABLE, help="Proves the name where a broker asks for it.")
]
Authorities = Annotated[
    Path | None, typer.Option("--authorities", metavar="PEM", help="Who signs the broker's certificate, if not the system's.")
]
Certificate = Annotated[Path | None, typer.Option("--certificate", metavar="PEM", help="Our own certificate, for mutual TLS.")]
Key = Annotated[Path | None, typer.Option("--key", metavar="PEM", help="The key of our certificate, if in a file of its own.")]
Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for a broker that is not there yet.")
]

_RETRY_S = 0.1
_ANSWER_S = 5.0
_LOOK_EVERY_S = 0.25


class Proof(msgspec.Struct, frozen=True):
    """By what a client shows who it is, and knows its broker."""

    name: str | None = None
    token: str | None = None
    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def filter_of(option: str, text: str) -> Filter:
    """The filter that was given as ``option``; an error names it.

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
def connected(option: str, url: str, proof: Proof, wait_s: float, advertise: bool = True) -> Iterator[BlockingClient]:
    """A client of the broker at ``url``, which was given as ``option``. Leaving waits for nothing: flush before."""
    address = parse_address(url, option)
    context = _context(address, proof)
    end_s = time.monotonic() + wait_s
    _wait_for(address, context, end_s)
    client = connect_blocking(
        url,
        **{name: getattr(proof, name) for name in proof.__struct_fields__},
        advertise=advertise,
        timeout_s=max(end_s - time.monotonic(), _ANSWER_S),
    )
    try:
        client.__enter__()
    except TimeoutError:
        raise OverweaveError(f"{address}: expected a broker, but what listens there does not answer as one") from None
    with contextlib.closing(client), _watched(client, address):
        yield client


def _context(address: Address, proof: Proof) -> ssl.SSLContext | None:
    given = {"--authorities": proof.authorities, "--certificate": proof.certificate, "--key": proof.key}
    if not address.tls:
        for option, file in given.items():
            if file is not None:
                raise InvalidInput(f"{option}: expected none for {address}, which is not tls://")
        return None
    if proof.key is not None and proof.certificate is None:
        raise InvalidInput("--certificate: expected a PEM file, as --key is given")
    if proof.certificate is not None and proof.authorities is None:
        raise InvalidInput("--authorities: expected a PEM file, as --certificate is given")
    security = SecuritySettings(
        authorities=proof.authorities, certificate=proof.certificate, key=proof.key, mutual=proof.certificate is not None
    )
    try:
        return client_context(security)
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("security.", "--", 1)) from None


def _wait_for(address: Address, context: ssl.SSLContext | None, end_s: float) -> None:
    """Return when somebody listens there, who is who we mean."""
    told = False
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
            if not told:
                say(f"waiting for {address}: {connect_error(error)}")
                told = True
        time.sleep(_RETRY_S)


@contextlib.contextmanager
def _watched(client: BlockingClient, address: Address) -> Iterator[None]:
    """Tell while the body runs when the broker goes away, and when it is back."""
    done = threading.Event()

    def watch() -> None:
        there = True
        while not done.wait(_LOOK_EVERY_S):
            if client.connected != there:
                there = not there
                say(f"{address} is back" if there else f"{address} is gone, waiting for it")

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
