"""All attachments of a live client: connections that come and go as its core orders, and failover."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Protocol

from overweave.broker.client import ClientCore
from overweave.contract.effects import Attach, Detach
from overweave.contract.frames import Frame
from overweave.contract.stimuli import AttachFailed, FailOver, FrameArrived, PeerConnected, PeerDisconnected, Stimulus
from overweave.contract.wire import Connect, Gap, Notice
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.attachment import Attachment, ClientIdentity
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.failover import FailoverWatch
from overweave.drivers.tcp.notices import Notices
from overweave.errors import Refused, SessionLost


class AttachedClient(Protocol):
    """The client that attachments serve."""

    core: ClientCore
    notices: Notices

    def handle(self, stimulus: Stimulus) -> None:
        """Pass a stimulus to the core."""

    def on_progress(self) -> None:
        """Something has arrived."""

    def notify(self) -> None:
        """Wake up all that wait for progress or for publications."""

    def fail(self, error: Refused) -> None:
        """End the client."""

    def set_window(self, window: int) -> None:
        """Brokers permit this number of unsettled publications."""

    def confirmed_filters(self, peer: str) -> int:
        """The number of filters that a broker must know if it has the session."""

    def on_session_lost(self, peer: str, error: SessionLost) -> None:
        """Publications of the subscriptions at one broker may be missing from here on."""

    def now_s(self) -> float:
        """The time in headers of publications."""

    def clock_s(self, monotonic_s: float) -> float:
        """A time of the monotonic clock as one of `now_s`."""


class Attachments:
    """The attachments of one client, by the names of their connections; implements `AttachmentOwner`."""

    def __init__(
        self, client: AttachedClient, identity: ClientIdentity, context: ssl.SSLContext | None, failover_s: float | None
    ) -> None:
        self._client, self._identity, self._context = client, identity, context
        self._by_peer: dict[str, Attachment] = {}
        #: The connections whose handshake is complete, by the same names.
        self.connections: dict[str, Connection] = {}
        self._failover = FailoverWatch(self, failover_s)

    def __iter__(self) -> Iterator[Attachment]:
        return iter(list(self._by_peer.values()))

    def __contains__(self, attachment: Attachment) -> bool:
        return self._by_peer.get(attachment.peer) is attachment

    @property
    def is_encrypted(self) -> bool:
        """Whether all connections use TLS."""
        return self._context is not None

    def at(self, broker: str) -> Attachment | None:
        """The attachment to a broker."""
        return next((each for each in self if broker in (each.broker, each.peer)), None)

    def make(self, peer: str, address: Address) -> Attachment:
        """An attachment that does not serve the client yet: see `add`."""
        return Attachment(peer, address, self._context, self._identity, self)

    def add(self, attachment: Attachment) -> None:
        """Let an attachment serve the client."""
        self._by_peer[attachment.peer] = attachment

    def stop(self) -> None:
        """Do not dial again."""
        self._failover.close()
        for each in self:
            each.uplink.stop()

    async def close(self) -> None:
        """Leave all brokers permanently."""
        self._failover.close()
        tasks = [task for each in self if (task := each.close()) is not None]
        for task in tasks:
            task.cancel()
        self.connections.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- orders of the core

    def attach(self, effect: Attach) -> None:
        """Dial one more broker, if the one that has ordered it has announced its address."""
        source = self._by_peer.get(effect.source)
        try:
            if source is None:
                raise Refused("unknown-broker", f"no broker has announced the address of {effect.peer!r}")
            address = source.book.find(effect.peer, tls=self.is_encrypted)
        except Refused as refused:
            self._client.handle(AttachFailed(effect.peer, refused.text))
            return
        attachment = self.make(effect.peer, address)
        self.add(attachment)
        attachment.start()

    def detach(self, effect: Detach) -> None:
        """Leave a broker permanently."""
        attachment = self._by_peer.pop(effect.peer, None)
        if attachment is not None:
            self._failover.forget(attachment)
            self.connections.pop(effect.peer, None)
            attachment.close()
            self._client.notices.reset(effect.peer)
            self._update_window()
            self._client.on_progress()  # nobody may wait for that broker any more

    def fail_over(self, failed: Attachment, to: Attachment) -> None:
        """Leave an unreachable broker for another one."""
        text = f"broker {failed.broker} is unreachable; broker {to.broker or to.peer} has the subscriptions of this client now"
        lost = SessionLost("failed-over", text, self._client.clock_s(failed.lost_s), self._client.now_s())
        self._client.on_session_lost(failed.peer, lost)
        self.add(to)
        self._client.handle(FailOver(failed.peer, to.peer))

    def is_secondary(self, attachment: Attachment) -> bool:
        """Whether nothing depends on an attachment but a migration."""
        return self._client.core.view.is_secondary(attachment.peer)

    # ---- what attachments report

    def on_open(self, attachment: Attachment) -> int:
        """See `AttachmentOwner.on_open`."""
        return self._client.confirmed_filters(attachment.peer)

    def on_connected(self, attachment: Attachment, message: Connect, *, is_other: bool) -> None:
        """See `AttachmentOwner.on_connected`."""
        peer, client, connection = attachment.peer, self._client, attachment.uplink.connection
        assert connection is not None
        self.connections[peer] = connection
        self._failover.on_connected(attachment)
        if attachment not in self:  # it was given up meanwhile
            del self.connections[peer]
            return
        client.core.name_broker(peer, message.name)
        if is_other:
            if not message.knows:
                client.on_session_lost(peer, self._session_lost(attachment, message.gap))
            client.notices.reset(peer)
            client.core.renew_epoch(peer)
        self._update_window()
        client.handle(PeerConnected(peer))

    def on_frame(self, attachment: Attachment, frame: Frame) -> None:
        """See `AttachmentOwner.on_frame`."""
        self._client.handle(FrameArrived(attachment.peer, frame))
        self._client.on_progress()

    def on_notice(self, attachment: Attachment, notice: Notice) -> None:
        """See `AttachmentOwner.on_notice`."""
        self._client.notices.add(attachment.peer, notice)

    def on_refused(self, attachment: Attachment, refused: Refused) -> None:
        """See `AttachmentOwner.on_refused`: only the loss of a home ends the client."""
        if attachment not in self:
            return
        if self.is_secondary(attachment):
            self._client.handle(AttachFailed(attachment.peer, refused.text))
        else:
            self._client.fail(refused)

    def on_lost(self, attachment: Attachment) -> None:
        """See `AttachmentOwner.on_lost`."""
        self.connections.pop(attachment.peer, None)
        if attachment in self:
            self._client.handle(PeerDisconnected(attachment.peer))
            self._client.notify()
            self._failover.on_lost(attachment)

    def _update_window(self) -> None:
        if self._by_peer:
            self._client.set_window(min(each.window for each in self))

    def _session_lost(self, attachment: Attachment, gap: Gap | None) -> SessionLost:
        """The error for subscriptions that the broker did not have for a while."""
        now_s, since_s = self._client.now_s(), self._client.clock_s(attachment.lost_s)
        if gap is None:
            broker = attachment.broker
            text = f"broker {broker} has lost subscriptions of this client; it may have restarted without state"
            return SessionLost("session-lost", text, since_s, now_s)
        return SessionLost(gap.code, gap.text, min(now_s - gap.ago_s, since_s), now_s, gap.rows)
