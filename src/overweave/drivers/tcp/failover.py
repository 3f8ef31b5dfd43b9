"""Failover of a live client: when a broker is unreachable or has left the overlay, another broker of its network replaces it."""

import asyncio
import contextlib
from typing import Protocol

from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.attachment import Attachment
from overweave.errors import Refused

#: The time limit for one broker to accept the client, and the delay before all are tried again.
_TRY_S, _RETRY_S = 5.0, 1.0


class FailoverOwner(Protocol):
    """The attachments of a client."""

    @property
    def is_encrypted(self) -> bool:
        """Whether all connections use TLS."""

    def __contains__(self, attachment: Attachment) -> bool: ...

    def at(self, broker: str) -> Attachment | None:
        """The attachment to a broker."""

    def make(self, peer: str, address: Address) -> Attachment:
        """An attachment that does not serve the client yet."""

    def is_secondary(self, attachment: Attachment) -> bool:
        """Whether nothing depends on an attachment but a migration."""

    def fail_over(self, failed: Attachment, to: Attachment) -> None:
        """Leave an unreachable broker for another one."""


class FailoverWatch:
    """Waits for lost brokers, and tries others in the order of the address book; ``after_s`` None: never."""

    def __init__(self, attachments: FailoverOwner, after_s: float | None) -> None:
        self._attachments, self._after_s = attachments, after_s
        #: By lost attachment.
        self._tasks: dict[Attachment, asyncio.Task[None]] = {}
        #: The lost attachments by the attachments that may replace them.
        self._candidates: dict[Attachment, Attachment] = {}

    def on_lost(self, attachment: Attachment) -> None:
        """Wait for a broker to come back."""
        uplink = attachment.uplink
        if self._after_s is None or uplink.is_stopped or attachment in self._tasks:
            return
        if uplink.established.is_set():
            self._tasks[attachment] = asyncio.get_running_loop().create_task(self._watch(attachment, self._after_s))

    def on_connected(self, attachment: Attachment) -> None:
        """A lost broker has come back, or another one has accepted the client."""
        self.forget(attachment)
        failed = self._candidates.pop(attachment, None)
        if failed is not None and failed in self._attachments:
            self._attachments.fail_over(failed, attachment)

    def forget(self, attachment: Attachment) -> None:
        """Wait no longer."""
        task = self._tasks.pop(attachment, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Wait for nothing any more."""
        for attachment in list(self._tasks):
            self.forget(attachment)

    async def _watch(self, lost: Attachment, after_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await lost.has_left.wait()
        while True:
            if lost.uplink.is_stopped:
                return
            if not self._attachments.is_secondary(lost):
                for broker in sorted(lost.book, key=lambda each: not self._is_up(each)):
                    if await self._try(lost, broker):
                        return
            await asyncio.sleep(_RETRY_S)

    def _is_up(self, broker: str) -> bool:
        attachment = self._attachments.at(broker)
        return attachment is not None and attachment.is_up

    async def _try(self, lost: Attachment, broker: str) -> bool:
        """Whether a broker replaces a lost one."""
        known = self._attachments.at(broker)
        if known is not None:
            if known.is_up:
                self._attachments.fail_over(lost, known)
            return known.is_up
        try:
            address = lost.book.find(broker, tls=self._attachments.is_encrypted)
        except Refused:
            return False
        candidate = self._attachments.make(broker, address)
        self._candidates[candidate] = lost
        candidate.start()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TRY_S):
                    await candidate.wait_established()
        finally:
            self._candidates.pop(candidate, None)
            if candidate not in self._attachments:
                candidate.close()
        return candidate in self._attachments
