"""Traffic: what a broker does with publications.

Each goes on, once, wherever routing wants it. What cannot be routed yet, or has no way at present, is held, control included, and
goes on when that changes. All of it stays in the custody of whoever sent it until the last copy is settled.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, Identity
from overweave.batches.destinations import destination_counts, split_local, with_destinations
from overweave.broker.advertised import Advertised, shown
from overweave.broker.dedup import DedupWindow
from overweave.broker.module_host import ModuleHost
from overweave.broker.neighbour_sync import NeighbourSync
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session import Session
from overweave.broker.slow_consumers import SlowConsumerPolicy
from overweave.broker.step import StepContext
from overweave.broker.story import Story
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Notify, Reject
from overweave.contract.frames import BatchFrame, is_addressed
from overweave.contract.modules import Routed
from overweave.errors import InvalidInput, WireError
from overweave.language.headers import Priority
from overweave.language.messages import Control
from overweave.routing.base import Forward, Instead, Routing


class _Held(NamedTuple):
    """What waits until it is known where it goes: who sent it, who keeps it, and since when."""

    what: Batch | Control
    peer: str
    ack: PendingAck | None
    since_s: float
    #: Whether it was routed before, and whether it is for others than this broker's clients.
    again: bool = False
    elsewhere: bool = False


class _Orphan(NamedTuple):
    """What was in flight on a link that is closed, and goes nowhere else."""

    batch: Batch
    ack: PendingAck
    since_s: float


class Forwarder:
    """The publications of one broker; sessions and neighbours are the broker's own, and ``tell_again`` is for control it held."""

    def __init__(
        self,
        step: StepContext,
        config: BrokerConfig,
        routing: Routing,
        telling: NeighbourSync,
        sessions: dict[str, Session],
        neighbours: dict[str, None],
        desk: ModuleHost,
        tell_again: Callable[[Control, str, PendingAck | None], None],
    ) -> None:
        self._step, self._config = step, config
        self._routing, self._sync = routing, telling
        self._sessions, self._neighbours, self._modules = sessions, neighbours, desk
        self._tell_again = tell_again
        self._held: deque[_Held] = deque()
        self._orphans: list[_Orphan] = []
        #: Duplicates that wait for the copies that came first, and since when: after crashes they might do so in a circle.
        self._following: deque[tuple[float, PendingAck, PendingAck]] = deque()
        #: What has come, for this broker's clients and by lane; and the lanes of what comes from neighbours and clients (None).
        self._seen_size = 2 * max(config.session.window, config.publisher_window)
        self._seen = DedupWindow(self._seen_size)
        self._seen_on: dict[Hashable, DedupWindow] = {}
        self._lanes: dict[tuple[str | None, int], list[DedupWindow]] = {}
        #: Whether the broker was away, and does not know yet who is there: what its clients publish waits.
        self.listens = False
        self.patience = SlowConsumerPolicy(config)
        self.story = Story(config.story_length)
        #: Whether somebody wants to know of each batch where it goes.
        self._observed = self.story.length > 0 or desk.watches_passed
        #: Rows that came and went, those of modules apart.
        self.rows_in = self.rows_out = self.rows_to_clients = self.duplicates = 0
        self.control_in = self.control_out = 0
        #: Rows that were given up because the only link they could take is closed.
        self.undeliverable = 0
        #: What clients have advertised, where publications need it to reach others; and how many rows lacked it.
        self.advertised: Advertised | None = None
        self.unadvertised = 0

    # ---- what arrives

    def on_batch(self, frame: BatchFrame, peer: str, session: Session) -> None:
        """Publications have arrived."""
        batch, origin = frame.batch, peer if peer in self._neighbours else None
        count = batch.count
        if not session.receive(frame, count, self._step.effects):
            return
        ack = PendingAck(session, frame.sequence, count)
        try:
            here, passing = self._routing.arriving(batch, origin)
            if here is not None:
                here.validate_layout()
            if passing is not None and (self._observed or passing.ttl <= 1):
                passing.validate_layout()  # it is going to be looked at, where nobody expects that it is not sound
        except InvalidInput as error:
            # It is settled all the same: whoever sent it has nothing better, and would send it again for ever.
            self._step.effects.append(Reject(peer, "bad-frame", str(error)))
            ack.release()
            return
        if self._modules.has_modules and _is_control(batch):
            self.control_in += count
        else:
            self.rows_in += count
        if passing is not None:
            ack.retain()
            if here is not None and self._modules.watches_passed:
                self._route_apart(passing, here, peer, ack)
            else:
                self._route_or_hold(passing, peer, ack)
        if here is None:
            ack.release()
            return
        lanes = self._lanes.get((origin, batch.tag))
        if lanes is None:
            lanes = self._lanes_of(origin, batch.tag)
        new = here.mark_seen(lanes[0] if lanes and origin is not None else self._seen)
        if new is not None:
            self._follow_first_copies(here, new, peer, ack)
            if not len(new):
                ack.release()
                return
            here = here.take(new)
        if not lanes:
            self._route_or_hold(here, peer, ack)
        else:
            self._route_on_lanes(here, origin, peer, ack, lanes)

    def publish_local(self, batch: Batch, module: str) -> None:
        """A module of this broker publishes."""
        for seen in (self._seen, *self._lanes_of(None, False)):
            batch.mark_seen(seen)
        self._route_or_hold(batch, module, None)

    def on_neighbours_changed(self) -> None:
        """Neighbours come or go."""
        self._lanes.clear()

    def _lanes_of(self, origin: str | None, tag: int) -> list[DedupWindow]:
        size, names = self._seen_size, self._routing.lanes(origin, tag)
        found = self._lanes[origin, tag] = [self._seen_on.setdefault(lane, DedupWindow(size)) for lane in names]
        return found

    def _route_on_lanes(self, batch: Batch, origin: str | None, peer: str, ack: PendingAck, lanes: list[DedupWindow]) -> None:
        """Route what is new on its lane; what has come on another one before goes to no client of this broker again."""
        if origin is None:
            for lane in lanes:
                batch.mark_seen(lane)
            self._route_or_hold(batch, peer, ack)
            return
        new = batch.mark_seen(self._seen)
        if new is None:
            self._route_or_hold(batch, peer, ack)
            return
        self._follow_first_copies(batch, new, peer, ack)
        is_new = np.isin(np.arange(batch.count), new)
        for rows in np.split(np.arange(batch.count), np.flatnonzero(np.diff(is_new)) + 1):  # in their order
            ack.retain()
            self._route_or_hold(batch.take(rows), peer, ack, elsewhere=not is_new[rows[0]])
        ack.release()

    def _route_apart(self, passing: Batch, here: Batch, peer: str, ack: PendingAck) -> None:
        """Route what passes so that modules see each publication come once: those that are looked at here too, they see then."""
        known = set(here.identities())
        only = np.array([row for row, identity in enumerate(passing.identities()) if identity not in known], np.int64)
        both = np.setdiff1d(np.arange(passing.count), only)
        for rows, again in ((only, False), (both, True)):
            if len(rows):
                ack.retain()
                some = passing.take(rows)
                self._route_or_hold(some.next_hop() if again else some, peer, ack, again)
        ack.release()

    def _follow_first_copies(self, batch: Batch, new: NDArray[np.int64], peer: str, ack: PendingAck) -> None:
        """Keep duplicates unsettled as long as the copies that came first are; they are few, so the search may take long.

        A copy from a neighbour does not wait for those that only passed here: it may be one of them, come back.
        """
        known = set(batch.identities()) - set(batch.take(new).identities() if len(new) else ())
        self.duplicates += len(known)
        for other, first in self._under_way(self._sessions):
            if first is None or first is ack or not first.orphaned or (other.has_destinations() and peer in self._neighbours):
                continue
            if not known.isdisjoint(other.identities()) and ack.follow_first_copy(first):
                self._following.append((self._step.now_s, ack, first))
        while self._following and self._following[0][2].acked:
            self._following.popleft()

    # ---- where it goes

    def _route_or_hold(
        self, batch: Batch, peer: str, ack: PendingAck | None, again: bool = False, elsewhere: bool = False
    ) -> None:
        if (not self._sync.unsynced or self._sync.synced_except(peer)) and not (
            self.listens and peer not in self._neighbours and not batch.has_destinations()
        ):
            self._route(batch, peer, ack, again, elsewhere)
        else:
            self._held.append(_Held(batch, peer, ack, self._step.now_s, again, elsewhere))

    def _route(self, batch: Batch, peer: str, ack: PendingAck | None, again: bool, elsewhere: bool) -> None:
        sessions, neighbours, effects = self._sessions, self._neighbours, self._step.effects
        from_neighbour = peer in neighbours
        # What is under way never waits for room between brokers: they might wait for each other in a circle.
        under_way = from_neighbour or (again and batch.has_destinations())
        if self.advertised is not None and not under_way and peer in sessions:
            some = self._only_advertised(self.advertised, batch, peer, ack)
            if some is None:
                return
            batch = some
        after = batch if again else batch.next_hop()
        try:
            forwards = self._routing.route(after, peer if from_neighbour else None)
        except InvalidInput as error:
            effects.append(Reject(peer, "bad-frame" if isinstance(error, WireError) else "not-advertised", str(error)))
            forwards = []
        if elsewhere:
            forwards = [(to, some) for to, some in forwards if to is None or to in neighbours]
        if self._observed:
            self._observe(Routed(batch, peer, forwards, again), after)
        if after.ttl <= 0:
            forwards = list(self._without_the_tired(forwards))
        if ack is not None:
            if not under_way:
                ack.unmatched += _unmatched(after, forwards)
            ack.fan_out(len(forwards))
        for to, some in forwards:
            if to is None:
                self.defer(some, peer, ack, elsewhere)
                continue
            session = sessions.get(to)
            if session is None:
                self._modules.receive(to, some)
                if ack is not None:
                    ack.release()
                continue
            if to not in neighbours:
                session.send(some, ack, effects)
                self.rows_to_clients += some.count
                if self.patience.needed:
                    self.patience.watch(session, self._step.now_s)
                continue
            (session.relay if under_way else session.send)(some, ack, effects)
            if self._modules.has_modules and _is_control(some):
                self.control_out += some.count
            else:
                self.rows_out += some.count

    def _only_advertised(self, advertised: Advertised, batch: Batch, client: str, ack: PendingAck | None) -> Batch | None:
        """The rows that their client has advertised. The others, which no other broker wants, go to nobody; it is told."""
        uncovered = advertised.uncovered(client, batch)
        if uncovered is None:
            return batch
        self.unadvertised += len(uncovered)
        first = shown(batch.take(uncovered[:1]).publishes()[0].publication)
        text = f"publication {first}: expected one within an advertisement of {client!r}; {len(uncovered):,} went to nobody"
        self._step.effects.append(Notify(client, "not-advertised", text, self.unadvertised))
        if ack is not None:
            ack.unmatched += len(uncovered)
        if len(uncovered) < batch.count:
            return batch.take(np.setdiff1d(np.arange(batch.count), uncovered))
        if ack is not None:
            ack.release()
        return None

    def _observe(self, passed: Routed, after: Batch) -> None:
        """Show where a batch goes to those who want to know."""
        if self.story.length and not passed.again:
            self.story.routed(self._step.now_s, passed.peer, after, passed.to)
        if self._modules.watches_passed:
            self._modules.watch(passed)

    def _without_the_tired(self, forwards: list[Forward]) -> Iterator[Forward]:
        """Publications that took too many hops go to clients only."""
        for to, some in forwards:
            alive = some.unexpired() if to in self._neighbours else some
            if alive is not None:
                yield to, alive

    # ---- what is held, and goes on

    def defer(self, what: Batch | Control, peer: str, ack: PendingAck | None, elsewhere: bool = False) -> None:
        """Keep what has nowhere to go at present."""
        self._held.append(_Held(what, peer, ack, self._step.now_s, True, elsewhere))

    def has_deferred_from(self, client: str) -> bool:
        """Whether something waits here that a client published, or said after that."""
        return any(held.peer == client and not _is_bound(held.what) for held in self._held)

    def flush_deferred(self) -> None:
        """Route what was held, as far as it is known now where it goes."""
        held, self._held = self._held, deque()
        for entry in held:
            before = len(self._held)
            self.resume(entry.what, entry.peer, entry.ack, entry.again, entry.elsewhere)
            if len(self._held) > before:
                self._held[-1] = self._held[-1]._replace(since_s=entry.since_s)

    def resume(
        self, what: Batch | Control, peer: str, ack: PendingAck | None, again: bool = True, elsewhere: bool = False
    ) -> None:
        """What was held, or went a way that does not lead on, goes where it can."""
        if not isinstance(what, Control):
            self._route_or_hold(what, peer, ack, again, elsewhere)
            return
        self._tell_again(what, peer, ack)
        if ack is not None:
            ack.release()

    def on_routes_changed(self) -> None:
        """Links, or what others want, have changed: some of what is under way may go where it could not."""
        instead = self._routing.instead()
        if instead is not None:
            self._go_instead(instead)
        if self._held:
            self.flush_deferred()

    def _go_instead(self, instead: Instead) -> None:
        """Send copies of what is under way elsewhere; not to brokers that copies are under way to, or they would be ever more."""
        bound = [(batch, ack) for batch, ack in self._under_way(self._neighbours) if batch.has_destinations()]
        copies: list[tuple[Batch, PendingAck]] = []
        for batch, ack in bound:
            if ack is not None:
                # Rows that only pass, and are not sound, are refused where they are looked at, not by whoever changes ways.
                with suppress(InvalidInput):
                    origin = ack.peer if ack.peer in self._neighbours else None
                    copies += [(some, ack) for some in instead(batch, origin)]
        if not copies:
            return
        known: dict[tuple[int, int], set[Identity]] = {}
        for batch, _ in bound:
            with suppress(InvalidInput):
                _unknown(batch, known)
        for some, ack in copies:
            for new in _unknown(some, known):
                for to, part in self._routing.route(new, None):
                    ack.retain()
                    if to is None:
                        self.defer(part, "", ack)
                    else:
                        self._sessions[to].relay(part, ack, self._step.effects)
                        self.rows_out += part.count

    def was_away(self, away_s: float) -> None:
        """The broker was paused: for what it keeps for others that time does not count."""
        self._held = deque(entry._replace(since_s=entry.since_s + away_s) for entry in self._held)
        self._following = deque((since_s + away_s, ack, first) for since_s, ack, first in self._following)

    def expire_deferred(self) -> None:
        """Let go of what is meant for brokers that could not be reached for too long, and of what waits as long for others."""
        late_s = self._step.now_s - self._config.undeliverable_timeout_s
        while self._following and self._following[0][0] < late_s:
            _, ack, first = self._following.popleft()
            ack.stop_following(first)
        for entry in [entry for entry in self._held if entry.again and entry.since_s < late_s and _is_bound(entry.what)]:
            self._held.remove(entry)
            if entry.ack is not None:
                entry.ack.release()

    # ---- links that are closed

    @property
    def has_orphans(self) -> bool:
        """Whether something waits that was in flight on a link which is closed."""
        return bool(self._orphans)

    def redirect(self, batch: Batch, ack: PendingAck | None) -> None:
        """What was in flight on a link that is closed goes where routing sends it now, or waits until there is a way."""
        if ack is not None:
            self._redirect(_Orphan(batch, ack, self._step.now_s))

    def retry_orphans(self) -> None:
        """Try again what found no way, and give it up after a while."""
        orphans, self._orphans = self._orphans, []
        for orphan in orphans:
            if orphan.since_s < self._step.now_s - self._config.undeliverable_timeout_s:
                self.undeliverable += orphan.batch.count
                orphan.ack.release()
            else:
                self._redirect(orphan)

    def _redirect(self, orphan: _Orphan) -> None:
        batch, ack, since_s = orphan
        forwards: list[Forward] = []
        with suppress(InvalidInput):  # its advertisement is gone: it is of no tree any more
            forwards = self._routing.route(batch, ack.peer if ack.peer in self._neighbours else None)
        gone: set[Identity] = set()
        for to, some in forwards:
            if to is not None and to in self._neighbours:
                ack.retain()
                self._sessions[to].relay(some, ack, self._step.effects)
                self.rows_out += some.count
                gone.update(some.identities())
        left = np.array([row for row, identity in enumerate(batch.identities()) if identity not in gone], np.int64)
        if len(left):
            self._orphans.append(_Orphan(batch.take(left), ack, since_s))
        else:
            ack.release()

    def validate(self) -> None:
        """Check what must always hold."""
        self.patience.validate()
        assert all(held.ack is None or not held.ack.acked or held.ack.expired for held in self._held)
        assert all(not orphan.ack.acked or orphan.ack.expired for orphan in self._orphans)
        times = [since_s for since_s, _, _ in self._following]
        assert times == sorted(times)

    def _under_way(self, peers: dict[str, Session] | dict[str, None]) -> list[tuple[Batch, PendingAck | None]]:
        """The publications that some peers have not settled, and those that are held."""
        sent: list[tuple[Batch, PendingAck | None]] = [
            entry for peer in peers for entry in self._sessions[peer].outbound.batches()
        ]
        return [*sent, *((held.what, held.ack) for held in self._held if not isinstance(held.what, Control))]


