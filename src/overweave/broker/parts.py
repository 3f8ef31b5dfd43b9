"""The parts of a broker core, and how they are joined."""

from collections.abc import Mapping
from dataclasses import dataclass

from overweave.broker.backlogs import Backlogs
from overweave.broker.client_control import ClientControl
from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.counters import Counters
from overweave.broker.deferred import DeferredMessages
from overweave.broker.durability import Durability
from overweave.broker.failure_detector import FailureDetector
from overweave.broker.forwarder import Forwarder
from overweave.broker.migration import MigrationControl
from overweave.broker.module_host import ModuleHost
from overweave.broker.module_outlet import BrokerOutlet
from overweave.broker.orphans import Orphans
from overweave.broker.overlay_control import OverlayControl
from overweave.broker.peers import Peers
from overweave.broker.recovery import Recovery, make_recovery
from overweave.broker.registry import Registry
from overweave.broker.retirement import LinkRetirement
from overweave.broker.session import AckScheduler
from overweave.broker.slow_consumers import SlowConsumerPolicy
from overweave.broker.step import StepContext
from overweave.broker.story import Story
from overweave.broker.timers import Timers
from overweave.broker.urgent_lane import UrgentLane
from overweave.contract.config import BrokerConfig
from overweave.contract.modules import Module
from overweave.contract.overlay_state import OverlayRecord
from overweave.routing.base import Engine
from overweave.routing.sync import SyncKind


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of one broker core."""

    context: BrokerContext
    consumers: SlowConsumerPolicy
    forwarder: Forwarder
    urgent: UrgentLane
    control: ControlPlane
    clients: ClientControl
    orphans: Orphans
    recovery: Recovery
    retirement: LinkRetirement
    migration: MigrationControl
    overlay: OverlayControl

    def validate(self) -> None:
        """Check the invariants of all parts."""
        context = self.context
        context.engine.routing.validate()
        context.detector.validate(context.peers.neighbours)
        for shared in (context.peers, context.backlogs, context.modules):
            shared.validate()
        for part in (self.forwarder, self.urgent, self.control, self.clients, self.orphans):
            part.validate()
        for rest in (self.retirement, self.migration, self.overlay):
            rest.validate()


def make_context(
    id: str, engine: Engine, config: BrokerConfig, incarnation: int, modules: Mapping[str, Module], module_life: int
) -> BrokerContext:
    """The shared parts of one broker."""
    step, detector = StepContext(), FailureDetector(config, engine.links is not None or engine.ticks is not None)
    sync = engine.sync(detector.tick_s is not None)
    story, counters = Story(config.story_length), Counters()
    peers = Peers(config.session, incarnation, AckScheduler(selective=sync.kind is not SyncKind.TREE))
    return BrokerContext(
        id=id,
        incarnation=incarnation,
        config=config,
        engine=engine,
        step=step,
        timers=Timers(step),
        peers=peers,
        backlogs=Backlogs(peers, step),
        sync=sync,
        detector=detector,
        deferred=DeferredMessages(step),
        modules=ModuleHost(id, modules, step, module_life, story, counters),
        story=story,
        counters=counters,
    )


def make_parts(context: BrokerContext, registry: Registry, durability: Durability, record: OverlayRecord) -> BrokerParts:
    """All parts of one broker, joined."""
    consumers = SlowConsumerPolicy(context.config)
    advertised = registry.advertised if context.engine.needs_advertisements else None
    forwarder, urgent, control = Forwarder(context, advertised, consumers), UrgentLane(context), ControlPlane(context)
    clients, orphans = ClientControl(context, control, registry, durability), Orphans(context)
    recovery = make_recovery(context, control, forwarder.duplicate_acks, orphans)
    retirement = LinkRetirement(context, recovery)
    context.deferred.set_handlers(forwarder.resume, clients.resume, clients.is_too_early)
    migration = MigrationControl(context, consumers)
    overlay = OverlayControl(context, control, retirement, registry, record)
    context.modules.connect(BrokerOutlet(context, control, forwarder, urgent, retirement, migration, overlay))
    return BrokerParts(context, consumers, forwarder, urgent, control, clients, orphans, recovery, retirement, migration, overlay)
