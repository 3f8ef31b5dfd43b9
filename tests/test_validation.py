"""Cores whose state is wrong do not validate, and validated tests notice at the next stimulus."""

import pytest

from overweave.broker.pending_ack import PendingAck
from overweave.broker.session import Session
from overweave.broker.session.handshake import EpochCounter
from overweave.contract.config import SessionConfig
from overweave.contract.stimuli import TimerFired
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Link
from overweave.routing import PROTOCOLS
from overweave.routing.sync import TreeSync
from overweave.testing.validation import ALWAYS, SELDOM, validated

ANY = parse_filter("[x,>=,0]")
OVERLAY = Overlay(
    [Broker("B1", cluster="C1"), Broker("B2", cluster="C1", other_clusters=("C2",)), Broker("B3", cluster="C2")],
    [Link("B1", "B2"), Link("B2", "B3")],
)


def network(protocol):
    """A network with a publisher and a subscriber, at rest."""
    made = SimulatedNetwork(OVERLAY, PROTOCOLS[protocol].make)
    for client, broker in (("p", "B1"), ("s", "B3")):
        made.add_client(client, broker)
    made.say("p", Advertise("a", ANY))
    made.say("s", Subscribe("s", ANY))
    made.run_until_quiescent()
    return made


def register_twice(client):
    client._attachments.add("B1").registered["s"] = Subscribe("s", ANY)


def leave_home(client):
    home = client._migrations.home
    client._migrations._leaving.add(home)
    client._migrations.active = True
    client._timers.add("migrate")


def lose_home(client):
    client._attachments.remove(client._migrations.home)


def pause_for_nothing(client):
    client._publishing.pause()


def miscount_paused_rows(client):
    client._publishing._paused_rows = -1


def widen_a_window(client):
    next(iter(client._attachments)).session.outbound.window += 1


def begin_without_a_deadline(client):
    from overweave.broker.client.migration_state import Migration, MigrationPhase

    (home,) = client._attachments
    current = client._migrations._current = Migration(None, home, home)
    current.phase, client._migrations.active = MigrationPhase.DRAINING, True


@pytest.mark.parametrize(
    "damage",
    [
        register_twice,
        leave_home,
        lose_home,
        pause_for_nothing,
        miscount_paused_rows,
        widen_a_window,
        begin_without_a_deadline,
    ],
)
def test_a_damaged_client_does_not_validate(damage):
    client = network("filter").client("s")
    client.validate()
    damage(client)
    with pytest.raises(AssertionError):
        client.validate()


def foreign_inbound(core):
    config = SessionConfig()
    return Session("nobody", EpochCounter(1), config, core._context.peers.acks).inbound


def set_private(path, value):
    """Damage that sets something; ``path`` begins at the core."""

    def damage(core):
        *owners, name = path.split(".")
        for owner in owners:
            core = getattr(core, owner)
        setattr(core, name, value)

    damage.__name__ = path
    return damage


def put(path, key, value):
    """Damage that puts something into a dictionary or, without a value, into a set."""

    def damage(core):
        for owner in path.split("."):
            core = getattr(core, owner)
        if isinstance(core, set):
            core.add(key)
        else:
            core[key] = value

    damage.__name__ = f"{path}+{key}"
    return damage


def acknowledge_a_foreign_session(core):
    core._context.peers.acks.delayed[foreign_inbound(core)] = None


def hold_a_released_ack(core):
    ack = PendingAck.of_control(foreign_inbound(core), 0)
    ack.release()
    core._parts.clients.durability._confirms_persist = True
    core._parts.clients.durability._pending[1] = [ack]


def defer_a_released_ack(core):
    ack = PendingAck.of_control(foreign_inbound(core), 0)
    ack.release()
    core._parts.control.settlement._deferred.append((Subscribe("s", ANY), "B1", ack))


def tire_a_session(core):
    core._context.peers.sessions["B1"].outbound._backoff._left = 99


def overfill_a_buffer(core):
    core._context.peers.sessions["B1"].outbound.buffer.active = True


def order_a_client_twice(core):
    from overweave.broker.migration import _Order

    core._parts.migration._orders.update({token: _Order("p", "B2", 1e9) for token in "xy"})
    core._context.timers.due_s["migrations"] = 1e9


def forget_a_timer(core):
    core._context.peers.acks.delayed[core._context.peers.sessions["B1"].inbound] = None
    core._context.timers.due_s.clear()


def see_twice(core):
    window = core._forwarder._ingress._local
    window._lives["p", 1] = window._older["p", 1] = [0], bytearray(8)


BROKER_DAMAGE = [
    acknowledge_a_foreign_session,
    hold_a_released_ack,
    defer_a_released_ack,
    tire_a_session,
    overfill_a_buffer,
    order_a_client_twice,
    forget_a_timer,
    see_twice,
    set_private("_forwarder._has_observers", True),
    set_private("_context.modules._depth", 1),
    set_private("_context.modules.watches_routed", True),
    set_private("_context.engine.routing._only", None),
    set_private("_context.engine.routing.is_single", False),
    set_private("_parts.control.retired", ["B1"]),
    put("_context.engine.routing._by_tag", 7, 0),
    put("_context.modules._timers", "t", ("nobody", "t")),
    put("_context.detector._down", "nobody", None),
    put("_context.backlogs._publishers", "B1", None),
    put("_context.sync.unsynced", "B1", None),
    put("_context.sync._epochs", 1, TreeSync()),
    put("_parts.retirement.links", "nobody", None),
    put("_parts.overlay._outsiders", "nobody", 0.0),
    put("_parts.clients.leaving._due", "nobody", {}),
]


@pytest.mark.parametrize("damage", BROKER_DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_broker_does_not_validate(damage):
    broker = network("filter").broker("B2")
    broker.validate()
    damage(broker)
    with pytest.raises(AssertionError):
        broker.validate()


@pytest.mark.parametrize(
    "damage",
    [
        put("_context.engine.routing._exchange._changed", "a", None),
        put("_context.engine.routing._exchange._suppressed", "C9", set()),
        put("_context.engine.routing._exchange.paths._lost", "C9", {}),
        put("_context.sync._neighbours", "B1", None),
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_broker_of_two_clusters_does_not_validate(damage):
    broker = network("merc").broker("B2")
    broker.validate()
    damage(broker)
    with pytest.raises(AssertionError):
        broker.validate()


@pytest.mark.parametrize("everything", [False, True])
def test_cores_validate_after_their_stimuli(everything):
    with validated(everything):
        made = network("filter")
        for core in (made.broker("B2"), made.client("s")):
            for _ in range(ALWAYS + SELDOM):
                core.handle(TimerFired("none"), made.scheduler.now_s)
            validations = []
            core.validate = lambda validations=validations: validations.append(1)
            for _ in range(2 * SELDOM):
                core.handle(TimerFired("none"), made.scheduler.now_s)
            assert len(validations) == (2 * SELDOM if everything else 2)


def test_a_damaged_core_is_found_at_its_next_stimulus():
    with validated():
        made = network("filter")
        miscount_paused_rows(made.client("s"))
        with pytest.raises(AssertionError):
            made.nodes["s"].handle(TimerFired("none"))
