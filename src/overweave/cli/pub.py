"""``overweave pub``: publishes the lines of a file or of standard input."""

import contextlib
import time
from collections.abc import Iterable, Iterator
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
from overweave.cli.line_reader import STDIN, BadLines, LineFile, open_lines, parsed
from overweave.cli.output import put
from overweave.cli.stopping import Terminated
from overweave.cli.terminal import progress, say
from overweave.drivers.tcp.blocking import BlockingClient, checked_size_bytes
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_publication

EXAMPLE = """echo "[class,'STOCK'],[volume,400000]" | overweave pub --to tcp://127.0.0.1:7401"""

#: The largest batch, and the interval of batches at a given rate.
ROWS_MAX = 1024
_TICK_S = 0.01
#: The delay that a later burst may catch up.
_SLACK_S = 0.1
#: The flush timeout after Ctrl-C.
_LAST_S = 2.0


def pub(
    to: Annotated[str, typer.Option("--to", metavar="URL", help="Broker URL, tcp://HOST:PORT or tls://HOST:PORT.")],
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="One publication per line; - is stdin.")] = STDIN,
    advertise: Annotated[list[str] | None, typer.Option(metavar="FILTER", help="Advertisement; may be repeated.")] = None,
    rate: Annotated[float | None, typer.Option(metavar="HZ", help="Maximum publications per second.")] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Number of passes over the file.")] = 1,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and count invalid lines instead of stopping.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help='Write {"published": n, "settled": n, "unmatched": n, "seconds": s}.')
    ] = False,
    name: Name = None,
    token: Token = None,
    cafile: CaFile = None,
    certificate: Certificate = None,
    key: Key = None,
    connect_timeout: ConnectTimeout = CONNECT_TIMEOUT_S,
) -> None:
    """Publish lines, and exit when every subscriber has acknowledged them.

    The summary counts the publications, the settled ones, and those without a matching subscription.

    Without --advertise every class is advertised before its first publication: [class,eq,'X'] and the attributes of that class.
    With --advertise a publication outside all advertisements reaches no subscriber, and the exit status is 1.

    Without --skip-bad the first invalid line ends the run with exit status 2; earlier lines are published. Ctrl-C, SIGTERM
    and SIGHUP flush for at most 2 seconds. Files that end in .gz are decompressed.
    """
    if rate is not None and not rate > 0:
        raise InvalidInput(f"--rate: expected more than 0, got {rate:g}")
    if repeat > 1 and file == STDIN:
        raise InvalidInput("--repeat: expected a file, as standard input cannot be read twice")
    filters = [filter_of("--advertise", text) for text in advertise or ()]
    bad = BadLines(skip_bad)
    credentials = Credentials(name, token, cafile, certificate, key)
    with open_lines(file) as first, connected("--to", to, credentials, connect_timeout, advertise=not filters) as client:
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
    """Publishes batches and counts the results."""

    def __init__(self, client: BlockingClient, filters: Iterable[Filter]) -> None:
        self._client = client
        self._filters = list(filters)
        self._start_s = time.monotonic()
        self.published = 0
        self.settled = 0
        #: Settled publications without a matching subscription.
        self.unmatched = 0
        self.seconds = 0.0
        #: Whether the network is awaited, rather than the input.
        self._is_waiting = False

    def publish_all(self, batches: Iterable[list[Publication]]) -> None:
        """Publish all batches and flush; after an error the flush has a short timeout. A wait without progress is reported."""
        with stall_reports(self._progress, self._stall_text):
            self._publish_all(batches)

    def _publish_all(self, batches: Iterable[list[Publication]]) -> None:
        last_s: float | None = _LAST_S
        try:
            for filter in self._filters:
                with self._waiting():
                    self._client.advertise(filter)
            for batch in batches:
                with self._waiting():
                    self._client.publish_many(batch)
            last_s = None
        except InvalidInput:
            # The lines before an invalid one are published.
            last_s = None
            raise
        finally:
            self._settle(last_s)

    def _settle(self, last_s: float | None) -> None:
        try:
            with contextlib.suppress(TimeoutError), self._waiting():
                self._client.flush(last_s)
        except (KeyboardInterrupt, Terminated):
            with contextlib.suppress(TimeoutError, OverweaveError):
                self._client.flush(_LAST_S)
            raise
        finally:
            self.published, self.seconds = self._client.published, time.monotonic() - self._start_s
            self.settled = max(self.published - self._client.unsettled, 0)
            self.unmatched = self._client.unmatched

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def _progress(self) -> object:
        """What changes while the network makes progress; None if it is not awaited, or its loss is reported already."""
        waits = self._is_waiting and self._client.connected
        return (self._client.published, self._client.unsettled) if waits else None

    def _stall_text(self) -> str:
        unsettled = self._client.unsettled
        return f"waiting: {unsettled:,} unsettled" if unsettled else "waiting: an advertisement is not in force yet"


def _read(path: str, first: LineFile, repeat: int, bad: BadLines) -> Iterator[list[Publication]]:
    """Batches of publications, from ``first`` and then from the same file, reopened."""
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
    """Smaller batches, paced to the rate."""
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
    counts = f"published {publisher.published:,}, settled {publisher.settled:,}, unmatched {publisher.unmatched:,}"
    say(f"{counts} in {publisher.seconds:.3g} s")
