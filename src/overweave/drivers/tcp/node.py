"""A live broker: one `BrokerCore` with sockets, a clock, a journal, traces and metrics around it."""

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable

from overweave.broker.core import BrokerCore
from overweave.broker.modules import MODULES
from overweave.broker.modules.tracer import Tracer
from overweave.broker.registry import Journal
from overweave.contract.effects import (
    CloseLink,
    Notify,
    OpenLink,
    Persist,
    Reject,
    Restart,
    Trace,
    TraceColumns,
    TraceStatement,
)
from overweave.contract.frames import BatchFrame, ControlFrame, Frame
from overweave.contract.modules import Module
from overweave.contract.stimuli import (
    FrameArrived,
    JournalFailed,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Persisted,
    Stimulus,
    TimerFired,
)
from overweave.contract.wire import VERSION, Connect, Disconnect, Message, Notice, Ping
from overweave.contract.wire import Refused as RefusedMessage
from overweave.drivers.effect_runner import BROKER_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.load_meter import MEASURE_S, LoadMeter
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.acceptor import Acceptor
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.admission import check_frame
from overweave.drivers.tcp.certificates import warn_of_expiry
from overweave.drivers.tcp.client_keys import ClientKeys, taken_over
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.garbage import freeze_survivors
from overweave.drivers.tcp.hangup import Hangup
from overweave.drivers.tcp.incarnation import next_incarnation
from overweave.drivers.tcp.journal import JournalFile
from overweave.drivers.tcp.journal_writer import JournalWriter
from overweave.drivers.tcp.limits import CONNECTION_LIMIT, FILE_DESCRIPTORS, SPARE, Limits, raise_descriptor_limit
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.monitor import MonitorServer, host_and_port
from overweave.drivers.tcp.network_file import check_listen
from overweave.drivers.tcp.outbound_handshake import OutboundHandshake, connect_error
from overweave.drivers.tcp.security import Authenticator, Permissions, client_context, server_context
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.tcp.tombstones import Tombstones
from overweave.drivers.tracing.live import LiveTrace
from overweave.drivers.tracing.names import check_directory
from overweave.errors import InvalidInput, OverweaveError, Refused
from overweave.routing import PROTOCOLS

#: How long to wait before trying to reach a neighbour again: doubling from the first to the last.
RETRY_S, RETRY_S_MAX = 0.05, 2.0
#: How long a neighbour may take to answer.
_DIAL_S = 5.0
#: The name of the timer by which the core is made anew.
#: What clients do wrong without being cut off is logged at most so often for each.
_NOTICE_S = 1.0


