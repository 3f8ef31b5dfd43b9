"""A live broker: one `BrokerCore` with a server, links, client sessions, a clock, a journal, traces and metrics around it."""

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

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
from overweave.contract.frames import BatchFrame, Frame
from overweave.contract.modules import Module
from overweave.contract.stimuli import FrameArrived, Stimulus, TimerFired
from overweave.drivers.effect_runner import BROKER_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.load_meter import MEASURE_S, LoadMeter
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.certificates import warn_of_expiry
from overweave.drivers.tcp.client_sessions import ClientSessions
from overweave.drivers.tcp.core_journal import CoreJournal
from overweave.drivers.tcp.garbage import freeze_survivors
from overweave.drivers.tcp.hangup import Hangup
from overweave.drivers.tcp.incarnation import next_incarnation
from overweave.drivers.tcp.keep_alive import keep_alive
from overweave.drivers.tcp.limits import Limits, raise_descriptor_limit
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.monitor import MonitorServer, host_and_port
from overweave.drivers.tcp.network_addresses import check_listen
from overweave.drivers.tcp.peers import Peers
from overweave.drivers.tcp.server import Server
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.tcp.trace_sink import TraceSink
from overweave.errors import Refused
from overweave.routing import PROTOCOLS

#: The interval at which a draining broker looks for unsettled publications.
_DRAIN_CHECK_S = 0.02


