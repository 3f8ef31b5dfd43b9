"""The client library for programs without an event loop.

::

    with connect_blocking("tcp://localhost:7401") as client:
        client.publish({"class": "STOCK", "volume": 7})
        with client.subscribe("[class,eq,'STOCK'],[volume,>,5]") as quotes:
            for publication in quotes:
                ...

A `Client` runs in an event loop in a thread of its own, so acknowledgements and pings continue whatever the program does. Every
call runs in that thread and waits for its result; any thread may call, and Ctrl-C ends the wait.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from overweave.drivers.tcp.client import CONFIG, FAILOVER_S, Client, Receipt, Subscription, connect
from overweave.drivers.tcp.loop_thread import LoopThread
from overweave.drivers.tcp.outbound_handshake import connect_error
from overweave.errors import InvalidInput, OverweaveError, Refused
from overweave.language.codec import encode_publication
from overweave.language.messages import Publish
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

#: The most bytes of a publication's content; a frame, which may have a payload of the same length, is limited to twice that.
CONTENT_BYTES_MAX = 7 << 20
#: The time limit for the broker when a subscription ends because of an error.
_LEAVE_S = 1.0
#: The time for the closing handshake of TLS; a loop that ends earlier leaves an open socket.
_GOODBYE_S = 0.1
#: The most bytes of publications in one frame.
_FRAME_BYTES = 1 << 20
#: Publications between two checks of the window, which take time.
_CHECK_EVERY = CONFIG.window // 16


class BlockingClient:
    """A client of a network; use `connect_blocking`."""

    def __init__(self, client: Client, timeout_s: float | None) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._thread = LoopThread(f"overweave {client.name}", self._leave)
        #: The number of publications so far.
        self.published = 0
        #: Publications since the last check of the window.
        self._unchecked = 0

    def __enter__(self) -> "BlockingClient":
        self._thread.start()
        try:
            self._thread.call(self._client.__aenter__, self._timeout_s)
        except TimeoutError:
            self.close()
            uplink = self._client.attachments[0].uplink
            hint = "" if uplink.address.tls else "; if it speaks TLS, use tls://"
            found = f"no answer{hint}" if uplink.error is None else connect_error(uplink.error)
            found = found if self.rejection is None else str(self.rejection)
            raise TimeoutError(f"{uplink.address}: expected a broker within {self._timeout_s:g} s, found {found}") from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None and self._thread.is_open:
                self.flush()
        finally:
            self.close()

    @property
    def name(self) -> str:
        """The name of this client at the broker."""
        return self._client.name

    @property
    def broker(self) -> str:
        """See `Client.broker`."""
        return self._client.broker

    @property
    def connected(self) -> bool:
        """Whether there is a connection now; a broken one is restored."""
        return self._client.connected

    @property
    def rejection(self) -> Refused | None:
        """The last rejection, while the client waits for a broker that may serve it later."""
        return next((each.rejection for each in self._client.attachments if each.rejection is not None), None)

    @property
    def unsettled(self) -> int:
        """The number of publications that are not settled."""
        return self._thread.call(self._count_unsettled)

    @property
    def unmatched(self) -> int:
        """The number of settled publications that were unmatched, since the start."""
        return self._client.unmatched

    def advertise(self, filter: str | Filter, *, wait: bool = True) -> str:
        """Advertise future publications; the id with which the advertisement can be withdrawn: see `Client.advertise`."""
        return self._thread.call(lambda: self._client.advertise(filter, wait=wait))

    def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement."""
        self._thread.call(lambda: self._client.unadvertise(id))

    def publish(self, publication: Mapping[str, object], payload: bytes = b"") -> None:
        """Publish; waits only while the window is full, or until it is advertised: see `Client.publish`."""
        self._thread.call(lambda: self._publish([publication], payload))

    def publish_many(self, publications: Iterable[Mapping[str, object]]) -> None:
        """Publish several, which is much faster than one by one."""
        contents = list(publications)
        self._thread.call(lambda: self._publish(contents, b""))

    def flush(self, timeout_s: float | None = None) -> Receipt:
        """Wait until everything sent before is settled, or raise `TimeoutError`; for the receipt see `Client.flush`."""
        with _timeout_text("flush: expected everything to be settled", timeout_s):
            return self._thread.call(self._client.flush, timeout_s)

    def subscribe(self, *filters: str | Filter, timeout_s: float | None = None, wait: bool = True) -> "BlockingSubscription":
        """A subscription to publications that match any of the filters, from entering the context until leaving it.

        `TimeoutError` if entering takes longer than ``timeout_s``. See `Client.subscribe` for ``wait``.
        """
        return BlockingSubscription(self._thread, self._thread.call(lambda: self._subscription(filters, wait)), timeout_s)

    def close(self) -> None:
        """Leave permanently, and end the thread; publications that are not flushed may be lost."""
        self._thread.stop()

    # ---- in the thread of the loop

    async def _leave(self) -> None:
        await self._client.close()
        if self._client.is_encrypted:
            await asyncio.sleep(_GOODBYE_S)

    async def _count_unsettled(self) -> int:
        return self._client.unsettled

    async def _subscription(self, filters: Sequence[str | Filter], wait: bool) -> Subscription:
        return self._client.subscribe(*filters, wait=wait)

    async def _publish(self, publications: list[Mapping[str, object]], payload: bytes) -> None:
        contents = [each if isinstance(each, Publication) else Publication(each) for each in publications]
        sizes = [checked_size_bytes(content) + len(payload) for content in contents]
        together = 0
        for content, size in zip(contents, sizes, strict=True):
            together += size
            if together > _FRAME_BYTES:
                # Publications of one turn of the loop are sent together, and a frame has its limits.
                await asyncio.sleep(0)
                together = size
            await self._client.publish(content, payload)
            self.published += 1
        self._unchecked += len(contents)
        if self._unchecked >= _CHECK_EVERY:
            self._unchecked = 0
            if self._client.unsettled >= CONFIG.window:
                await self._client.settle()


