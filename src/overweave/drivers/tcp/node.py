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
from overweave.contract.effects import CloseLink, Effect, Keep, Note, NoteRows, OpenLink, Refuse, SendFrame, SetTimer
from overweave.contract.frames import BatchFrame, Frame
from overweave.contract.modules import Module
from overweave.contract.stimuli import (
    FrameArrived,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Stimulus,
    TimerFired,
)
from overweave.contract.wire import VERSION, Bye, Message, Open, Ping
from overweave.contract.wire import Refused as RefusedMessage
from overweave.drivers.live_trace import LiveTrace
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.dialling import Dialling, why_not
from overweave.drivers.tcp.door import check_frame
from overweave.drivers.tcp.journal import JournalFile
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.measure import Load
from overweave.drivers.tcp.network_file import check_listen
from overweave.drivers.tcp.observe import Observatory, host_and_port
from overweave.drivers.tcp.security import Gate, Rights, client_context, server_context
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.trace_names import check_directory
from overweave.errors import OverweaveError, Refused
from overweave.routing import PROTOCOLS

#: How long to wait before trying to reach a neighbour again: doubling from the first to the last.
RETRY_S, RETRY_S_MAX = 0.05, 2.0
#: How long a neighbour may take to answer.
_DIAL_S = 5.0
#: How long a broker that stops waits for what is under way.
DRAIN_S = 5.0
_MEASURE_S = 1.0