class BrokerNode:
    """The broker of one process; implements `CoreHost` for its parts."""

    def __init__(self, settings: BrokerSettings) -> None:
        check_listen(settings)
        self.settings = settings
        self.log = Log(settings.id)
        self._limits = Limits(settings.limits, self.log)
        self.links = Links(settings, self.log)
        self.sessions = ClientSessions(self, self._limits, self.log)
        self.peers = Peers(self, self.links, self.sessions, self.log)
        self.server = Server(self, self.peers, self.links, self.sessions, self._limits, self.log)
        self._trace = TraceSink(settings, self.log)
        self._journal = CoreJournal(self, self.log)
        self._runner = EffectRunner(BROKER_EFFECTS, self.peers, self._schedule, self._fire, self._performers())
        self._restart_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._monitor: asyncio.Server | None = None
        #: When certificates expire.
        self._expiries: dict[str, float] = {}
        self._epoch_s = time.time() - absence.uptime_s()
        self._load = LoadMeter(time.monotonic())
        self.core = self._new_core(0, self._journal.open())

    # ---- from start to end

    async def start(self) -> None:
        """Listen, and dial the neighbours."""
        self._expiries = warn_of_expiry(self.settings.security, time.time(), self.log)
        await self.server.listen()
        self.links.start(self.server)
        self.sessions.restore()
        if self.settings.metrics is not None:
            monitor = MonitorServer(
                self.settings.id,
                lambda: self.core.statistics(),
                self.gauges,
                self.health_problem,
                lambda: self._limits.exceeded,
                self.degradation,
            )
            self._monitor = await monitor.serve_http(*host_and_port(self.settings.metrics))
        self._run(keep_alive(self.server, self.peers, self.settings.ping_interval_s, self.log))
        self._run(self._measure())
        self.log.info("listening", url=self.settings.listen)

    async def drain(self) -> None:
        """Accept nothing new from clients, and wait a while until all publications in flight are settled."""
        self.server.drain()
        end_s = time.monotonic() + self.settings.drain_timeout_s
        while (self.core.statistics().unsettled or self._journal.pending) and time.monotonic() < end_s:
            await asyncio.sleep(_DRAIN_CHECK_S)

    async def stop(self) -> None:
        """Close everything."""
        self.server.stop_accepting()
        if self._monitor is not None:
            self._monitor.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()
        await self._journal.close()
        self._runner.cancel_timers()
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        self.sessions.clear()
        self.peers.close_all()
        self.server.close()
        await asyncio.sleep(0)
        await self._trace.close()
        self.log.info("stopped")

    def reload(self) -> None:
        """Read the tokens again: see `Server.reload`."""
        self.server.reload()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(MEASURE_S)
            unsettled = sum(self.core.statistics().unsettled.values())
            self.handle(self._load.measure(time.monotonic(), self.peers.bytes_out, unsettled))
            self._trace.log_failure()

    # ---- monitoring

    def gauges(self) -> dict[str, float]:
        """Current values, beside the core's statistics."""
        clients = self.peers.client_count
        return {
            "connections": self.server.connection_count,
            "connections_max": self._limits.connections_max,
            "connected_clients": clients,
            "connected_neighbours": len(self.peers) - clients,
            "input_hz": self._load.measured.input_hz,
            "output_bytes_per_s": self._load.measured.output_bytes_per_s,
            "matching_delay_s": self._load.measured.matching_delay_s,
            "journal_pending_records": self._journal.pending,
            "trace_rows_dropped": self._trace.dropped,
            **{f"{name}_expires_at_s": at_s for name, at_s in self._expiries.items()},
        }

    def health_problem(self) -> str | None:
        """Why the broker is unhealthy; None if it is healthy."""
        if self.server.is_draining:
            return "it is stopping"
        if self._journal.health_problem is not None:
            return self._journal.health_problem
        return None if self.links.is_rerouted else self.links.missing()

    def degradation(self) -> str | None:
        """Why the broker is degraded: links are missing, and traffic is routed around them. None if it is not."""
        return self.links.missing() if self.links.is_rerouted else None

    # ---- the core

    def now_s(self) -> float:
        """See `CoreHost.now_s`."""
        return self._epoch_s + absence.uptime_s()

    def handle(self, stimulus: Stimulus) -> None:
        """See `CoreHost.handle`."""
        self._runner.run(self.core.handle(stimulus, self.now_s()))

    def receive(self, peer: str, frame: Frame) -> None:
        """See `CoreHost.receive`."""
        start_s = time.perf_counter()
        self._runner.run(self.core.handle(FrameArrived(peer, frame), self.now_s()))
        if isinstance(frame, BatchFrame):
            self._load.add(frame.batch.count, time.perf_counter() - start_s)

    def _new_core(self, incarnation_least: int, journal: Journal) -> BrokerCore:
        settings = self.settings
        incarnation = next_incarnation(settings.state, settings.id, incarnation_least)
        return BrokerCore(
            settings.id,
            PROTOCOLS[settings.routing].make(settings.id, settings.overlay, incarnation, settings.routing_options),
            self.links.kinds,
            settings.config,
            incarnation=incarnation,
            journal=journal,
            modules=self._modules(),
            life=secrets.randbits(64),
            durable=self._journal.is_durable,
            unsynced=self._journal.pending,
        )

    def _modules(self) -> dict[str, Module]:
        settings = self.settings
        modules = {name: MODULES[name].make(settings.id, options) for name, options in settings.modules.items()}
        return {"tracer": Tracer(settings.id, settings.run), **modules} if self._trace.is_open else modules

    def restart_core(self, incarnation_least: int) -> None:
        """Replace the core as if the process had restarted: it has the journal's state, and peers reconnect."""
        self._restart_timer = None
        self._runner.cancel_timers()
        self.sessions.clear()
        self.peers.close_all()
        self.links.reset()
        self.core = self._new_core(incarnation_least, self._journal.on_restart())
        self.links.start(self.server)
        self.sessions.restore()

    # ---- effects

    def _performers(self) -> Performers:
        """How effects are carried out, except frames and timers."""
        return {
            Persist: self._journal.append,
            Reject: self.reject,
            Notify: self._notify,
            OpenLink: self._open_link,
            CloseLink: self._close_link,
            Restart: self._schedule_restart,
            **dict.fromkeys((Trace, TraceColumns, TraceStatement), self._trace.record),
        }

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        return asyncio.get_running_loop().call_later(max(at_s - self.now_s(), 0.0), action, name)

    def _fire(self, name: str) -> None:
        self.handle(TimerFired(name))

    def reject(self, effect: Reject) -> None:
        """Disconnect a peer with an error; the session of a slow consumer ends."""
        self.log.warning("refused", peer=effect.peer, code=effect.code, text=effect.text)
        if effect.forget:
            self._limits.count_slow_consumer(effect.text)
            self.sessions.add_tombstone(effect.peer, effect.code, effect.text, effect.rows)
        self.peers.reject(effect.peer, Refused(effect.code, effect.text), left=effect.forget)

    def _notify(self, effect: Notify) -> None:
        notice = self.sessions.add_notice(effect)
        connection = self.peers.get(effect.peer)
        if connection is not None:
            connection.send(notice)

    def _open_link(self, effect: OpenLink) -> None:
        self.links.open(effect.peer, effect.kind)

    def _close_link(self, effect: CloseLink) -> None:
        """Remove the link now; disconnect when the core has handled its stimulus."""
        self.links.remove(effect.peer)
        asyncio.get_running_loop().call_soon(self.peers.disconnect_link, effect.peer)

    def _schedule_restart(self, effect: Restart) -> None:
        """Restart as a later incarnation than neighbours know, when the core has handled its stimulus."""
        if self._restart_timer is None:
            text = "neighbours know a later incarnation: expected a clock that never goes back; starting again"
            self.log.warning("clock-went-back", text=text, incarnation=effect.incarnation)
            loop = asyncio.get_running_loop()
            self._restart_timer = loop.call_later(0, self.restart_core, effect.incarnation + 1)


async def serve(settings: BrokerSettings, ready: Callable[[], None]) -> None:
    """Run a broker until SIGTERM or SIGINT, then drain it. SIGHUP reads the tokens again."""
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
