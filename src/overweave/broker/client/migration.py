"""Migrations of a client: subscriptions and the publishing side move to another broker without loss or duplication.

Subscriptions: attach to the new broker, subscribe there with the next generation, and receive from both brokers until all
publications that were routed without the new generation have arrived (`BarrierKind`). Publishing: pause, wait until everything
published is settled, advertise at the new broker with the next generation, and resume there once that is in force. Only then
everything is withdrawn at the old broker.

All state is here. Brokers need none: the client requests barriers until the stream ends. Until the end the old broker has all,
so that any failure leads back to it. The sum of all deadlines is below the longest wait of a broker for the result.
"""

from overweave.broker.client.attachment import ClientAttachment, Registration
from overweave.broker.client.attachments import Attachments
from overweave.broker.client.detachments import Detachments
from overweave.broker.client.migration_state import Migration, MigrationPhase, is_caught_up, is_settled, unmoved_advertisements
from overweave.broker.client.publishing import Publishing
from overweave.contract.effects import Attach, Effect
from overweave.contract.frames import BarrierRequest, Migrate, MigrationResult, Rejected
from overweave.contract.requests import NO_SUBSCRIPTION
from overweave.language.generations import at_generation, split_generation
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

MIGRATE = "migrate"

#: The longest time in each phase. After that of the return the migration has failed, but publishing stays paused until its
#: advertisements are in force at the only broker that is left.
_DEADLINES_S = {
    MigrationPhase.ATTACHING: 30.0,
    MigrationPhase.SUBSCRIBING: 120.0,
    MigrationPhase.DRAINING: 10.0,
    MigrationPhase.ADVERTISING: 10.0,
    MigrationPhase.REVERTING: 10.0,
}
#: The most characters of an error in a result.
_ERROR_MAX = 1000


