"""The client library for programs without an event loop.

::

    with connect_blocking("tcp://localhost:7401") as client:
        client.publish({"class": "STOCK", "volume": 7})
        with client.subscribe("[class,eq,'STOCK'],[volume,>,5]") as quotes:
            for publication in quotes:
                ...

One thread has an event loop with a `Client` in it, so acknowledgements and heartbeats go on whatever the program does. Every call
is handed to that thread and waits for its answer; any thread may call, and Ctrl-C ends the waiting.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from overweave.drivers.tcp.client import CONFIG, Client, Receipt, Subscription, connect
from overweave.errors import InvalidInput, OverweaveError, Refused
from overweave.language.codec import encode_publication
from overweave.language.messages import Publish
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

T = TypeVar("T")

#: A publication's content; a frame, which may have a payload of the same length too, is limited to twice as much.
CONTENT_BYTES_MAX = 7 << 20
#: How long leaving because of an error waits for the broker.
_LEAVE_S = 1.0
#: TLS says goodbye in both directions, and a loop that ends before leaves an open socket.
_GOODBYE_S = 0.1
#: So many bytes of publications may go out in one frame; how often to ask how much is unsettled, which takes time.
_FRAME_BYTES = 1 << 20
_ASK_EVERY = CONFIG.window // 16


class BlockingClient:
    """A client of one broker; use `connect_blocking`."""

    def __init__(self, client: Client, timeout_s: float | None) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=f"overweave {client.name}", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        #: Guards ``_open``: whoever finds it true may give work to the loop.
        self._lock = threading.Lock()
        self._open = False
        #: How many publications were handed over so far.
        self.published = 0
        #: Publications since it was last asked how much is unsettled.
        self._unasked = 0

    def __enter__(self) -> "BlockingClient":
        self._thread.start()
        self._started.wait()
        self._open = True
        try:
            self._call(self._client.__aenter__, self._timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self._open:
                self.flush()
        finally:
            self.close()

    @property
    def name(self) -> str:
        """What the broker calls this client."""
        return self._client.name

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; one that breaks is made again."""
        return self._client.connected

    @property
    def unsettled(self) -> int:
        """How many publications are on their way."""
        return self._call(self._count_unsettled)

    @property
    def unmatched(self) -> int:
        """How many of the publications that are settled matched nobody, since it was connected."""
        return self._client.unmatched

    def advertise(self, filter: str | Filter, *, wait: bool = True) -> str:
        """Say what will be published; the id with which it can be withdrawn: see `Client.advertise`."""
        return self._call(lambda: self._client.advertise(filter, wait=wait))

    def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement."""
        self._call(lambda: self._client.unadvertise(id))

    def publish(self, publication: Mapping[str, object], payload: bytes = b"") -> None:
        """Publish; waits only while too much is unsettled, or until it is advertised: see `Client.publish`."""
        self._call(lambda: self._publish([publication], payload))

    def publish_many(self, publications: Iterable[Mapping[str, object]]) -> None:
        """Publish several, which takes far less time than one by one."""
        contents = list(publications)
        self._call(lambda: self._publish(contents, b""))

    def flush(self, timeout_s: float | None = None) -> Receipt:
        """Wait until all that was said is settled, or raise `TimeoutError`; what became of it: see `Client.flush`."""
        return self._call(self._client.flush, timeout_s)

    def subscribe(self, filter: str | Filter, timeout_s: float | None = None, *, wait: bool = True) -> "BlockingSubscription":
        """What matches a filter, from entering the context until leaving it; `TimeoutError` if entering takes too long.

        See `Client.subscribe` for ``wait``.
        """
        return BlockingSubscription(self, self._call(lambda: self._subscription(filter, wait)), timeout_s)

    def close(self) -> None:
        """Leave for good, and end the thread; what was not flushed may be lost."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # ---- the thread

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stop.wait()
        await self._client.close()
        if self._client.is_encrypted:
            await asyncio.sleep(_GOODBYE_S)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Have the loop do something, and wait for it."""

        async def within() -> T:
            async with asyncio.timeout(timeout_s):
                return await work()

        # The loop's thread makes the coroutine: here Ctrl-C could come between making it and handing it over.
        begun: concurrent.futures.Future[concurrent.futures.Future[T]] = concurrent.futures.Future()
        with self._lock:
            if not self._open:
                raise Refused("closed", "the client was closed")
            loop = self._loop
            assert loop is not None
            loop.call_soon_threadsafe(lambda: begun.set_result(asyncio.run_coroutine_threadsafe(within(), loop)))
        try:
            return begun.result().result()
        except concurrent.futures.CancelledError:
            raise Refused("closed", "the client was closed") from None
        except BaseException:
            # Ctrl-C ends the work too, not only the waiting for it.
            begun.add_done_callback(lambda begun: begun.result().cancel())
            raise

    async def _count_unsettled(self) -> int:
        return self._client.unsettled

    async def _subscription(self, filter: str | Filter, wait: bool) -> Subscription:
        return self._client.subscribe(filter, wait=wait)

    async def _publish(self, publications: list[Mapping[str, object]], payload: bytes) -> None:
        contents = [each if isinstance(each, Publication) else Publication(each) for each in publications]
        sizes = [checked_size_bytes(content) + len(payload) for content in contents]
        together = 0
        for content, size in zip(contents, sizes, strict=True):
            together += size
            if together > _FRAME_BYTES:
                # What is published within one turn of the loop travels together, and a frame has its limits.
                await asyncio.sleep(0)
                together = size
            await self._client.publish(content, payload)
            self.published += 1
        self._unasked += len(contents)
        if self._unasked >= _ASK_EVERY:
            self._unasked = 0
            if self._client.unsettled >= CONFIG.window:
                await self._client.settle()


class BlockingSubscription:
    """What a filter receives, to be iterated over; `get` waits for one, `get_many` takes all that is there.

    Gaps are raised as by `Subscription`.
    """

    def __init__(self, client: BlockingClient, subscription: Subscription, timeout_s: float | None) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._subscription = subscription
        #: What the loop has handed over and nobody has taken: also when Ctrl-C came in between.
        self._rows: deque[Publish] = deque()
        self._batches = subscription.batches()
        self._turn = asyncio.Lock()

    def __enter__(self) -> "BlockingSubscription":
        self._client._call(self._subscription.__aenter__, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._client._open:
            return
        if kind is None:
            self._client._call(self._leave)
            return
        # A broker that is away must not keep an error from being seen.
        with contextlib.suppress(TimeoutError, OverweaveError):
            self._client._call(self._leave, _LEAVE_S)

    def __iter__(self) -> Iterator[Publication]:
        for publish in self.messages():
            yield publish.publication

    def messages(self) -> Iterator[Publish]:
        """Publications with their headers and payloads."""
        while True:
            yield self._one(None)

    def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication; `TimeoutError` if none comes in time."""
        return self._one(timeout_s).publication

    def get_many(self, timeout_s: float | None = None, most: int = 1024) -> list[Publish]:
        """The next ones, at least one and all that are there up to ``most``; `TimeoutError` if none comes in time."""
        found = [self._one(timeout_s)]
        while len(found) < most:
            try:
                found.append(self._rows.popleft())
            except IndexError:
                break
        return found

    def _one(self, timeout_s: float | None) -> Publish:
        while True:
            try:
                return self._rows.popleft()
            except IndexError:
                self._client._call(self._fill, timeout_s)

    async def _leave(self) -> None:
        await self._subscription.__aexit__(None, None, None)

    async def _fill(self) -> None:
        async with self._turn:
            while not self._rows or (self._subscription.pending and len(self._rows) < CONFIG.window):
                if self._rows and self._subscription.gap_is_next:
                    return
                try:
                    self._rows.extend((await anext(self._batches)).publishes())
                except BaseException:
                    # A generator that was interrupted has ended.
                    self._batches = self._subscription.batches()
                    raise


def connect_blocking(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    authorities: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    advertise: bool = True,
    timeout_s: float | None = None,
) -> BlockingClient:
    """A client of the broker at ``url`` for programs without an event loop, to be entered; the arguments are those of `connect`.

    Entering waits for the broker, for ever or for ``timeout_s``; then it raises `TimeoutError`.

    >>> connect_blocking("localhost:7401")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'localhost:7401'
    """
    client = connect(url, name=name, token=token, authorities=authorities, certificate=certificate, key=key, advertise=advertise)
    return BlockingClient(client, timeout_s)


def checked_size_bytes(publication: Publication) -> int:
    """How long a publication is on the wire; refused if that is more than fits there.

    >>> checked_size_bytes(Publication({"x": 1}))
    13
    """
    size = len(encode_publication(publication))
    if size > CONTENT_BYTES_MAX:
        raise InvalidInput(f"a publication: expected at most {CONTENT_BYTES_MAX:,} bytes, got {size:,}")
    return size
