"""The host of a client's core: its effects, publications, control messages and their settlement, over all attachments."""

import asyncio
import ssl
import time
from collections.abc import Callable, Collection
from typing import Protocol

from overweave.batches.raw import RawRows
from overweave.broker.client import ClientCore
from overweave.contract.effects import Attach, Deliver, Detach, Rejection
from overweave.contract.stimuli import Stimulus, TimerFired
from overweave.drivers.effect_runner import CLIENT_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.attachment import CONFIG, ClientIdentity
from overweave.drivers.tcp.attachments import Attachments
from overweave.drivers.tcp.lives import life_of
from overweave.drivers.tcp.notices import Notices
from overweave.drivers.tcp.outbox import Outbox
from overweave.errors import Refused, SessionLost
from overweave.language.messages import Control, Unadvertise, Unsubscribe


class DeliveryHandler(Protocol):
    """The receiver of publications."""

    def confirmed_filters(self, ids: Collection[str]) -> int:
        """The number of filters among some that a broker must know if it has the session."""

    def deliver(self, effect: Deliver) -> None:
        """Publications have arrived."""

    def on_session_lost(self, ids: Collection[str], error: SessionLost) -> None:
        """Publications that match some filters may be missing from here on."""

    def notify(self) -> None:
        """The client has failed or changed: waiting readers must check it."""


class ClientHost:
    """One client at all its brokers; implements `AttachedClient`."""

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext | None,
        identity: ClientIdentity,
        handler: DeliveryHandler,
        failover_s: float | None = None,
    ) -> None:
        self._handler = handler
        self._epoch_s = time.time() - time.monotonic()
        # Only traces need the first sequence number: it tells clients of one name apart there.
        first_sequence = time.time_ns() // 1_000 if identity.is_named else 0
        self.core = ClientCore(identity.name, "", CONFIG, first_sequence=first_sequence, life=life_of(identity.key))
        self.attachments = Attachments(self, identity, context, failover_s)
        self.attachments.add(self.attachments.make("", address))
        performers: Performers = {
            Deliver: handler.deliver,
            Rejection: self._on_rejection,
            Attach: self.attachments.attach,
            Detach: self.attachments.detach,
        }
        self._runner = EffectRunner(CLIENT_EFFECTS, self.attachments.connections, self._schedule, self._fire, performers)
        self.outbox = Outbox(self.send_rows)
        #: The most unsettled publications: the least that brokers grant.
        self.window = CONFIG.window
        self.notices = Notices()
        #: Control messages whose sender waits, by id, with the broker's rejection.
        self._awaited: dict[str, Refused | None] = {}
        self._progress = asyncio.Event()
        #: The error that ended the client permanently.
        self.error: Refused | None = None
        self.closed = False

    # ---- from start to end

    async def start(self) -> None:
        """Dial until the first broker has completed the handshake or rejected the client."""
        (first,) = self.attachments
        first.start()
        is_established = False
        try:
            is_established = await first.wait_established()
        finally:
            if not is_established:
                await self.close()
        self.check()

    async def close(self) -> None:
        """End all sessions; publications that are not flushed may be lost."""
        self.closed = True
        await self.attachments.close()
        self._runner.cancel_timers()
        self.notify()
        await asyncio.sleep(0)

    def check(self) -> None:
        """Raise `Refused` if the client has ended."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # it is raised again by every call; its traceback must not grow
        if self.closed:
            raise Refused("closed", "the client was closed")

    def fail(self, error: Refused) -> None:
        """See `AttachedClient.fail`."""
        self.error = error
        self.attachments.stop()

    def notify(self) -> None:
        """See `AttachedClient.notify`."""
        self._progress.set()
        self._handler.notify()

    # ---- sending

    def now_s(self) -> float:
        """The time in headers of publications: wall clock time that never jumps."""
        return self._epoch_s + time.monotonic()

    def clock_s(self, monotonic_s: float) -> float:
        """See `AttachedClient.clock_s`."""
        return self._epoch_s + monotonic_s

    @property
    def unsettled(self) -> int:
        """The number of publications that are not settled."""
        return self.core.unsettled_rows() + self.outbox.count

    def send_rows(self, rows: RawRows) -> None:
        """Send publications that have their headers."""
        self._runner.run(self.core.send(rows, self.now_s()))

    def post_control(self, message: Control, group: str | None = None) -> None:
        """Send a control message without waiting for it; a rejection ends the client."""
        self._runner.run(self.core.send_control(message, self.now_s(), group))

    def abandon(self, *withdrawals: Unadvertise | Unsubscribe) -> None:
        """Withdraw what its sender does not wait for any more, unless the client has ended."""
        for withdrawal in withdrawals if self.error is None and not self.closed else ():
            self.post_control(withdrawal)

    async def send_control(self, *messages: Control, group: str | None = None, wait: bool = True) -> None:
        """Send control messages after the outbox and wait until they are settled; `Refused` if the broker rejects one."""
        self.outbox.flush()
        if wait:
            self._awaited.update(dict.fromkeys(message.id for message in messages))
        try:
            for message in messages:
                self.post_control(message, group)
            if wait:
                await self.settle(until=lambda: any(self._awaited[message.id] is not None for message in messages))
        finally:
            rejected = [self._awaited.pop(message.id, None) for message in messages]
        for refused in rejected:
            if refused is not None:
                raise refused

    async def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until everything sent so far is settled, or ``until`` holds."""
        self.outbox.flush()
        barrier = self.core.barrier()
        while not barrier.settled and not until():
            await self.wait_for_progress()

    async def wait_for_progress(self) -> None:
        """Wait for the next message of a broker."""
        self.check()
        self._progress.clear()
        await self._progress.wait()
        self.check()

    # ---- the core

    def handle(self, stimulus: Stimulus) -> None:
        """See `AttachedClient.handle`."""
        self._runner.run(self.core.handle(stimulus, self.now_s()))

    def on_progress(self) -> None:
        """See `AttachedClient.on_progress`."""
        self._progress.set()

    def set_window(self, window: int) -> None:
        """See `AttachedClient.set_window`."""
        self.window = window
        self.core.set_window(window)

    def confirmed_filters(self, peer: str) -> int:
        """See `AttachedClient.confirmed_filters`."""
        return self._handler.confirmed_filters(self.core.view.subscriptions(peer))

    def on_session_lost(self, peer: str, error: SessionLost) -> None:
        """See `AttachedClient.on_session_lost`."""
        self._handler.on_session_lost(self.core.view.subscriptions(peer), error)

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        return asyncio.get_running_loop().call_later(max(at_s - self.now_s(), 0.0), action, name)

    def _fire(self, name: str) -> None:
        self.handle(TimerFired(name))

    def _on_rejection(self, effect: Rejection) -> None:
        """Pass a rejection to the sender that waits; without one, as after a resend to a restarted broker, the client ends."""
        refused = Refused(effect.code, effect.text)
        if effect.id in self._awaited:
            self._awaited[effect.id] = refused
        elif not effect.withdrawal:
            self.fail(refused)
            self.notify()
