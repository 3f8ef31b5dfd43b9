"""``overweave pub``: publish the lines of a file, or of standard input as they come."""

import contextlib
import time
from collections.abc import Iterable, Iterator
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
from overweave.cli.line_reader import STDIN, BadLines, LineFile, open_lines, parsed
from overweave.cli.output import put
from overweave.cli.terminal import progress, say
from overweave.drivers.tcp.blocking import BlockingClient, checked_size_bytes
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_publication

EXAMPLE = """echo "[class,'STOCK'],[volume,400000]" | overweave pub --to tcp://127.0.0.1:7401"""

#: At most so many publications are handed to the client at once, and at a given rate those of so long.
ROWS_MAX = 1024
_TICK_S = 0.01
#: A slow reader may be made up for by so much.
_SLACK_S = 0.1
#: How long Ctrl-C waits for what was sent.
_LAST_S = 2.0


def pub(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="A broker, tcp://HOST:PORT or tls://HOST:PORT.")],
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="One publication a line; - is stdin.")] = STDIN,
    advertise: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="What will be published; several times for several filters.")
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="HZ", help="At most so many publications a second.")] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Publish the whole file so many times.")] = 1,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count bad lines instead of stopping.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help='Write {"published": n, "settled": n, "unmatched": n, "seconds": s} at the end.')
    ] = False,
    name: Name = None,
    token: Token = None,
    authorities: Authorities = None,
    certificate: Certificate = None,
    key: Key = None,
    wait: Wait = CONNECT_TIMEOUT_S,
) -> None:
    """Publish lines, and end when every subscriber has them.

    At the end it says how many were published, how many of them are settled, and how many matched nobody at the broker.

    Without --advertise the classes of what is published are advertised before they are: [class,eq,'X'] and the attributes that
    publications of that class have. With it, a publication that none of the filters covers reaches nobody: exit status 1.

    Without --skip-bad the first bad line ends the run: exit status 2, after the lines before it. Ctrl-C waits a moment for what
    was sent. Files that end in .gz are decompressed.
    """
    if rate is not None and not rate > 0:
        raise InvalidInput(f"--rate: expected more than 0, got {rate:g}")
    if repeat > 1 and file == STDIN:
        raise InvalidInput("--repeat: expected a file, as standard input can be read only once")
    filters = [filter_of("--advertise", text) for text in advertise or ()]
    bad = BadLines(skip_bad)
    proof = Credentials(name, token, authorities, certificate, key)
    with open_lines(file) as first, connected("--to", to, proof, wait, advertise=not filters) as client:
        publisher = Publisher(client, filters)
        try:
            publisher.publish_all(_paced(_read(file, first, repeat, bad), rate))
        finally:
            _report(publisher, bad)
    if json:
        counts = {"published": publisher.published, "settled": publisher.settled, "unmatched": publisher.unmatched}
        answer: dict[str, object] = {**counts, "seconds": publisher.seconds}
        put(msgspec.json.encode(answer | ({"skipped_count": bad.count} if skip_bad else {})) + b"\n")


class Publisher:
    """Publishes, and says at the end how much it was and what became of it."""

    def __init__(self, client: BlockingClient, filters: Iterable[Filter]) -> None:
        self._client = client
        self._filters = list(filters)
        self._start_s = time.monotonic()
        self.published = 0
        self.settled = 0
        #: How many of those that are settled matched nobody.
        self.unmatched = 0
        self.seconds = 0.0

    def publish_all(self, batches: Iterable[list[Publication]]) -> None:
        """Publish, and return when all is settled, or shortly after something went wrong."""
        last_s: float | None = _LAST_S
        try:
            for filter in self._filters:
                self._client.advertise(filter)
            for batch in batches:
                self._client.publish_many(batch)
            last_s = None
        except InvalidInput:
            # A bad line is no reason to lose those before it.
            last_s = None
            raise
        finally:
            self._settle(last_s)

    def _settle(self, last_s: float | None) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                self._client.flush(last_s)
        except KeyboardInterrupt:
            with contextlib.suppress(TimeoutError, OverweaveError):
                self._client.flush(_LAST_S)
            raise
        finally:
            self.published, self.seconds = self._client.published, time.monotonic() - self._start_s
            self.settled = max(self.published - self._client.unsettled, 0)
            self.unmatched = self._client.unmatched


def _read(path: str, first: LineFile, repeat: int, bad: BadLines) -> Iterator[list[Publication]]:
    """The publications of ``first`` in batches, and then those of the same file, opened again."""
    for turn in range(repeat):
        with contextlib.nullcontext(first) if turn == 0 else open_lines(path) as file:
            shown = repeat == 1 and not file.interactive
            with progress("publishing", file.size_bytes, shown) as done:
                for batch in parsed(file, _publication, bad):
                    yield [publication for publication in batch if publication is not None]
                    done(file.position_bytes)


def _publication(text: str, _: int) -> Publication:
    publication = parse_publication(text)
    checked_size_bytes(publication)
    return publication


def _paced(batches: Iterable[list[Publication]], rate_hz: float | None) -> Iterator[list[Publication]]:
    """The same in smaller batches, each when its time has come."""
    rows = ROWS_MAX if rate_hz is None else max(1, min(int(rate_hz * _TICK_S), ROWS_MAX))
    due_s = time.monotonic()
    for batch in batches:
        for start in range(0, len(batch), rows):
            some = batch[start : start + rows]
            if rate_hz is not None:
                now_s = time.monotonic()
                time.sleep(max(due_s - now_s, 0.0))
                due_s = max(due_s, now_s - _SLACK_S) + len(some) / rate_hz
            yield some


def _report(publisher: Publisher, bad: BadLines) -> None:
    if bad.count:
        say(f"skipped {bad.count} bad line{'s' * (bad.count != 1)}")
        for problem in bad.first:
            say(problem)
    counts = f"published {publisher.published:,}, settled {publisher.settled:,}, matched nobody {publisher.unmatched:,}"
    say(f"{counts} in {publisher.seconds:.3g} s")