class BlockingSubscription:
    """The publications that match a filter, to be iterated over; `get` waits for one, `get_many` returns all pending ones.

    Gaps are raised as by `Subscription`.
    """

    def __init__(self, thread: LoopThread, subscription: Subscription, timeout_s: float | None) -> None:
        self._thread = thread
        self._timeout_s = timeout_s
        self._subscription = subscription
        #: Publications that the loop has passed on and the program has not consumed, even if Ctrl-C came in between.
        self._rows: deque[Publish] = deque()
        self._batches = subscription.batches()
        self._turn = asyncio.Lock()

    def __enter__(self) -> "BlockingSubscription":
        with _timeout_text("subscribe: expected the subscription to be in force", self._timeout_s):
            self._thread.call(self._subscription.__aenter__, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._thread.is_open:
            return
        if kind is None:
            self._thread.call(self._leave)
            return
        # A missing broker must not hide the error.
        with contextlib.suppress(TimeoutError, OverweaveError):
            self._thread.call(self._leave, _LEAVE_S)

    def __iter__(self) -> Iterator[Publication]:
        for publish in self.messages():
            yield publish.publication

    def messages(self) -> Iterator[Publish]:
        """Publications with their headers and payloads."""
        while True:
            yield self._one(None)

    def get(self, timeout_s: float | None = None) -> Publication:
        """The next publication; `TimeoutError` if none arrives in time."""
        return self._one(timeout_s).publication

    def get_many(self, timeout_s: float | None = None, most: int = 1024) -> list[Publish]:
        """The pending publications, at least one and at most ``most``; `TimeoutError` if none arrives in time."""
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
                with _timeout_text("expected a publication", timeout_s):
                    self._thread.call(self._fill, timeout_s)

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
                    # An interrupted generator has ended.
                    self._batches = self._subscription.batches()
                    raise


@contextlib.contextmanager
def _timeout_text(text: str, timeout_s: float | None) -> Iterator[None]:
    """Timeouts with a text."""
    try:
        yield
    except TimeoutError:
        raise TimeoutError(f"{text} within {timeout_s:g} s") from None


def connect_blocking(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    authorities: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    advertise: bool = True,
    failover_s: float | None = FAILOVER_S,
    timeout_s: float | None = None,
) -> BlockingClient:
    """A client of the broker at ``url`` for programs without an event loop, to be entered; the arguments are those of `connect`.

    Entering waits for the broker, for ever or for ``timeout_s``; then it raises `TimeoutError`.

    >>> connect_blocking("localhost:7401")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'localhost:7401'
    """
    client = connect(
        url,
        name=name,
        token=token,
        authorities=authorities,
        certificate=certificate,
        key=key,
        advertise=advertise,
        failover_s=failover_s,
    )
    return BlockingClient(client, timeout_s)


def checked_size_bytes(publication: Publication) -> int:
    """The size of a publication on the wire; `InvalidInput` if it is too large.

    >>> checked_size_bytes(Publication({"x": 1}))
    13
    """
    size = len(encode_publication(publication))
    if size > CONTENT_BYTES_MAX:
        raise InvalidInput(f"a publication: expected at most {CONTENT_BYTES_MAX:,} bytes, got {size:,}")
    return size
