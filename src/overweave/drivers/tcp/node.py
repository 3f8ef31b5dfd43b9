"""A live broker: one `BrokerCore` with a server, links, client sessions, a clock, a journal, traces and metrics around it."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

from overweave.broker.core import BrokerCore
from overweave.broker.registry import Journal
from overweave.contract.effects import (
    MigrationEnded,
    ModuleAnswer,
    Notify,
    Persist,
    Reject,
    Restart,
    Trace,
    TraceColumns,
    TraceDecision,
    TraceStatement,
)
from overweave.contract.frames import BatchFrame, Frame
from overweave.contract.stimuli import FrameArrived, Stimulus, TimerFired
from overweave.drivers.effect_runner import BROKER_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.load_meter import MEASURE_S, LoadMeter
from overweave.drivers.protocol_failure import failure_text_of_broker
from overweave.drivers.tcp import absence
from overweave.drivers.tcp.broker_modules import modules_of
from overweave.drivers.tcp.certificates import warn_of_expiry
from overweave.drivers.tcp.client_sessions import ClientSessions
from overweave.drivers.tcp.core_journal import CoreJournal
from overweave.drivers.tcp.directory import Directory
from overweave.drivers.tcp.drain_clients import drain_clients
from overweave.drivers.tcp.incarnation import next_incarnation
from overweave.drivers.tcp.keep_alive import keep_alive
from overweave.drivers.tcp.limits import Limits
from overweave.drivers.tcp.link_effects import LinkEffects
from overweave.drivers.tcp.links import Links
from overweave.drivers.tcp.load_feed import LoadFeed
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.memory import physical_bytes, resident_bytes
from overweave.drivers.tcp.monitor import MonitorServer, host_and_port
from overweave.drivers.tcp.network_addresses import check_listen
from overweave.drivers.tcp.peers import Peers
from overweave.drivers.tcp.server import Server
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.tcp.trace_sink import TraceSink
from overweave.errors import OverweaveError, Refused
from overweave.overlay.parts import LinkKind
from overweave.routing import PROTOCOLS

#: The interval at which a draining broker looks for unsettled publications, and one that joins for its contact.
_CHECK_S = 0.02


class BrokerNode:
    """The broker of one process; implements `CoreHost` for its parts."""

    def __init__(self, settings: BrokerSettings, on_failure: Callable[[], None] = lambda: None) -> None:
        check_listen(settings)
        self.settings = settings
        #: The error of the core after which it handles nothing more: its state may be inconsistent.
        self.failure: OverweaveError | None = None
        self._on_failure = on_failure
        self.log = Log(settings.id)
        self._limits = Limits(settings.limits, self.log)
        self.directory = Directory(settings, self.log)
        self.links = Links(settings, self.log)
        self.sessions = ClientSessions(self, self._limits, self.log)
        self.peers = Peers(self, self.links, self.sessions, self.log)
        self._link_effects = LinkEffects(self, self.links, self.peers, self.log)
        self.server = Server(self, self.peers, self.links, self._link_effects, self.sessions, self._limits, self.log)
        self._trace = TraceSink(settings, self.log)
        self._journal = CoreJournal(self, self.log)
        self._runner = EffectRunner(BROKER_EFFECTS, self.peers, self._schedule, self._fire, self._performers())
        self._restart_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._monitor: asyncio.Server | None = None
        #: When certificates expire.
        self._expiries: dict[str, float] = {}
        self._epoch_s = time.time() - absence.uptime_s()
        bandwidth = settings.output_bandwidth_bytes_per_s
        self._load = LoadMeter(time.monotonic(), bandwidth)
        self._load_feed = LoadFeed(self._load, self.peers, bandwidth, time.monotonic())
        self.core = self._new_core(0, self._journal.open())

    # ---- from start to end

    async def start(self) -> None:
        """Listen, and dial the neighbours."""
        self._expiries = warn_of_expiry(self.settings.security, time.time(), self.log)
        await self.server.listen()
        self._link_effects.start(self.server)
        self.sessions.restore()
        if self.settings.metrics is not None:
            monitor = MonitorServer(
                self.settings.id,
                lambda: self.core.statistics(),
                self.gauges,
                self.health_problem,
                lambda: self._limits.exceeded,
                self.degradation,
                lambda: self.core.module_status(),
                lambda: self.core.migrations(),
                lambda message: self.core.story(message),
            )
            self._monitor = await monitor.serve_http(*host_and_port(self.settings.metrics))
        self._run(keep_alive(self.server, self.peers, self.settings.ping_interval_s, self.log))
        self._run(self._measure())
        self.log.info("listening", url=self.settings.listen)

    async def wait_joined(self) -> None:
        """Wait until a broker that joins has joined; it serves no clients before."""
        while self.settings.join is not None and self._link_effects.problem() is not None:
            await asyncio.sleep(_CHECK_S)

    async def drain(self) -> None:
        """Accept nothing new from clients, and wait a while until all publications in flight are settled."""
        self.server.drain()
        end_s = time.monotonic() + self.settings.drain_timeout_s
        while (self.core.statistics().unsettled or self._journal.pending) and time.monotonic() < end_s:
            await asyncio.sleep(_CHECK_S)

    async def drain_clients(self, limit_s: float) -> None:
        """Move clients to connected neighbours, until the time limit."""
        neighbours = [each for each in self.links.kinds if each in self.peers]
        await drain_clients(self.server.operators, neighbours, limit_s, self.log)

    def leave(self) -> None:
        """Leave the network permanently, if this broker is a guest without clients."""
        self._link_effects.leave()

    async def stop(self) -> None:
        """Close everything."""
        self.server.stop_accepting()
        if self._monitor is not None:
            self._monitor.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._link_effects.cancel()
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
            self.links.observe_sessions(self.core.established_neighbours())
            self._load_feed.feed(time.monotonic(), self.links.kinds)
            unsettled = sum(self.core.statistics().unsettled.values())
            subscriptions = self.core.registration_count("subscription")
            memory = resident_bytes(), physical_bytes()
            self.handle(self._load.measure(time.monotonic(), unsettled, subscriptions, *memory))
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
            "output_bytes_per_s": self._load.measured.put_bytes_per_s,
            "matching_delay_s": self._load.measured.matching_delay_s,
            "journal_pending_records": self._journal.pending,
            "trace_rows_dropped": self._trace.dropped,
            **{f"{name}_expires_at_s": at_s for name, at_s in self._expiries.items()},
        }

    def health_problem(self) -> str | None:
        """Why the broker is unhealthy; None if it is healthy."""
        if self.failure is not None:
            return str(self.failure)
        if self.server.is_draining:
            return "it is stopping"
        if self._journal.health_problem is not None:
            return self._journal.health_problem
        return self._link_effects.problem() or (None if self.links.is_rerouted else self.links.missing())

    def degradation(self) -> str | None:
        """Why the broker is degraded: traffic is routed around missing links, or a link has no session. None if it is not."""
        return (self.links.missing() if self.links.is_rerouted else None) or self.links.unestablished()

    # ---- the core

    def now_s(self) -> float:
        """See `CoreHost.now_s`."""
        return self._epoch_s + absence.uptime_s()

    def handle(self, stimulus: Stimulus) -> None:
        """See `CoreHost.handle`."""
        if self.failure is not None:
            return
        try:
            effects = self.core.handle(stimulus, self.now_s())
        except OverweaveError:
            raise
        except Exception as error:
            self._fail(error)
        else:
            self._runner.run(effects)

    def receive(self, peer: str, frame: Frame) -> None:
        """See `CoreHost.receive`."""
        started_s, start_s = time.monotonic(), time.perf_counter()
        self.handle(FrameArrived(peer, frame))
        if isinstance(frame, BatchFrame):
            rows, load = frame.batch.count, self._load
            load.arrived(rows)
            load.served(rows, time.perf_counter() - start_s)
            connection = self.peers.get(peer)
            if connection is not None:
                load.waited(rows * max(started_s - connection.received_s, 0.0))

    def _fail(self, error: Exception) -> None:
        """Stop after an exception of the core, mostly of its protocol: the broker would be up, and publishers would hang."""
        text = failure_text_of_broker(self.settings.routing, error)
        self.log.error("failed", text=text)
        self.failure = OverweaveError(f"broker {self.settings.id}: {text}")
        self.failure.__cause__ = error
        self._on_failure()

    def _new_core(self, incarnation_least: int, journal: Journal) -> BrokerCore:
        settings, kinds = self.settings, _file_links(self.settings)
        incarnation = next_incarnation(settings.state, settings.id, incarnation_least)
        kind = PROTOCOLS[settings.routing]
        overlay = settings.overlay if kind.brokers_max is None else settings.numbered_overlay
        core = BrokerCore(
            settings.id,
            kind.make(settings.id, overlay, incarnation, settings.routing_options),
            kinds,
            settings.config,
            incarnation=incarnation,
            journal=journal,
            modules=modules_of(settings, kinds, self.directory, traced=self._trace.is_open),
            module_life=secrets.randbits(64),
            confirms_persist=self._journal.is_durable,
            pending_persists=self._journal.pending,
            overlay=settings.overlay_state,
        )
        self._link_effects.restore(core)
        return core

    def restart_core(self, incarnation_least: int) -> None:
        """Replace the core as if the process had restarted: it has the journal's state, and peers reconnect."""
        self._restart_timer = None
        self._runner.cancel_timers()
        self.sessions.clear()
        self.peers.close_all()
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
            Restart: self._schedule_restart,
            MigrationEnded: self.server.operators.on_ended,
            ModuleAnswer: self.server.operators.on_answer,
            **self._link_effects.performers(),
            **dict.fromkeys((Trace, TraceColumns, TraceStatement, TraceDecision), self._trace.record),
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

    def _schedule_restart(self, effect: Restart) -> None:
        """Restart as a later incarnation than neighbours know, when the core has handled its stimulus."""
        if self._restart_timer is None:
            text = "neighbours know this or a later incarnation: expected a clock that never goes back; starting again"
            self.log.warning("clock-went-back", text=text, incarnation=effect.incarnation)
            loop = asyncio.get_running_loop()
            self._restart_timer = loop.call_later(0, self.restart_core, effect.incarnation + 1)


def _file_links(settings: BrokerSettings) -> dict[str, LinkKind]:
    """The links of a broker in the network file."""
    overlay = settings.overlay
    return {each: overlay.link(settings.id, each).kind for each in overlay.neighbours(settings.id)}
