"""An attachment: a client's session with one broker. It joins a client core to an uplink."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from overweave.batches.raw import RawRows
from overweave.broker.client import ClientCore
from overweave.contract.config import CLIENT_WINDOW, SessionConfig
from overweave.contract.effects import Deliver, Rejection
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.contract.wire import Connect, Disconnect, Error, Gap, Message, Notice, Ping
from overweave.drivers.effect_runner import CLIENT_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.tcp.addresses import Address
from overweave.drivers.tcp.client_keys import TAKEN_OVER
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.lives import life_of
from overweave.drivers.tcp.notices import Notices
from overweave.drivers.tcp.outbox import Outbox
from overweave.drivers.tcp.uplink import Uplink
from overweave.errors import Refused, SessionLost
from overweave.language.messages import Control

CONFIG = SessionConfig(window=CLIENT_WINDOW, acknowledge_every=256, acknowledge_delay_s=0.005)
#: Errors after which a reconnect makes no sense.
_FATAL = frozenset(
    ("unauthorized", "bad-name", "name-in-use", "version", "not-allowed", "bad-frame", "bad-id", "bad-publication", TAKEN_OVER)
) | {"limit-exceeded", "slow-consumer"}


class ClientIdentity(NamedTuple):
    """What a client presents to brokers."""

    name: str
    token: str | None
    #: The key of its sessions: it resumes them, and no other client knows it.
    key: str
    #: Whether the name was given, so that other clients may have had it before.
    is_named: bool


class AttachmentHandler(Protocol):
    """The receiver of publications."""

    @property
    def confirmed_filters(self) -> int:
        """The number of filters that the broker must know if it has the session."""

    def deliver(self, effect: Deliver) -> None:
        """Publications have arrived."""

    def on_session_lost(self, error: SessionLost) -> None:
        """Publications may be missing from here on."""

    def notify(self) -> None:
        """The attachment has failed or changed: waiting readers must check it."""


class Attachment:
    """A session with one broker: control messages, publications and their settlement."""

    def __init__(
        self, address: Address, context: ssl.SSLContext | None, identity: ClientIdentity, handler: AttachmentHandler
    ) -> None:
        self._identity, self._handler = identity, handler
        self.uplink = Uplink(address, context, self)
        self._epoch_s = time.time() - time.monotonic()
        # Only traces need the first sequence number: it tells clients of one name apart there.
        first_sequence = time.time_ns() // 1_000 if identity.is_named else 0
        self.core = ClientCore(identity.name, "", CONFIG, first_sequence=first_sequence, life=life_of(identity.key))
        performers: Performers = {Deliver: handler.deliver, Rejection: self._on_rejection}
        self._runner = EffectRunner(CLIENT_EFFECTS, self.uplink, self._schedule, self._fire, performers)
        self.outbox = Outbox(self.send_rows)
        #: The most unsettled publications; the broker may grant fewer than the default.
        self.window = CONFIG.window
        #: The broker's token for the session; another one means another session.
        self._resume_token: str | None = None
        self.notices = Notices()
        #: When the last message arrived before the connection was lost.
        self._lost_s = 0.0
        #: Control messages whose sender waits, by id, with the broker's rejection.
        self._awaited: dict[str, Refused | None] = {}
        self._progress = asyncio.Event()
        #: The error that ended the session for good.
        self.error: Refused | None = None
        self.closed = False
        self._dialler: asyncio.Task[None] | None = None

    # ---- from start to end

    async def start(self) -> None:
        """Dial until the broker has completed the handshake or rejected the client."""
        loop = asyncio.get_running_loop()
        self._dialler = loop.create_task(self._dial())
        established = loop.create_task(self.uplink.established.wait())
        try:
            await asyncio.wait((self._dialler, established), return_when=asyncio.FIRST_COMPLETED)
        finally:
            established.cancel()
            if not self.uplink.established.is_set():
                await self.close()
        self.check()

    async def close(self) -> None:
        """End the session; publications that are not flushed may be lost."""
        self.closed = True
        if self._dialler is not None:
            self._dialler.cancel()
            await asyncio.gather(self._dialler, return_exceptions=True)
        self.uplink.close()
        self._runner.cancel_timers()
        self._notify()
        await asyncio.sleep(0)

    def check(self) -> None:
        """Raise `Refused` if the session has ended."""
        if self.error is not None:
            raise self.error
        if self.closed:
            raise Refused("closed", "the client was closed")

    @property
    def is_dialling(self) -> bool:
        """Whether the uplink is still kept connected."""
        return self._dialler is not None and not self._dialler.done()

    async def _dial(self) -> None:
        try:
            await self.uplink.run()
        except ssl.SSLCertVerificationError as error:
            self._fail(Refused("bad-certificate", str(error)))

    def _fail(self, error: Refused) -> None:
        self.error = error
        self.uplink.stop()

    def _notify(self) -> None:
        """Wake up all that wait for progress or for publications."""
        self._progress.set()
        self._handler.notify()

    # ---- sending

    def now_s(self) -> float:
        """The time in headers of publications: wall clock time that never jumps."""
        return self._epoch_s + time.monotonic()

    @property
    def unsettled(self) -> int:
        """The number of publications that are not settled."""
        return self.core.unsettled_rows() + self.outbox.count

    def send_rows(self, rows: RawRows) -> None:
        """Send publications that have their headers."""
        self._runner.run(self.core.send(rows, self.now_s()))

    def post_control(self, message: Control, group: str | None = None) -> None:
        """Send a control message without waiting for it; a rejection ends the session."""
        self._runner.run(self.core.send_control(message, self.now_s(), group))

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
        """Wait for the next message of the broker."""
        self.check()
        self._progress.clear()
        await self._progress.wait()
        self.check()

    # ---- the core

    def _handle(self, stimulus: Stimulus) -> None:
        self._runner.run(self.core.handle(stimulus, self.now_s()))

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        return asyncio.get_running_loop().call_later(max(at_s - self.now_s(), 0.0), action, name)

    def _fire(self, name: str) -> None:
        self._handle(TimerFired(name))

    def _on_rejection(self, effect: Rejection) -> None:
        """Pass a rejection to the sender that waits; without one, as after a resend to a restarted broker, the session ends."""
        refused = Refused(effect.code, effect.text)
        if effect.id in self._awaited:
            self._awaited[effect.id] = refused
        elif not effect.withdrawal:
            self._fail(refused)
            self._notify()

    # ---- the connection

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`."""
        self.uplink.connection = connection
        connection.mark_authenticated()
        name, token, key, _ = self._identity
        connection.send(Connect("client", name, token, key, subscriptions=self._handler.confirmed_filters))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        if isinstance(message, Ping | Disconnect):
            return
        if isinstance(message, Error):
            is_full = message.code == "connection-limit" and not self.uplink.established.is_set()  # a reconnect is tried again
            if message.code in _FATAL or is_full:
                self._fail(Refused(message.code, message.text))
            connection.close()
            self.lost(connection)
        elif isinstance(message, Connect):
            self._on_connect(connection, message)
        elif isinstance(message, Notice):
            self.notices.add(message)
        else:
            self._handle(FrameArrived(connection.peer, message))
            self._progress.set()

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        if self.uplink.on_lost(connection):
            # A process that was paused notices late that the connection is lost.
            self._lost_s = self.now_s() - (time.monotonic() - connection.received_s)
            self._handle(PeerDisconnected(connection.peer))
            self._notify()

    def _on_connect(self, connection: Connection, message: Connect) -> None:
        self.core.broker = connection.peer = message.name
        is_other, self._resume_token = self._resume_token not in (None, message.key), message.key
        if is_other:
            if message.gap is not None and message.gap.code in _FATAL:
                # The error was sent when it happened, and was lost.
                self._fail(Refused(message.gap.code, message.gap.text))
                connection.close()
                self.lost(connection)
                return
            if not message.knows:
                self._handler.on_session_lost(self._session_lost(message.name, message.gap))
            self.notices.reset()
            self.core.renew_epoch()
        self.window = min(message.window or CONFIG.window, CONFIG.window)
        self.core.set_window(self.window)
        self._handle(PeerConnected(message.name))
        self.uplink.established.set()

    def _session_lost(self, broker: str, gap: Gap | None) -> SessionLost:
        """The error for subscriptions that the broker did not have for a while."""
        now_s, since_s = self.now_s(), self._lost_s
        if gap is None:
            text = f"broker {broker} does not know all subscriptions of this client any more, as after a restart without state"
            return SessionLost("session-lost", text, since_s, now_s)
        return SessionLost(gap.code, gap.text, min(now_s - gap.ago_s, since_s), now_s, gap.rows)