class BrokerNode:
    """One broker process's broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        check_listen(settings)
        self.settings = settings
        self._log = Log(settings.id)
        self._gate = Gate(settings.security)
        self._journal = JournalFile(settings.state, settings.id) if settings.state is not None else None
        self._trace = _trace_of(settings)
        self._neighbours = list(settings.overlay.neighbours(settings.id))
        #: The brokers that may come: the neighbours, or all where the overlay organises itself; and the tasks that call some.
        self._welcome = settings.overlay.ids if "self_organise" in settings.modules else tuple(self._neighbours)
        self._reaching: dict[str, asyncio.Task[None]] = {}
        #: Set for the neighbours that are not connected, of those that are called.
        self._missing: dict[str, asyncio.Event] = {}
        #: Why neighbours could not be reached when they were last tried.
        self._unreached: dict[str, str] = {}
        #: Peers that are connected now, what clients may do, and the keys by which they may come back.
        self._connections: dict[str, Connection] = {}
        self._rights: dict[str, Rights] = {}
        self._keys: dict[str, str | None] = {}
        #: What clients are told when they come, and told again when they come back as long as they are remembered.
        self._tickets: dict[str, str] = {}
        #: Connections whose peer has not said who it is.
        self._strangers: set[Connection] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._goodbyes: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._metrics: asyncio.Server | None = None
        self._draining = False
        self._epoch_s = time.time() - absence.uptime_s()
        self._load = Load()
        protocol = PROTOCOLS[settings.routing]
        self.core = BrokerCore(
            settings.id,
            protocol.make(settings.id, settings.overlay),
            self._neighbours,
            settings.config,
            incarnation=time.time_ns() // 1_000_000,
            journal=self._journal.open() if self._journal is not None else {},
            modules=self._modules(),
        )

    # ---- from start to end

    async def start(self) -> None:
        """Listen, reach out to neighbours, and be ready."""
        loop = asyncio.get_running_loop()
        host, port, tls = parse_address(self.settings.listen)
        context = server_context(self.settings.security) if tls else None
        self._server = await loop.create_server(lambda: Connection(self), host, port, ssl=context, backlog=1024)
        ids = self.settings.overlay.ids
        for neighbour in self._neighbours:
            if ids.index(neighbour) < ids.index(self.settings.id):
                self._keep_reaching(neighbour)
        for client in self.core.clients():
            self._expect_back(client)
        if self.settings.metrics is not None:
            observatory = Observatory(self.settings.id, self.core.statistics, self.gauges, self.ailment)
            self._metrics = await observatory.serve_http(*host_and_port(self.settings.metrics))
        self._run(self._keep_alive())
        self._run(self._measure())
        self._log.info("listening", url=self.settings.listen)

    async def drain(self) -> None:
        """Take nothing new from clients, and wait a while until all that is under way is settled."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        end_s = time.monotonic() + DRAIN_S
        while self.core.statistics().unsettled and time.monotonic() < end_s:
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Close everything."""
        for server in (self._server, self._metrics):
            if server is not None:
                server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for timer in (*self._timers.values(), *self._goodbyes.values()):
            timer.cancel()
        for connection in (*self._connections.values(), *self._strangers):
            connection.close()
        await asyncio.sleep(0)
        if self._journal is not None:
            self._journal.close()
        if self._trace is not None:
            await asyncio.to_thread(self._trace.close)
        self._log.info("stopped")

    def gauges(self) -> dict[str, float]:
        """What is true now, beside the core's statistics."""
        clients = sum(peer in self._rights for peer in self._connections)
        return {
            "connected_clients": clients,
            "connected_neighbours": len(self._connections) - clients,
            "input_hz": self._load.measured.input_hz,
            "output_bytes_per_s": self._load.measured.output_bytes_per_s,
            "matching_delay_s": self._load.measured.matching_delay_s,
            "trace_rows_dropped": 0 if self._trace is None else self._trace.dropped,
        }

    def ailment(self) -> str | None:
        """What is wrong; None when all neighbours are there."""
        if self._draining:
            return "it is stopping"
        missing = [neighbour for neighbour in self._neighbours if neighbour not in self._connections]
        if not missing:
            return None
        return "no link to " + ", ".join(
            f"{neighbour} ({self._unreached[neighbour]})" if neighbour in self._unreached else neighbour for neighbour in missing
        )

    # ---- the core

    def now_s(self) -> float:
        """Wall clock time that never goes back."""
        return self._epoch_s + absence.uptime_s()

    def handle(self, stimulus: Stimulus) -> None:
        """Something happens to the core; do what it asks for."""
        self._carry_out(self.core.handle(stimulus, self.now_s()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendFrame):
                connection = self._connections.get(effect.peer)
                if connection is not None:
                    connection.send(effect.frame)
            elif isinstance(effect, SetTimer):
                self._set_timer(effect)
            elif isinstance(effect, Keep):
                if self._journal is not None:
                    self._journal.keep(effect.key, effect.value)  # type: ignore[arg-type]
            elif isinstance(effect, Refuse):
                self._refuse(effect)
            elif isinstance(effect, OpenLink):
                self._open_link(effect.peer)
            elif isinstance(effect, CloseLink):
                self._close_link(effect.peer)
            elif isinstance(effect, NoteRows) and self._trace is not None:
                self._trace.add_columns(effect.columns)
            elif isinstance(effect, Note) and self._trace is not None:
                self._trace.add(effect.record)

    def _set_timer(self, effect: SetTimer) -> None:
        before = self._timers.pop(effect.name, None)
        if before is not None:
            before.cancel()
        delay_s = max(effect.at_s - self.now_s(), 0.0)
        self._timers[effect.name] = asyncio.get_running_loop().call_later(delay_s, self._fire, effect.name)

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self.handle(TimerFired(name))

    def _refuse(self, effect: Refuse) -> None:
        self._log.warning("refused", peer=effect.peer, code=effect.code, text=effect.text)
        connection = self._connections.get(effect.peer)
        if connection is not None:
            connection.refuse(effect.code, effect.text)
            self._forget(connection, left=effect.code == "slow-consumer")
        elif effect.code == "slow-consumer":
            self._left(effect.peer)

    def _modules(self) -> dict[str, Module]:
        settings = self.settings
        modules = {name: MODULES[name].make(settings.id, options) for name, options in settings.modules.items()}
        return modules if self._trace is None else {"tracer": Tracer(settings.id, settings.run), **modules}

    # ---- connections

    def connected(self, connection: Connection) -> None:
        """See `Owner.connected`: whoever comes has to say who it is."""
        self._strangers.add(connection)

    def received(self, connection: Connection, message: Message) -> None:
        """See `Owner.received`."""
        is_known = self._connections.get(connection.peer) is connection
        if is_known and isinstance(message, Frame):
            self._frame(connection, message)
        elif isinstance(message, Open):
            self._opened(connection, message)
        elif isinstance(message, Ping):
            return
        elif not is_known:
            connection.refuse("not-open", "expected to be told who you are first")
        elif isinstance(message, Bye):
            self._bye(connection)
        elif isinstance(message, RefusedMessage):
            self._log.warning("refused by peer", peer=connection.peer, code=message.code, text=message.text)
            connection.close()

    def lost(self, connection: Connection) -> None:
        """See `Owner.lost`."""
        self._strangers.discard(connection)
        self._forget(connection, left=False)

    def _frame(self, connection: Connection, frame: Frame) -> None:
        peer = connection.peer
        rights = self._rights.get(peer)
        if rights is not None:
            if self._draining and isinstance(frame, BatchFrame):
                return  # it was not acknowledged, so it will be sent again
            try:
                check_frame(frame, peer, rights, self.core.unsettled_rows(peer), self.settings.config.session.window)
            except Refused as refused:
                self._log.warning("refused", peer=peer, code=refused.code, text=refused.text)
                connection.refuse(refused.code, refused.text)
                self._forget(connection, left=True)
                return
        start_s = time.perf_counter()
        self.handle(FrameArrived(peer, frame))
        if isinstance(frame, BatchFrame):
            self._load.add(frame.batch.count, time.perf_counter() - start_s)

    def _opened(self, connection: Connection, message: Open) -> None:
        self._strangers.discard(connection)
        try:
            self._admit(connection, message)
        except Refused as refused:
            self._log.warning("refused", peer=message.name, code=refused.code, text=refused.text)
            connection.refuse(refused.code, refused.text)

    def _admit(self, connection: Connection, message: Open) -> None:
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
        if client and name in self._keys and self._keys[name] != message.key:
            raise Refused("name-in-use", f"client {name!r}: expected a name that nobody else has")
        self._replace(connection, name)
        if not client and name not in self._neighbours:
            self._neighbours.append(name)
        if client:
            self._rights[name], self._keys[name] = rights, message.key
            goodbye = self._goodbyes.pop(name, None)
            if goodbye is not None:
                goodbye.cancel()
        ticket = self._tickets.setdefault(name, secrets.token_hex(8)) if client else None
        connection.send(Open("broker", self.settings.id, key=ticket))
        self._log.info("connected", peer=name, role=message.role)
        self.handle(PeerConnected(name, client=client))

    def _replace(self, connection: Connection, name: str) -> None:
        """The new connection of a peer takes the place of an older one that may not know yet that it is dead."""
        old = self._connections.get(name)
        if old is not None:
            self._forget(old, left=False)
            old.close()
        connection.peer = name
        connection.trust()
        self._connections[name] = connection
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
        due_s = loop.time() + self.settings.grace_s
        self._goodbyes[client] = loop.call_at(due_s, self._has_not_come_back, client, due_s)

    def _has_not_come_back(self, client: str, due_s: float) -> None:
        """A session expires, unless this broker was away itself: then the client has the full time again."""
        if absence.is_late(due_s):
            self._expect_back(client)
        else:
            self._left(client)

    def _left(self, client: str) -> None:
        goodbye = self._goodbyes.pop(client, None)
        if goodbye is not None:
            goodbye.cancel()
        self._rights.pop(client, None)
        self._keys.pop(client, None)
        self._tickets.pop(client, None)
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
        connection.send(Bye())
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
                self._could_not_reach(neighbour, why_not(error), retry_s)
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
        dialling = Dialling(self, neighbour)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: Connection(dialling), host, port, ssl=context)
        try:
            await dialling.answered
        finally:
            if dialling.answered.cancelled():
                transport.abort()  # whoever answers too late is not connected all the same

    def dialled(self, connection: Connection, neighbour: str) -> None:
        """A neighbour has answered a call."""
        self._replace(connection, neighbour)
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
                elif now_s - connection.received_s > 3 * every_s:
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
            await asyncio.sleep(_MEASURE_S)
            bytes_out = sum(connection.bytes_out for connection in self._connections.values())
            unsettled = sum(self.core.statistics().unsettled.values())
            self.handle(self._load.measure(bytes_out, unsettled))
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
    """Run a broker until SIGTERM or SIGINT, then let what is under way settle."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    node = BrokerNode(settings)
    await node.start()
    ready()
    await stopped.wait()
    await node.drain()
    await node.stop()
