"""Client sessions of a live broker: name claims, permissions, resume tokens, expiry timers and tombstones; no sockets."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from overweave.contract.effects import Notify
from overweave.contract.stimuli import PeerLeft
from overweave.contract.wire import Connect, Notice
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.client_keys import NameClaim
from overweave.drivers.tcp.core_host import CoreHost
from overweave.drivers.tcp.limits import Limits
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.security import NONE, Identity, Permissions
from overweave.drivers.tcp.tombstones import Tombstones

#: The interval between two log entries about notices to one client.
_NOTICE_LOG_S = 1.0


@dataclass(slots=True, eq=False)
class ClientSession:
    """The session of one client, from its first connection until it leaves, expires or is ended."""

    #: None: the journal knows the client, which has not connected since the core started.
    claim: NameClaim | None = None
    permissions: Permissions = NONE
    #: What the client presented, to be checked again when the tokens change.
    identity: Identity | None = None
    #: The reply to `Connect` with the resume token. It stays the same for the session, because the first copy may get lost.
    reply: Connect | None = None
    #: The last notice: sent again after a reconnect, because the first copy may get lost.
    notice: Notice | None = None
    notice_logged_s: float = -_NOTICE_LOG_S
    #: Set while the client is disconnected.
    expiry_timer: asyncio.TimerHandle | None = None

    def cancel_expiry(self) -> None:
        """Cancel the expiry timer, if it is set."""
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
            self.expiry_timer = None


class ClientSessions:
    """The sessions of all clients of one broker, connected or not."""

    def __init__(self, host: CoreHost, limits: Limits, log: Log) -> None:
        self._settings, self._host, self._limits, self._log = host.settings, host, limits, log
        self._sessions: dict[str, ClientSession] = {}
        #: Why sessions were ended, for clients that reconnect.
        self.tombstones = Tombstones()

    def get(self, client: str) -> ClientSession | None:
        """The session of a client; None for a broker or an unknown client."""
        return self._sessions.get(client)

    def __contains__(self, client: str) -> bool:
        return client in self._sessions

    def identities(self) -> Iterator[tuple[str, Identity, Permissions]]:
        """The clients that have connected, with what they presented and their permissions."""
        for client, session in list(self._sessions.items()):
            if session.identity is not None:
                yield client, session.identity, session.permissions

    def restore(self) -> None:
        """Create sessions for the clients in the journal, and let them expire unless they reconnect."""
        for client in self._host.core.clients():
            self.start_expiry(client)

    def open(self, claim: NameClaim, identity: Identity, permissions: Permissions) -> None:
        """Open the session of a client that connects, or resume it."""
        session = self._sessions.setdefault(identity.name, ClientSession())
        session.claim, session.identity, session.permissions = claim, identity, permissions
        session.cancel_expiry()

    def set_permissions(self, client: str, permissions: Permissions) -> None:
        """Replace the permissions of a client after a change of tokens."""
        self._sessions[client].permissions = permissions

    def reply(self, message: Connect) -> Connect:
        """The reply to a client's `Connect`: whether its session holds, and the gap if it does not."""
        name = message.name
        session = self._sessions[name]
        if session.reply is None:
            gap = self.tombstones.pop(name, message.key, self._host.now_s())
            core = self._host.core
            is_complete = core.registration_count("subscription", name) >= message.subscriptions
            knows = gap is None and core.knows(name) and is_complete
            window = self._settings.config.session.window
            session.reply = Connect(
                "broker",
                self._settings.id,
                key=secrets.token_hex(8),
                knows=knows,
                gap=gap,
                window=window,
            )
        return msgspec.structs.replace(session.reply, brokers=self._host.directory.others())

    def add_notice(self, effect: Notify) -> Notice:
        """Store a notice to a client, and log some of them."""
        notice = Notice(effect.code, effect.text, effect.number)
        session = self._sessions.get(effect.peer)
        now_s = time.monotonic()
        if session is not None:
            session.notice = notice
            if now_s - session.notice_logged_s >= _NOTICE_LOG_S:
                session.notice_logged_s = now_s
                total = self._host.core.statistics().unadvertised
                self._log.warning(effect.code, peer=effect.peer, text=effect.text, total=total)
        return notice

    # ---- the end of a session

    def start_expiry(self, client: str) -> None:
        """Let the session of a disconnected client expire unless it reconnects in time."""
        session = self._sessions.setdefault(client, ClientSession())
        session.cancel_expiry()
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._settings.session_expiry_s
        session.expiry_timer = loop.call_at(due_s, self._on_expiry, client, due_s)

    def _on_expiry(self, client: str, due_s: float) -> None:
        """Expire a session, unless this process was paused: then the client gets the full time again."""
        if absence.is_late(due_s):
            self.start_expiry(client)
            return
        expiry_s = self._settings.session_expiry_s
        text = f"the client was away for more than {expiry_s:g} s"
        self.add_tombstone(client, "session-expired", text, ago_s=expiry_s)
        self.end(client)

    def add_tombstone(self, client: str, code: str, text: str, rows: int | None = None, ago_s: float = 0.0) -> None:
        """Record why a client's session ends now. ``rows`` are lost (default: its backlog), the oldest from ``ago_s`` ago."""
        session = self._sessions.get(client)
        if session is not None and session.claim is not None:  # else no client has its key
            lost = self._host.core.unsettled_outbound_rows(client) if rows is None else rows
            self.tombstones.add(client, session.claim.key, code, text, self._host.now_s() - ago_s, lost)

    def end(self, peer: str) -> None:
        """End the session of a peer that left permanently."""
        session = self._sessions.pop(peer, None)
        if session is not None:
            session.cancel_expiry()
        self._limits.forget(peer)
        self._host.handle(PeerLeft(peer))

    def clear(self) -> None:
        """Forget all sessions without notice to the core, which is about to be replaced."""
        for session in self._sessions.values():
            session.cancel_expiry()
        self._sessions.clear()
