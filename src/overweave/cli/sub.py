"""``overweave sub``: prints the publications that match a filter."""

import contextlib
import io
import select
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from overweave.cli.client_options import (
    CONNECT_TIMEOUT_S,
    CaFile,
    Certificate,
    ConnectTimeout,
    Credentials,
    Key,
    Name,
    Token,
    connected,
    filter_of,
    stall_reports,
)
from overweave.cli.output import put
from overweave.cli.terminal import is_watched, say, waiting
from overweave.drivers.tcp.blocking import BlockingClient, BlockingSubscription
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.messages import Publish
from overweave.language.predicates import Filter

EXAMPLE = """overweave sub --from tcp://127.0.0.1:7401 "[class,eq,'STOCK'],[volume,>,300000]" """.rstrip()

#: Lines per write, and the polling interval for a closed pipe.
LINES_MAX = 4096
_POLL_S = 0.25


def sub(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="Subscription, for example [volume,>,5].", show_default=False)],
    url: Annotated[str, typer.Option("--from", metavar="URL", help="Broker URL, tcp://HOST:PORT or tls://HOST:PORT.")],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Exit after N publications.")] = None,
    for_s: Annotated[float | None, typer.Option("--for", min=0, metavar="SECONDS", help="Exit after this time.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object per line.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="With --json: include the header of each publication.")] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
    connect_timeout: ConnectTimeout = CONNECT_TIMEOUT_S,
) -> None:
    """Print every publication that matches a filter, one per line, until Ctrl-C, SIGTERM or SIGHUP.

    Lines are not buffered. A lost connection is resumed, and nothing is printed twice. If the broker rejects the client,
    disconnects it as a slow consumer, or its session expired so that lines may be missing, the reason is one line on stderr,
    and the exit status is 1.

    With --headers a line is {"attributes": {…}, "publisher": …, "sequence": …, "published_at_s": …, "hops": …, "delay_s": …}. The
    delay is the difference of the clocks of both machines. inf and nan are null in JSON.
    """
    if headers and not json:
        raise InvalidInput("--headers: expected together with --json")
    wanted = filter_of("FILTER", filter)
    credentials = Credentials(name, token, cafile, certificate, key)
    _prepare()
    write = _put_headers if headers else _put_json if json else _put_text
    with (
        connected("--from", url, credentials, connect_timeout) as client,
        _subscribed(client, wanted, for_s) as publications,
        contextlib.closing(client),  # first, or the end of the subscription would wait for a lost broker
    ):
        if is_watched():
            say(f"subscribed at {url}")
        end_s = None if for_s is None else time.monotonic() + for_s
        while (count is None or count > 0) and (end_s is None or time.monotonic() < end_s):
            found = _next(publications, min(LINES_MAX, count or LINES_MAX), end_s)
            if found:
                write(found)
            elif _is_closed():
                raise BrokenPipeError
            if count is not None:
                count -= len(found)


@contextlib.contextmanager
def _subscribed(client: BlockingClient, wanted: Filter, within_s: float | None) -> Iterator[BlockingSubscription]:
    with contextlib.ExitStack() as stack:
        try:
            with stall_reports(lambda: True, lambda: "waiting: the subscription is not in force yet"):
                publications = stack.enter_context(client.subscribe(wanted, timeout_s=within_s))
        except TimeoutError:
            raise OverweaveError(f"FILTER: expected a confirmation of the broker within {within_s:g} s") from None
        yield publications


def _prepare() -> None:
    """Compile kernels before the connection: a client that does not respond meanwhile times out."""
    with waiting("preparing (first run: compiling takes half a minute)"):
        from overweave.drivers.tcp.warm import warm_up

        warm_up()


def _next(publications: BlockingSubscription, most: int, end_s: float | None) -> list[Publish]:
    """The publications received within the polling interval."""
    left_s = _POLL_S if end_s is None else max(min(end_s - time.monotonic(), _POLL_S), 0.0)
    try:
        return publications.get_many(left_s, most)
    except TimeoutError:
        return []


def _put_text(found: Sequence[Publish]) -> None:
    put("".join(f"{publish.publication}\n" for publish in found).encode())


def _put_json(found: Sequence[Publish]) -> None:
    put(b"".join(msgspec.json.encode(dict(publish.publication)) + b"\n" for publish in found))


def _put_headers(found: Sequence[Publish]) -> None:
    now_s = time.time()
    put(b"".join(msgspec.json.encode(_with_header(publish, now_s)) + b"\n" for publish in found))


def _with_header(publish: Publish, now_s: float) -> dict[str, object]:
    header = publish.header
    return {
        "attributes": dict(publish.publication),
        "publisher": header.publisher,
        "sequence": header.sequence,
        "published_at_s": header.published_at_s,
        "hops": header.hops,
        "delay_s": now_s - header.published_at_s,
    }


def _is_closed() -> bool:
    """Whether stdout is a closed pipe; a write would detect it, but there may be nothing to write."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
