"""Publishing of a client: the window of unsettled publications, receipts and automatic advertisements."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.contract.wire import payload_max
from overweave.drivers.tcp.advertiser import Advertiser
from overweave.drivers.tcp.client_host import ClientHost
from overweave.drivers.tcp.outbox import BYTES_MAX
from overweave.errors import InvalidInput
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Unadvertise
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

_ROW_BYTES_MAX = payload_max(1)


class Receipt(msgspec.Struct, frozen=True):
    """The number of settled publications, and of the unmatched ones among them.

    Unmatched ones went nowhere from their first broker. If a broker restarted, the outcome of some is unknown; they count as
    forwarded.

    >>> Receipt(published=10, unmatched=3).forwarded
    7
    """

    published: int
    unmatched: int

    @property
    def forwarded(self) -> int:
        """The number of publications that went to subscribers or to other brokers."""
        return self.published - self.unmatched


class EncodedRows(RawRows):
    """Rows made by `Client.encode`."""

    #: The source of the rows, until it is advertised.
    contents: Sequence[Publication] = ()


class Publisher:
    """Publishes for one client; ``new_id`` gives the ids of advertisements."""

    def __init__(self, name: str, host: ClientHost, new_id: Callable[[], str], *, advertise: bool) -> None:
        self._name, self._host, self._new_id = name, host, new_id
        self._advertiser = Advertiser() if advertise else None
        #: Publications wait for it in order while something is advertised first.
        self._advertising = asyncio.Lock()
        self._waiting = 0
        #: The counts of the last receipt.
        self._receipted = Receipt(0, 0)

    async def advertise(self, filter: Filter, *, wait: bool) -> str:
        """Advertise a filter; the id of the advertisement."""
        id = await self._send(filter, wait=wait)
        if self._advertiser is not None:
            self._advertiser.add(id, filter)
        return id

    async def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement after its publications are settled: they may have to be sent again."""
        await self._host.settle()
        if self._advertiser is not None:
            self._advertiser.remove(id)
        await self._host.send_control(Unadvertise(id))

    async def publish(self, content: Publication, payload: bytes) -> None:
        """Publish one; waits while the window is full, or until it is advertised."""
        host = self._host
        host.check()
        if host.notices.pending is not None:
            host.notices.raise_pending()
        if self._advertiser is not None and (self._waiting or self._advertiser.missing(content) is not None):
            await self._advertise_first((content,))
        core, outbox = host.core, host.outbox
        header = Header(self._name, core.next_sequence + outbox.count, host.now_s(), core.life)
        row = encode_rows((Publish(content, header, payload),))
        _check_length(len(row))
        is_full = outbox.add(row)
        if is_full or core.unsettled_rows() + outbox.count >= host.window:
            outbox.flush()
            await self._wait_for_window()

    async def publish_encoded(self, rows: RawRows) -> None:
        """Publish encoded rows; those made by `encode` are advertised first."""
        host = self._host
        host.notices.raise_pending()
        if self._advertiser is not None and isinstance(rows, EncodedRows) and (rows.contents or self._waiting):
            await self._advertise_first(rows.contents)
            rows.contents = ()
        host.outbox.flush()
        await self._wait_for_window()
        pieces = list(rows.renumbered(host.core.next_sequence, host.now_s()).chunks(BYTES_MAX))
        _check_length(max(len(piece.data) for piece in pieces))
        for piece in pieces:
            host.send_rows(piece)

    def encode(self, publications: Sequence[Mapping[str, object]], payload: bytes) -> EncodedRows:
        """Publications as rows of this client."""
        contents = [each if isinstance(each, Publication) else Publication(each) for each in publications]
        header = Header(self._name, life=self._host.core.life)
        rows = EncodedRows(encode_rows(Publish(content, header, payload) for content in contents), len(contents))
        rows.contents = contents
        return rows

    async def flush(self) -> Receipt:
        """Wait until everything sent so far is settled; the counts since the last receipt."""
        host = self._host
        await host.settle()
        if host.error is not None:
            raise host.error.with_traceback(None)
        host.notices.raise_pending()
        before = self._receipted
        now = self._receipted = Receipt(host.core.settled_publications(), host.core.unmatched_publications())
        return Receipt(now.published - before.published, now.unmatched - before.unmatched)

    async def _advertise_first(self, contents: Sequence[Publication]) -> None:
        """Advertise what is not advertised yet, after earlier publications; later ones wait in order."""
        assert self._advertiser is not None
        self._waiting += 1
        try:
            async with self._advertising:
                for content in contents:
                    filter = self._advertiser.missing(content)
                    if filter is not None:
                        await self._send(filter)
                        self._advertiser.advertised(content)
        finally:
            self._waiting -= 1

    async def _send(self, filter: Filter, *, wait: bool = True) -> str:
        """Advertise a filter, or nothing if the wait is cancelled: nobody would know the advertisement."""
        id = self._new_id()
        try:
            await self._host.send_control(Advertise(id, filter), wait=wait)
        except asyncio.CancelledError:
            self._host.abandon(Unadvertise(id))
            raise
        return id

    async def _wait_for_window(self) -> None:
        """Wait while the window is full."""
        host = self._host
        while host.core.unsettled_rows() >= host.window:
            await host.wait_for_progress()


def _check_length(length: int) -> None:
    if length > _ROW_BYTES_MAX:
        raise InvalidInput(f"publication: expected at most {_ROW_BYTES_MAX:,} bytes with its payload, got {length:,}")