def _is_control(batch: Batch) -> bool:
    """Whether modules talk to each other; where there are none, nobody needs to ask."""
    return batch.priority() is Priority.CONTROL


def _unmatched(batch: Batch, forwards: list[Forward]) -> int:
    """How many rows of a client's batch are in no forward; they differ in their sequence numbers."""
    count = batch.count
    for _, some in forwards:
        if some.count == count:
            return 0
    if len(forwards) > 1:
        sequences = np.concatenate([some.sequences() for _, some in forwards])
        sequences.sort()
        return count - 1 - int(np.count_nonzero(sequences[1:] != sequences[:-1]))
    return count - forwards[0][1].count if forwards else count


def _unknown(batch: Batch, known: dict[tuple[int, int], set[Identity]]) -> list[Batch]:
    """The rows of a batch by the brokers they are meant for, as far as that is not known; it is from now on."""
    found: list[Batch] = []
    for number in destination_counts(batch):
        meant, _ = split_local(batch, number)
        assert meant is not None
        there = known.setdefault((number, batch.tag), set())
        identities = list(meant.identities())
        rows = np.array([row for row, identity in enumerate(identities) if identity not in there], np.int64)
        if len(rows):
            there.update(identities)
            some = with_destinations(meant.take(rows), [(number, np.arange(len(rows)))])
            assert some is not None
            found.append(some)
    return found


def _is_bound(what: Batch | Control) -> bool:
    return is_addressed(what) if isinstance(what, Control) else what.has_destinations()