class Migrations:
    """The migrations of one client, one at a time; ``home`` is the broker of new subscriptions."""

    REPEAT_S = 2.0

    def __init__(self, attachments: Attachments, publishing: Publishing, home: ClientAttachment) -> None:
        self._attachments, self._publishing = attachments, publishing
        self.home = home
        self._current: Migration | None = None
        #: Whether a migration is in progress, or an attachment is given up; read at every stimulus.
        self.active = False
        self._leaving = Detachments(attachments, publishing)
        self._generation = 0

    # ---- orders

    def begin(self, order: Migrate, source: ClientAttachment, effects: list[Effect]) -> None:
        """Begin a migration that a broker has ordered; another one in progress is not disturbed."""
        if self._current is not None and self._current.order.token == order.token:
            return
        if (error := self._error(order, source)) is not None:
            _send_result(source, MigrationResult(order.token, error), effects)
            return
        target = self._attachments.at(order.to)
        if target is None:
            target = self._attachments.add(order.to)
            effects.append(Attach(order.to, source.peer))
        self._leaving.cancel(target)
        self._current, self.active = Migration(order, source, target), True

    def _error(self, order: Migrate, source: ClientAttachment) -> str | None:
        """Why an order cannot be carried out."""
        if self._current is not None:
            return f"another migration is in progress, to {self._current.order.to}"
        if self._publishing.paused:
            return f"publishing is paused until its advertisements are in force at {self._publishing.home.broker}"
        if order.to == source.broker or source in self._leaving:
            return f"the client is at {order.to if order.to == source.broker else self.home.broker} already"
        unknown = sorted({*(order.subscriptions or ())} - {split_generation(each.id)[0] for each in source.of_kind(Subscribe)})
        if not unknown:
            return None
        homes = [each.broker for each in self._attachments if any(each.generations_of(unknown[0], Subscribe))]
        elsewhere = f" at {source.broker}, but at {homes[0]}" if homes else ""
        return f"{NO_SUBSCRIPTION} {unknown[0]!r}{elsewhere}"

    def on_attach_failed(self, peer: str, reason: str, effects: list[Effect]) -> None:
        """The driver cannot connect to a broker."""
        current = self._current
        if current is not None and current.target.peer == peer and current.phase is not MigrationPhase.REVERTING:
            self._fail(current, f"cannot attach to {peer}: {reason}", effects)

    def on_rejected(self, rejected: Rejected, attachment: ClientAttachment, effects: list[Effect]) -> bool:
        """Fail if the new broker has rejected a registration; whether it was one of a migration."""
        current = self._current
        if current is None or attachment is not current.target:
            return False
        if rejected.id not in {new.id for _, new in (*current.subscriptions, *current.advertisements)}:
            return False
        self._fail(current, f"{current.order.to} rejected a registration: {rejected.text}", effects)
        return True

    def on_stream_end(self, token: str) -> None:
        """The old broker has sent all that was routed without the new subscriptions."""
        if self._current is not None and self._current.attempt == token:
            self._current.stream_ended = True

    def withdraw(self, message: Unadvertise | Unsubscribe, effects: list[Effect]) -> None:
        """Withdraw all generations of an advertisement or a subscription, wherever they are."""
        kind = Advertise if isinstance(message, Unadvertise) else Subscribe
        found = [(each, old) for each in self._attachments for old in each.generations_of(message.id, kind)]
        for attachment, registration in found:
            attachment.withdraw(registration, effects)
        if not found:
            (self._publishing.home if kind is Advertise else self.home).send(message, effects)
        if self._current is not None:
            for moved in (self._current.subscriptions, self._current.advertisements):
                moved[:] = [pair for pair in moved if pair[0].id not in {old.id for _, old in found}]

    # ---- failures of brokers

    def is_secondary(self, attachment: ClientAttachment) -> bool:
        """Whether an attachment only serves a migration: without it, everything is in force at other brokers."""
        current = self._current
        if current is None or attachment is not current.target or attachment is self._publishing.home:
            return attachment in self._leaving
        return attachment.registered.keys() <= {new.id for _, new in (*current.subscriptions, *current.advertisements)}

    def abandon(self, failed: ClientAttachment, to: ClientAttachment, effects: list[Effect]) -> None:
        """Give up what involves a broker that has failed, in favour of another one."""
        current = self._current
        if current is not None and current.source is failed:
            self._current = None
        elif current is not None and current.target is failed and current.phase is not MigrationPhase.REVERTING:
            self._fail(current, f"{failed.broker} has failed", effects)
        for each in (failed, to):
            self._leaving.cancel(each)

    def renewed_id(self, registration: Registration) -> str:
        """The id of a registration with a generation of its own."""
        self._generation += 1
        return at_generation(registration.id, self._next_generation(registration))

    # ---- progress

    def on_timer(self, effects: list[Effect], now_s: float) -> None:
        """Ask for a barrier again: a broker on its path may have crashed."""
        current = self._current
        if current is not None and current.awaits_stream_end and current.requested and is_settled(current.barrier):
            self._request_barrier(current, effects)
        self.advance(effects, now_s)

    def advance(self, effects: list[Effect], now_s: float) -> None:
        """Go on as far as possible after a stimulus."""
        while (current := self._current) is not None and self._step(current, effects):
            pass
        if current is not None:
            if current.deadline_s is None:
                current.deadline_s = now_s + _DEADLINES_S[current.phase]
            elif now_s > current.deadline_s:
                self._expire(current, effects)
        self._leaving.advance(effects, now_s)
        self.active = self._current is not None or bool(self._leaving)

    def _step(self, current: Migration, effects: list[Effect]) -> bool:
        """Enter the next phase if the present one is complete."""
        match current.phase:
            case MigrationPhase.DRAINING | MigrationPhase.ADVERTISING if current.target_restarted:
                # Perhaps without the subscriptions: publications may have come to the old broker alone since the barrier.
                self._fail(current, f"{current.order.to} has restarted", effects)
            case MigrationPhase.ATTACHING if current.target.session.established:
                self._subscribe(current, effects)
            case MigrationPhase.SUBSCRIBING if current.target_restarted and is_settled(current.barrier):
                # It has the subscriptions from its journal, so that their settlement says nothing.
                for _, new in current.subscriptions:
                    current.target.withdraw(new, effects)
                current.subscriptions.clear()
                self._subscribe(current, effects)
            case MigrationPhase.SUBSCRIBING if (
                current.awaits_stream_end and not current.requested and is_settled(current.barrier)
            ):
                # Only now: before they are settled, the new broker may crash and forget the subscriptions.
                self._request_barrier(current, effects)
            case MigrationPhase.SUBSCRIBING if is_caught_up(current):
                if not current.order.publishing or self._publishing.home is not current.source:
                    self._complete(current, effects)
                else:
                    self._drain(current)
            case MigrationPhase.DRAINING if is_settled(current.barrier):
                self._enter(current, MigrationPhase.ADVERTISING)
                self._advertise(current, current.source.of_kind(Advertise), current.target, effects)
            case MigrationPhase.ADVERTISING if is_settled(current.barrier):
                if late := unmoved_advertisements(current):  # advertised meanwhile
                    self._advertise(current, late, current.target, effects)
                    return False
                self._publishing.resume(current.target, effects)
                self._complete(current, effects)
            case MigrationPhase.REVERTING if is_settled(current.barrier):
                self._publishing.resume(current.source, effects)
                self._finish(current, current.error, effects)
            case _:
                return False
        return True

    def _enter(self, current: Migration, phase: MigrationPhase) -> None:
        """Enter a phase; one that begins again has no more time."""
        if phase is not current.phase:
            current.phase, current.deadline_s = phase, None

    def _subscribe(self, current: Migration, effects: list[Effect]) -> None:
        """Subscribe at the new broker too."""
        order, source, target = current.order, current.source, current.target
        chosen = [
            each
            for each in source.of_kind(Subscribe)
            if order.subscriptions is None or split_generation(each.id)[0] in order.subscriptions
        ]
        if order.subscriptions is None and self.home is source:
            self.home = target
        self._enter(current, MigrationPhase.SUBSCRIBING)
        self._generation += 1
        for old in chosen:
            new = Subscribe(at_generation(old.id, self._next_generation(old)), old.filter)
            current.subscriptions.append((old, new))
            target.send(new, effects)
        current.barrier, current.target_epoch = target.session.outbound.barrier(), target.session.peer_epoch
        current.begin_attempt(self._generation)

    def _next_generation(self, registration: Registration) -> int:
        self._generation = max(self._generation, split_generation(registration.id)[1] + 1)
        return self._generation

    def _request_barrier(self, current: Migration, effects: list[Effect]) -> None:
        outbound = current.target.session.outbound
        outbound.send_control_windowed(BarrierRequest(current.attempt, current.source.broker), effects)
        current.barrier, current.requested = outbound.barrier(), True

    def _drain(self, current: Migration) -> None:
        """Pause publishing until everything published is settled."""
        self._publishing.pause()
        current.barrier = current.source.session.outbound.barrier()
        self._enter(current, MigrationPhase.DRAINING)

    def _advertise(self, current: Migration, held: list[Registration], at: ClientAttachment, effects: list[Effect]) -> None:
        """Advertise at a broker with the next generation; in force, it has all subscriptions that publications need."""
        self._generation += 1
        for old in held:
            new = Advertise(at_generation(old.id, self._next_generation(old)), old.filter)
            current.advertisements.append((old, new))
            at.send(new, effects)
        current.barrier = at.session.outbound.barrier()

    # ---- ends

    def _expire(self, current: Migration, effects: list[Effect]) -> None:
        """A phase has taken too long; there is nothing to return to from a return."""
        if current.phase is MigrationPhase.REVERTING and current.barrier is not None:
            self._publishing.resume_behind(current.barrier)
            where = current.source.broker
            error = f"{current.error}; publishing is paused until its advertisements are in force at {where}"
            self._finish(current, error, effects)
        else:
            self._fail(current, f"no progress within {_DEADLINES_S[current.phase]:g} s while {current.phase.value}", effects)

    def _fail(self, current: Migration, error: str, effects: list[Effect]) -> None:
        """Stay at the old broker, where everything is still in force."""
        for _, new in current.subscriptions:
            if new.id in current.target.registered:
                current.target.withdraw(new, effects)
        if self.home is current.target:
            self.home = current.source
        if current.phase is MigrationPhase.ADVERTISING:
            self._revert(current, error, effects)
            return
        if current.phase is MigrationPhase.DRAINING:
            self._publishing.resume(current.source, effects)
        self._finish(current, error, effects)

    def _revert(self, current: Migration, error: str, effects: list[Effect]) -> None:
        """Return the publishing side: tables may have changed, so that it needs one more generation."""
        moved, current.advertisements = current.advertisements, []
        self._advertise(current, [new for _, new in moved], current.source, effects)
        for old, new in moved:
            current.source.withdraw(old, effects)
            if new.id in current.target.registered:
                current.target.withdraw(new, effects)
        current.barrier = current.source.session.outbound.barrier()
        current.error = error
        self._enter(current, MigrationPhase.REVERTING)

    def _complete(self, current: Migration, effects: list[Effect]) -> None:
        """Withdraw what has moved."""
        for old, _ in (*current.subscriptions, *current.advertisements):
            current.source.withdraw(old, effects)
        self._finish(current, None, effects)

    def _finish(self, current: Migration, error: str | None, effects: list[Effect]) -> None:
        self._current = None
        _send_result(current.source, MigrationResult(current.order.token, error), effects)
        for attachment in (current.source, current.target):
            is_needed = attachment.registered or attachment in (self.home, self._publishing.home)
            if not is_needed and attachment is self._attachments.get(attachment.peer):
                self._leaving.add(attachment)

    def validate(self) -> None:
        """Check the invariants: homes stay attached, and each registration is at one home, unless it is moving."""
        current, attachments, moving = self._current, self._attachments, set[str]()
        assert self.active == (current is not None or bool(self._leaving))
        for home in (self.home, self._publishing.home):
            assert attachments.get(home.peer) is home
            assert home not in self._leaving
        self._leaving.validate()
        if current is not None:
            current.validate()
            assert current.source not in self._leaving
            assert current.target not in self._leaving
            assert self._publishing.paused or current.phase in (MigrationPhase.ATTACHING, MigrationPhase.SUBSCRIBING)
            moving = {split_generation(old.id)[0] for old, _ in (*current.subscriptions, *current.advertisements)}
        homes: dict[tuple[type, str], ClientAttachment] = {}
        for attachment in attachments if len(attachments.by_peer) > 1 else ():
            for each in attachment.registered.values():
                id = split_generation(each.id)[0]
                assert homes.setdefault((type(each), id), attachment) is attachment or id in moving, id


def _send_result(source: ClientAttachment, result: MigrationResult, effects: list[Effect]) -> None:
    """Send the result of an order; brokers refuse longer texts of errors."""
    error = None if result.error is None else result.error[:_ERROR_MAX]
    source.session.outbound.send_control(MigrationResult(result.token, error), effects)