class BrokerNode:
    """One broker process's broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        check_listen(settings)
        self.settings = settings
        self._log = Log(settings.id)
        self._gate = Authenticator(settings.security)
        self._limits = Limits(settings.limits, self._log)
        file = JournalFile(settings.state, settings.id, self._log) if settings.state is not None else None
        self._journal = None if file is None else JournalWriter(file, self._log, self._persisted, self._journal_failed)
        self._trace = _trace_of(settings)
        self._neighbours = list(settings.overlay.neighbours(settings.id))
        #: The brokers that may come: the neighbours, or all where the overlay organises itself; and the tasks that call some.
        self._welcome = (
            settings.overlay.ids if any(MODULES[name].opens_links for name in settings.modules) else tuple(self._neighbours)
        )
        self._reaching: dict[str, asyncio.Task[None]] = {}
        #: Set for the neighbours that are not connected, of those that are called.
        self._missing: dict[str, asyncio.Event] = {}
        #: Why neighbours could not be reached when they were last tried.
        self._unreached: dict[str, str] = {}
        #: Peers that are connected now, what clients may do, and the keys by which they have their names.
        self._connections: dict[str, Connection] = {}
        #: Which end made the connection to a neighbour.
        self._dialled_by: dict[str, str] = {}
        self._rights: dict[str, Permissions] = {}
        self._keys = ClientKeys()
        #: What peers have shown: role, token and certificate. When the tokens change it may be good no more.
        self._proofs: dict[str, tuple[str, str | None, dict[str, object] | None]] = {}
        #: When certificates expire.
        self._expiries: dict[str, float] = {}
        #: What clients are told when they come, and told again when they come back as long as they are remembered.
        self._tickets: dict[str, Connect] = {}
        #: Why sessions were ended, for clients that come back; and what clients were told last without being cut off, for
        #: those whose connection broke meanwhile. When that was logged, by the monotonic clock.
        self._tombstones = Tombstones()
        self._notices: dict[str, Notice] = {}
        self._noticed_s: dict[str, float] = {}
        #: Connections whose peer has not said who it is.
        self._strangers: dict[Connection, None] = {}
        #: All connections from when they are made until they are lost, and timers to read on from those that were slowed down.
        self._open: set[Connection] = set()
        self._slowed: dict[Connection, asyncio.TimerHandle] = {}
        self._runner = EffectRunner(BROKER_EFFECTS, self._connections, self._schedule, self._fire, self._performers())
        self._restarting: asyncio.TimerHandle | None = None
        self._goodbyes: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None
        self._metrics: asyncio.Server | None = None
        self._draining = False
        self._epoch_s = time.time() - absence.uptime_s()
        self._load = LoadMeter(time.monotonic())
        #: How many entries earlier cores of this process had kept.
        self._kept_before = 0
        self.core = self._new_core(0, file.open() if file is not None else {})

    # ---- from start to end

    async def start(self) -> None:
        """Listen, reach out to neighbours, and be ready."""
        host, port, tls = parse_address(self.settings.listen)
        context = server_context(self.settings.security) if tls else None
        self._expiries = warn_of_expiry(self.settings.security, time.time(), self._log)
        self._acceptor = Acceptor(self, context)
        await self._acceptor.listen(host, port)
        self._reach_out()
        if self.settings.metrics is not None:
            observatory = MonitorServer(
                self.settings.id,
                lambda: self.core.statistics(),
                self.gauges,
                self.health_problem,
                lambda: self._limits.exceeded,
                self.degradation,
            )
            self._metrics = await observatory.serve_http(*host_and_port(self.settings.metrics))
        self._run(self._keep_alive())
        self._run(self._measure())
        self._log.info("listening", url=self.settings.listen)

    def _reach_out(self) -> None:
        """Call the neighbours that are to be called from here, and expect the clients that the journal knows."""
        ids = self.settings.overlay.ids
        for neighbour in self._neighbours:
            if ids.index(neighbour) < ids.index(self.settings.id) and neighbour not in self._reaching:
                self._keep_reaching(neighbour)
        for client in self.core.clients():
            self._expect_back(client)

    async def drain(self) -> None:
        """Take nothing new from clients, and wait a while until all that is under way is settled."""
        self._draining = True
        if self._acceptor is not None:
            self._acceptor.close()
        end_s = time.monotonic() + self.settings.drain_timeout_s
        while (self.core.statistics().unsettled or self._is_journal_behind()) and time.monotonic() < end_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Close everything."""
        for server in (self._acceptor, self._metrics):
            if server is not None:
                server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._journal is not None:
            await self._journal.close()
        self._runner.cancel_timers()
        for timer in (*self._goodbyes.values(), *self._slowed.values(), *filter(None, [self._restarting])):
            timer.cancel()
        for connection in (*self._connections.values(), *self._strangers):
            connection.close()
        await asyncio.sleep(0)
        if self._trace is not None:
            await asyncio.to_thread(self._trace.close)
        self._log.info("stopped")

    def reload(self) -> None:
        """Read the tokens again; who is here by one that is good no more, or allows less to subscribe to, is disconnected."""
        try:
            self._gate = Authenticator(self.settings.security)
        except InvalidInput as error:
            self._log.error("reload-failed", text=f"{error}; the old tokens stay")
            return
        self._log.info("reloaded")
        for peer, (role, token, certificate) in list(self._proofs.items()):
            try:
                rights = self._gate.admit(role, peer, token, certificate)
                if role == "client" and not rights.includes_subscriptions_of(self._rights[peer]):
                    raise Refused("permissions-changed", f"client {peer!r} may not subscribe to all that it might before")
            except Refused as refused:
                self._expel(peer, role, refused)
            else:
                if role == "client":
                    self._rights[peer] = rights

    def _expel(self, peer: str, role: str, why: Refused) -> None:
        """Disconnect a peer that may not stay; a client has left then."""
        self._log.warning("refused", peer=peer, code=why.code, text=why.text)
        text = f"{why.text}; the tokens of broker {self.settings.id} have changed"
        self._bury(peer, why.code, text, self.core.waiting_rows(peer))
        connection = self._connections.get(peer)
        if connection is not None:
            connection.refuse(why.code, text)
            self._forget(connection, left=role == "client")
        elif role == "client":
            self._left(peer)

    def gauges(self) -> dict[str, float]:
        """What is true now, beside the core's statistics."""
        clients = sum(peer in self._rights for peer in self._connections)
        return {
            "connections": self._connection_count(),
            "connections_max": self._limits.connections_max,
            "connected_clients": clients,
            "connected_neighbours": len(self._connections) - clients,
            "input_hz": self._load.measured.input_hz,
            "output_bytes_per_s": self._load.measured.output_bytes_per_s,
            "matching_delay_s": self._load.measured.matching_delay_s,
            "journal_pending_records": 0 if self._journal is None else self._journal.pending,
            "trace_rows_dropped": 0 if self._trace is None else self._trace.dropped,
            **{f"{name}_expires_at_s": at_s for name, at_s in self._expiries.items()},
        }

    def health_problem(self) -> str | None:
        """Why it is unhealthy; None when it is not."""
        if self._draining:
            return "it is stopping"
        if self._journal is not None and self._journal.health_problem is not None:
            return self._journal.health_problem
        return None if self._is_routed_around() else self._missing_links()

    def degradation(self) -> str | None:
        """Why it is degraded: neighbours are missing, and traffic is routed around them. None when it is not."""
        return self._missing_links() if self._is_routed_around() else None

    def _is_routed_around(self) -> bool:
        """Whether the loss of a neighbour leaves other paths: the protocol finds them, and some neighbour is there."""
        there = any(neighbour in self._connections for neighbour in self._neighbours)
        return PROTOCOLS[self.settings.routing].reroutes and there

    def _missing_links(self) -> str | None:
        missing = [neighbour for neighbour in self._neighbours if neighbour not in self._connections]
        if not missing:
            return None
        return "no link to " + ", ".join(
            f"{neighbour} ({self._unreached[neighbour]})" if neighbour in self._unreached else neighbour for neighbour in missing
        )

    # ---- the core

    def _new_core(self, incarnation_least: int, journal: Journal) -> BrokerCore:
        settings = self.settings
        incarnation = next_incarnation(settings.state, settings.id, incarnation_least)
        return BrokerCore(
            settings.id,
            PROTOCOLS[settings.routing].make(settings.id, settings.overlay, incarnation, settings.routing_options),
            self._neighbours,
            settings.config,
            incarnation=incarnation,
            journal=journal,
            modules=self._modules(),
            life=secrets.randbits(64),
            durable=self._journal is not None,
            unsynced=0 if self._journal is None else self._journal.pending,
        )

    def _restart(self, effect: Restart) -> None:
        """Others know a later incarnation of this broker: begin again as one after that, when the core is done."""
        if self._restarting is None:
            text = "neighbours know a later incarnation: expected a clock that never goes back; starting again"
            self._log.warning("clock-went-back", text=text, incarnation=effect.incarnation)
            loop = asyncio.get_running_loop()
            self._restarting = loop.call_later(0, self._start_again, effect.incarnation + 1)

    def _start_again(self, incarnation_least: int) -> None:
        """Have a new core with what the journal kept, as if the process had begun anew; peers come back by themselves."""
        self._restarting = None
        self._runner.cancel_timers()
        for timer in self._goodbyes.values():
            timer.cancel()
        self._goodbyes.clear()
        for connection in self._connections.values():
            self._load.bytes_gone += connection.bytes_out
            connection.close()
        self._connections.clear()
        self._rights.clear()
        self._keys.clear()
        self._tickets.clear()
        planned = list(self.settings.overlay.neighbours(self.settings.id))
        for neighbour in [each for each in self._neighbours if each not in planned]:
            self._unlink(neighbour)
        self._neighbours[:] = planned
        if self._journal is not None:
            self._kept_before = self._journal.kept - self._journal.pending
        self.core = self._new_core(incarnation_least, self.core.journal() if self._journal is not None else {})
        for missing in self._missing.values():
            missing.set()
        self._reach_out()

    def now_s(self) -> float:
        """Wall clock time that never goes back."""
        return self._epoch_s + absence.uptime_s()

    def handle(self, stimulus: Stimulus) -> None:
        """Something happens to the core; do what it asks for."""
        self._runner.run(self.core.handle(stimulus, self.now_s()))

    def _performers(self) -> Performers:
        """What the effects of the core do, besides frames and timers."""
        return {
            Persist: self._persist,
            Reject: self._refuse,
            Notify: self._notify,
            OpenLink: lambda effect: self._open_link(effect.peer),
            CloseLink: lambda effect: self._close_link(effect.peer),
            Restart: self._restart,
            **dict.fromkeys((Trace, TraceColumns, TraceStatement), self._note),
        }

    def _note(self, effect: Trace | TraceColumns | TraceStatement) -> None:
        if self._trace is None:
            return
        if isinstance(effect, TraceColumns):
            self._trace.add_columns(effect.columns)
        elif isinstance(effect, Trace):
            self._trace.add(effect.record)
        else:
            self._trace.add_statement(effect.statement)

    def _persist(self, effect: Persist) -> None:
        if self._journal is not None:
            self._journal.keep((effect.key, effect.value))  # type: ignore[arg-type]

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        return asyncio.get_running_loop().call_later(max(at_s - self.now_s(), 0.0), action, name)

    def _fire(self, name: str) -> None:
        self.handle(TimerFired(name))

    def _refuse(self, effect: Reject) -> None:
        self._log.warning("refused", peer=effect.peer, code=effect.code, text=effect.text)
        connection = self._connections.get(effect.peer)
        if effect.forget:
            self._limits.count_slow_consumer(effect.text)
            self._bury(effect.peer, effect.code, effect.text, effect.rows)
        if connection is not None:
            connection.refuse(effect.code, effect.text)
            self._forget(connection, left=effect.forget)
        elif effect.forget:
            self._left(effect.peer)

    def _persisted(self, count: int) -> None:
        if count > self._kept_before:
            self.handle(Persisted(count - self._kept_before))

    def _journal_failed(self, why: str) -> None:
        self.handle(JournalFailed(why))

    def _is_journal_behind(self) -> bool:
        return self._journal is not None and self._journal.pending > 0

    def _notify(self, effect: Notify) -> None:
        notice = self._notices[effect.peer] = Notice(effect.code, effect.text, effect.number)
        connection = self._connections.get(effect.peer)
        if connection is not None:
            connection.send(notice)
        now_s = time.monotonic()
        if now_s - self._noticed_s.get(effect.peer, -_NOTICE_S) >= _NOTICE_S:
            self._noticed_s[effect.peer] = now_s
            self._log.warning(effect.code, peer=effect.peer, text=effect.text, total=self.core.statistics().unadvertised)

    def _modules(self) -> dict[str, Module]:
        settings = self.settings
        modules = {name: MODULES[name].make(settings.id, options) for name, options in settings.modules.items()}
        return modules if self._trace is None else {"tracer": Tracer(settings.id, settings.run), **modules}

    # ---- connections

    def connected(self, connection: Connection) -> None:
        """See `ConnectionHandler.connected`: whoever comes has to say who it is."""
        self._open.add(connection)
        self._strangers[connection] = None

    def may_accept(self) -> bool:
        """See `Host.may_accept`: the stranger that came first makes room for another, as it may not mean to say anything."""
        count = self._connection_count()
        if self._limits.has_room(count):
            return True
        refused = self._limits.full(count + 1)
        oldest = next(iter(self._strangers), None)
        if oldest is None or not self._limits.has_room(count - SPARE):
            return False
        del self._strangers[oldest]
        oldest.refuse(refused.code, refused.text)
        return True

    def _make_room(self) -> None:
        """Have strangers, the oldest first, make room for a client that has said who it is."""
        while self._strangers and self._connection_count() > self._limits.connections_max:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self._open.discard(oldest)
            refused = self._limits.full(self._connection_count())
            oldest.refuse(refused.code, refused.text)

    def exhausted(self, error: OSError) -> None:
        """See `Host.exhausted`."""
        self._limits.exceeded[FILE_DESCRIPTORS] += 1
        self._log.error("no-file-descriptors", text=f"{error.strerror}; new connections have to wait")

    def _connection_count(self) -> int:
        return len(self._open) + (0 if self._acceptor is None else self._acceptor.opening)

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        is_known = self._connections.get(connection.peer) is connection
        if is_known and isinstance(message, Frame):
            self._frame(connection, message)
        elif isinstance(message, Connect):
            self._opened(connection, message)
        elif isinstance(message, Ping):
            return
        elif not is_known:
            connection.refuse("not-open", "expected to be told who you are first")
        elif isinstance(message, Disconnect):
            self._bye(connection)
        elif isinstance(message, RefusedMessage):
            self._log.warning("refused by peer", peer=connection.peer, code=message.code, text=message.text)
            connection.close()

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        self._open.discard(connection)
        self._strangers.pop(connection, None)
        slowed = self._slowed.pop(connection, None)
        if slowed is not None:
            slowed.cancel()
        self._forget(connection, left=False)

    def _frame(self, connection: Connection, frame: Frame) -> None:
        peer = connection.peer
        rights = self._rights.get(peer)
        if rights is not None:
            if self._draining and isinstance(frame, BatchFrame):
                return  # it was not acknowledged, so it will be sent again
            try:
                window, life = self.settings.config.session.window, self._keys.life(peer)
                check_frame(frame, peer, rights, self.core.unsettled_rows(peer), window, life)
                if isinstance(frame, ControlFrame):
                    self._limits.check_word(frame, peer, self.core)
            except Refused as refused:
                self._log.warning("refused", peer=peer, code=refused.code, text=refused.text)
                self._bury(peer, refused.code, refused.text, self.core.waiting_rows(peer))
                connection.refuse(refused.code, refused.text)
                self._forget(connection, left=True)
                return
        start_s = time.perf_counter()
        self.handle(FrameArrived(peer, frame))
        if isinstance(frame, BatchFrame):
            self._load.add(frame.batch.count, time.perf_counter() - start_s)
            pause_s = self._limits.publish_pause_s(peer, frame.batch.count) if rights is not None else 0.0
            if pause_s:
                self._slow_down(connection, pause_s)

    def _slow_down(self, connection: Connection, pause_s: float) -> None:
        """Read nothing from a client for a while, which holds it back like any other backpressure."""
        before = self._slowed.pop(connection, None)
        if before is not None:
            before.cancel()
        connection.pause_reading()
        self._slowed[connection] = asyncio.get_running_loop().call_later(pause_s, self._read_on, connection)

    def _read_on(self, connection: Connection) -> None:
        self._slowed.pop(connection, None)
        connection.received_s = time.monotonic()
        connection.resume_reading()

    def _opened(self, connection: Connection, message: Connect) -> None:
        self._strangers.pop(connection, None)
        try:
            self._admit(connection, message)
        except Refused as refused:
            log = self._log.debug if refused.code == CONNECTION_LIMIT else self._log.warning  # the limits log it
            log("refused", peer=message.name, code=refused.code, text=refused.text)
            connection.refuse(refused.code, refused.text)

    def _admit(self, connection: Connection, message: Connect) -> None:
        name, client = message.name, message.role == "client"
        if message.version != VERSION:
            raise Refused("version", f"expected version {VERSION} of the protocol, got {message.version}")
        if connection.peer:
            raise Refused("bad-frame", "expected to be told once who you are")
        if message.role not in ("client", "broker") or not 0 < len(name.encode()) <= 255:
            raise Refused("bad-frame", "expected a client or a broker with a name of 1 to 255 bytes")
        if client and (name in self.settings.overlay.ids or "/" in name or name in self._neighbours):
            raise Refused("bad-name", f"client {name!r}: expected a name that is no broker's, without '/'")
        if not client and name not in self._welcome:
            raise Refused("bad-name", f"broker {name!r}: expected a neighbour of {self.settings.id}")
        rights = self._gate.admit(message.role, name, message.token, connection.certificate())
        if self._draining:
            raise Refused("stopping", f"broker {self.settings.id} is stopping")
        if client and name not in self._connections:
            self._limits.check_connection(len(self._connections) + 1)
            self._make_room()
        if client and name not in self._rights:
            known = self.core.clients()
            if name not in known:
                self._limits.check_client(len(known))
        is_connected, is_proven = name in self._connections, self._gate.proves(name)
        if client and self._keys.claim(name, message.key, connected=is_connected, proven=is_proven):
            self._take_over(name)
        if not client:
            self._check_collision(name, dialled_by=name)
        self._replace(connection, name, dialled_by=name)
        self._proofs[name] = message.role, message.token, connection.certificate()
        if not client and name not in self._neighbours:
            self._neighbours.append(name)
        if client:
            self._rights[name] = rights
            goodbye = self._goodbyes.pop(name, None)
            if goodbye is not None:
                goodbye.cancel()
        connection.send(self._answer(message) if client else Connect("broker", self.settings.id))
        self._log.info("connected", peer=name, role=message.role)
        self.handle(PeerConnected(name, client=client))
        if name in self._notices:
            connection.send(self._notices[name])  # it may have been lost with the last connection

    def _answer(self, message: Connect) -> Connect:
        """What a client hears that comes, or comes back: whether its session holds, and if not, why."""
        name = message.name
        answer = self._tickets.get(name)
        if answer is None:
            # The same as long as the session lasts: the first answer may get lost, and with it word of a gap.
            gap = self._tombstones.take(name, message.key, self.now_s())
            is_whole = self.core.registered("subscription", name) >= message.subscriptions
            knows = gap is None and self.core.knows(name) and is_whole
            window = self.settings.config.session.window
            answer = Connect("broker", self.settings.id, key=secrets.token_hex(8), knows=knows, gap=gap, window=window)
            self._tickets[name] = answer
        return answer

    def _take_over(self, name: str) -> None:
        """Somebody else has a name from now on: tell whoever had it, and end that session."""
        self._log.warning("taken-over", peer=name)
        old = self._connections.get(name)
        if old is not None:
            refused = taken_over(name)
            old.refuse(refused.code, refused.text)
            self._forget(old, left=False)
        self._drop_session(name)

    def _check_collision(self, neighbour: str, *, dialled_by: str) -> None:
        """Refuse a second connection to a neighbour when two brokers dial each other at the same time.

        Both must keep the same one, or each would close what the other keeps: it is that of the broker which comes later in the
        overlay (as in BGP, RFC 4271 6.8). Of two connections that one broker dialled the newer counts.
        """
        old = self._connections.get(neighbour)
        if old is None or self._dialled_by.get(neighbour) == dialled_by:
            return
        ids = self.settings.overlay.ids
        if ids.index(dialled_by) < max(ids.index(neighbour), ids.index(self.settings.id)) and not self._is_silent(old):
            raise Refused("duplicate-link", f"broker {self.settings.id} has a connection to {neighbour} already")

    def _is_silent(self, connection: Connection) -> bool:
        return time.monotonic() - connection.received_s > self.settings.heartbeat_s

    def _replace(self, connection: Connection, name: str, dialled_by: str = "") -> None:
        """The new connection of a peer takes the place of an older one that may not know yet that it is dead."""
        old = self._connections.get(name)
        if old is not None:
            self._forget(old, left=False)
            old.close()
        connection.peer = name
        connection.mark_authenticated()
        self._connections[name] = connection
        self._dialled_by[name] = dialled_by
        if name in self._missing:
            self._missing[name].clear()

    def _forget(self, connection: Connection, *, left: bool) -> None:
        peer = connection.peer
        if self._connections.get(peer) is not connection:
            return
        del self._connections[peer]
        if peer in self._missing:
            self._missing[peer].set()
        self._load.bytes_gone += connection.bytes_out
        self._log.info("disconnected", peer=peer)
        if left:
            self._left(peer)
        else:
            self.handle(PeerDisconnected(peer))
            if peer in self._rights:
                self._expect_back(peer)

    def _expect_back(self, client: str) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self.settings.session_expiry_s
        self._goodbyes[client] = loop.call_at(due_s, self._has_not_come_back, client, due_s)

    def _has_not_come_back(self, client: str, due_s: float) -> None:
        """A session expires, unless this broker was away itself: then the client has the full time again."""
        if absence.is_late(due_s):
            self._expect_back(client)
        else:
            self._expire(client)

    def _expire(self, client: str) -> None:
        """A client was away for too long."""
        text = f"the client was away for more than {self.settings.session_expiry_s:g} s"
        self._bury(client, "session-expired", text, self.core.waiting_rows(client), self.settings.session_expiry_s)
        self._left(client)

    def _bury(self, client: str, code: str, text: str, rows: int, ago_s: float = 0.0) -> None:
        """Remember why a client's session is ended now; nothing for it was taken since ``ago_s``."""
        if client in self._keys:  # else it has not come back since this broker started, and nobody would know it
            self._tombstones.add(client, self._keys.key(client), code, text, self.now_s() - ago_s, rows)

    def _left(self, client: str) -> None:
        self._keys.forget(client)
        self._drop_session(client)

    def _drop_session(self, client: str) -> None:
        goodbye = self._goodbyes.pop(client, None)
        if goodbye is not None:
            goodbye.cancel()
        self._limits.forget(client)
        self._proofs.pop(client, None)
        self._rights.pop(client, None)
        self._tickets.pop(client, None)
        self._notices.pop(client, None)
        self._noticed_s.pop(client, None)
        self.handle(PeerLeft(client))

    def _bye(self, connection: Connection) -> None:
        if connection.peer not in self._rights:
            self._unlink(connection.peer)
        self._forget(connection, left=True)
        connection.close()

    # ---- links that come and go

    def _open_link(self, neighbour: str) -> None:
        if neighbour not in self._neighbours:
            self._neighbours.append(neighbour)
            self._keep_reaching(neighbour)

    def _close_link(self, neighbour: str) -> None:
        """Tell the other end that this is no accident, when the core is done."""
        self._unlink(neighbour)
        asyncio.get_running_loop().call_soon(self._say_goodbye, neighbour)

    def _say_goodbye(self, neighbour: str) -> None:
        connection = self._connections.get(neighbour)
        if connection is None:
            self.handle(PeerLeft(neighbour))
            return
        connection.send(Disconnect())
        self._forget(connection, left=True)
        connection.close()

    def _unlink(self, neighbour: str) -> None:
        """Have no link to a neighbour any more, and do not call it again."""
        if neighbour in self._neighbours:
            self._neighbours.remove(neighbour)
        self._missing.pop(neighbour, None)
        task = self._reaching.pop(neighbour, None)
        if task is not None:
            task.cancel()

    # ---- what goes on all the time

    def _run(self, work: "asyncio.Coroutine[None, None, None]") -> "asyncio.Task[None]":  # type: ignore[name-defined]
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _keep_reaching(self, neighbour: str) -> None:
        missing = self._missing[neighbour] = asyncio.Event()
        if neighbour not in self._connections:
            missing.set()
        self._reaching[neighbour] = self._run(self._reach(neighbour, missing))

    async def _reach(self, neighbour: str, missing: asyncio.Event) -> None:
        """Have a connection to a neighbour, again and again."""
        retry_s = RETRY_S
        while True:
            await missing.wait()
            try:
                async with asyncio.timeout(_DIAL_S):  # `wait_for` may not hear that it is cancelled
                    await self._dial(neighbour)
                self._unreached.pop(neighbour, None)
            except (OSError, TimeoutError, OverweaveError) as error:
                if neighbour not in self._connections:  # else it dialled us at the same time
                    self._could_not_reach(neighbour, connect_error(error), retry_s)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX) if missing.is_set() else RETRY_S

    def _could_not_reach(self, neighbour: str, why: str, retry_s: float) -> None:
        """Warn, once for each reason, when the neighbour had the time to start."""
        is_news = retry_s > RETRY_S_MAX / 2 and self._unreached.get(neighbour) != why
        if is_news:
            self._unreached[neighbour] = why
        (self._log.warning if is_news else self._log.info)("unreachable", peer=neighbour, text=why)

    async def _dial(self, neighbour: str) -> None:
        host, port, tls = parse_address(self.settings.urls[neighbour])
        context = client_context(self.settings.security) if tls else None
        dialling = OutboundHandshake(self, neighbour)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: Connection(dialling), host, port, ssl=context)
        try:
            await dialling.answered
        finally:
            if dialling.answered.cancelled():
                transport.abort()  # whoever answers too late is not connected all the same

    def dialled(self, connection: Connection, neighbour: str) -> None:
        """A neighbour has answered a call."""
        self._check_collision(neighbour, dialled_by=self.settings.id)
        self._open.add(connection)
        self._replace(connection, neighbour, dialled_by=self.settings.id)
        self._log.info("connected", peer=neighbour, role="broker")
        self.handle(PeerConnected(neighbour))

    async def _keep_alive(self) -> None:
        every_s = self.settings.heartbeat_s
        while True:
            was_away = await absence.sleep(every_s / 2)
            now_s = time.monotonic()
            for connection in list(self._connections.values()):
                if was_away:
                    # What peers said meanwhile has not been read yet, and they have heard nothing from here.
                    connection.received_s = now_s
                    connection.send(Ping())
                elif now_s - connection.received_s > 3 * every_s and not connection.held:
                    self._log.warning("silent", peer=connection.peer)
                    connection.abort()
                elif now_s - connection.sent_s > every_s / 2:
                    connection.send(Ping())
            for stranger in list(self._strangers):
                if was_away:
                    stranger.made_s = now_s
                elif now_s - stranger.made_s > 3 * every_s:
                    stranger.abort()

    async def _measure(self) -> None:
        failure = ""
        while True:
            await asyncio.sleep(MEASURE_S)
            bytes_out = sum(connection.bytes_out for connection in self._connections.values())
            unsettled = sum(self.core.statistics().unsettled.values())
            self.handle(self._load.measure(time.monotonic(), bytes_out, unsettled))
            if self._trace is not None and str(self._trace.failure or "") != failure:
                failure = str(self._trace.failure)
                self._log.warning("trace-failed", rows=self._trace.dropped, text=failure)


def _trace_of(settings: BrokerSettings) -> LiveTrace | None:
    if settings.trace is None:
        return None
    check_directory(settings.trace)
    settings.trace.mkdir(parents=True, exist_ok=True)  # what is wrong with it is to be known at the start
    return LiveTrace(settings.trace, settings.run, settings.id, seconds_per_file=settings.trace_every_s)


async def serve(settings: BrokerSettings, ready: Callable[[], None]) -> None:
    """Run a broker until SIGTERM or SIGINT, then let what is under way settle. At SIGHUP it reads the tokens again."""
    raise_descriptor_limit()
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    node, hangup = BrokerNode(settings), Hangup()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGHUP, lambda: stopped.set() if hangup.is_real() else node.reload())
    await node.start()
    freeze_survivors()
    ready()
    await stopped.wait()
    await node.drain()
    await node.stop()
