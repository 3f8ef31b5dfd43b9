"""``overweave sub``: print what a filter receives, line by line."""

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
    Authorities,
    Certificate,
    Credentials,
    Key,
    Name,
    Token,
    Wait,
    connected,
    filter_of,
)
from overweave.cli.output import put
from overweave.cli.terminal import is_watched, say, waiting
from overweave.drivers.tcp.blocking import BlockingClient, BlockingSubscription
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.messages import Publish
from overweave.language.predicates import Filter

EXAMPLE = """overweave sub --from tcp://127.0.0.1:7401 "[class,eq,'STOCK'],[volume,>,300000]" """.rstrip()

#: At most so many lines are written at once, and so often is looked whether anybody still reads.
LINES_MAX = 4096
_LOOK_EVERY_S = 0.25


def sub(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="What to print, as in [volume,>,5].", show_default=False)],
    url: Annotated[str, typer.Option("--from", metavar="URL", help="A broker, tcp://HOST:PORT or tls://HOST:PORT.")],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many publications.")] = None,
    for_s: Annotated[float | None, typer.Option("--for", min=0, metavar="SECONDS", help="End after so long.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object of attributes a line.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="With --json, write also where each comes from.")] = False,
    name: Name = None,
    token: Token = None,
    authorities: Authorities = None,
    certificate: Certificate = None,
    key: Key = None,
    wait: Wait = CONNECT_TIMEOUT_S,
) -> None:
    """Print every publication that matches a filter, one a line, until Ctrl-C.

    Lines are written as they come, so a pipe sees them at once. A broker that goes away is waited for, and nothing is printed
    twice. If the broker refuses us, cuts us off because we read too slowly, or has forgotten us for a while so that lines may be
    missing, that is one line on stderr, and the exit status is 1.

    With --headers a line is {"attributes": {…}, "publisher": …, "sequence": …, "published_at_s": …, "hops": …, "delay_s": …}. The
    delay is by the clocks of both machines. JSON has no inf and no nan; they are null.
    """
    if headers and not json:
        raise InvalidInput("--headers: expected together with --json")
    wanted = filter_of("FILTER", filter)
    proof = Credentials(name, token, authorities, certificate, key)
    _prepare()
    write = _put_headers if headers else _put_json if json else _put_text
    with (
        connected("--from", url, proof, wait) as client,
        _subscribed(client, wanted, for_s) as publications,
        contextlib.closing(client),  # or leaving the subscription would wait for a broker that may be gone
    ):
        if is_watched():
            say(f"subscribed at {url}")
        end_s = None if for_s is None else time.monotonic() + for_s
        while (count is None or count > 0) and (end_s is None or time.monotonic() < end_s):
            found = _next(publications, min(LINES_MAX, count or LINES_MAX), end_s)
            if found:
                write(found)
            elif _nobody_reads():
                raise BrokenPipeError
            if count is not None:
                count -= len(found)


@contextlib.contextmanager
def _subscribed(client: BlockingClient, wanted: Filter, within_s: float | None) -> Iterator[BlockingSubscription]:
    with contextlib.ExitStack() as stack:
        try:
            publications = stack.enter_context(client.subscribe(wanted, within_s))
        except TimeoutError:
            raise OverweaveError(f"FILTER: expected an answer of the broker within {within_s:g} s") from None
        yield publications


def _prepare() -> None:
    """Have kernels ready before anything comes, for a client that does not answer meanwhile is taken for dead."""
    with waiting("preparing (the first time ever this compiles for half a minute)"):
        from overweave.drivers.tcp.warm import warm_up

        warm_up()


def _next(publications: BlockingSubscription, most: int, end_s: float | None) -> list[Publish]:
    """What came, if anything did before it is time to look around."""
    left_s = _LOOK_EVERY_S if end_s is None else max(min(end_s - time.monotonic(), _LOOK_EVERY_S), 0.0)
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


def _nobody_reads() -> bool:
    """Whether stdout is a pipe that nobody will read from again; a write would tell, but nothing may come to be written."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, io.UnsupportedOperation, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
