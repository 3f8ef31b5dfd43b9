"""Updates of other brokers in a cluster: how they change the remote tables, and the replies that they get (DEST III-A)."""

from overweave.language.headers import Epoch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Send
from overweave.routing.cluster_state import ClusterState, any_intersects, snapshot_entries
from overweave.routing.messages import SnapshotEntry, StateSnapshot
from overweave.routing.multicast import Multicast
from overweave.routing.remote import RouteEntry, Tombstones

#: The most updates that are buffered of brokers without a link state.
_OUT_OF_ORDER_MAX = 10_000


class ClusterUpdates:
    """The updates that one broker receives in one cluster."""

    def __init__(self, state: ClusterState, multicast: Multicast) -> None:
        self._state, self._multicast = state, multicast
        #: The advertisements that this broker has not replied to, by peer, with the epochs of their updates.
        self._replies_due: dict[str, dict[str, Epoch]] = {}
        self._out_of_order: list[Control] = []

    def apply(self, message: Control) -> list[Send]:
        """Apply an update; one of an unknown peer, or of an unknown incarnation of a peer, waits for its link state.

        Applied before, a snapshot would be missed when the link state asks for it: both ends send one then, and none again.
        """
        source, epoch = str(message.header.source), message.header.epoch
        known = self._state.known_peers.get(source)
        if known is None or epoch.incarnation > known:
            self._out_of_order = [*self._out_of_order[-_OUT_OF_ORDER_MAX + 1 :], message]
            return []
        match message:
            case Advertise():
                return self._apply_advertise(message, source, epoch)
            case Unadvertise():
                self._apply_unadvertise(message, source, epoch)
            case Subscribe():
                self._apply_subscribe(message, source, epoch)
            case Unsubscribe():
                self._apply_unsubscribe(message, source, epoch)
            case StateSnapshot(answers=None):
                return self._apply_snapshot(message, source, epoch)
            case StateSnapshot():
                self._apply_reply(message, source, epoch)
        return []

    def apply_out_of_order(self) -> list[Send]:
        """Apply the buffered updates, after peers have become known."""
        buffered, self._out_of_order = self._out_of_order, []
        return [send for message in buffered for send in self.apply(message)]

    def forget_replies(self, peer: str) -> None:
        """Owe nothing to a peer."""
        self._replies_due.pop(peer, None)

    def replies(self) -> list[Send]:
        """The replies to peers as far as the subscriptions for their advertisements are known."""
        return [send for source in list(self._replies_due) for send in self._reply(source)]

    def send_snapshot(self, brokers: list[str], asks: bool) -> list[Send]:
        """All local advertisements to some brokers, who reply with their subscriptions."""
        state = self._state
        snapshot = StateSnapshot(state.topology.broker, snapshot_entries(state.local_advertisements), asks=asks)
        sends = self._multicast.send(snapshot, brokers)
        state.replies.expect_all(state.local_advertisements, brokers, self._multicast.epoch)
        return sends

    def _apply_advertise(self, message: Advertise, source: str, epoch: Epoch) -> list[Send]:
        state, id = self._state, message.id
        entry = RouteEntry(message.filter, message.header.path, False, message.header.origin, epoch)
        if state.withdrawals.advertisements.covers(id, entry) or not state.advertisements.add(source, id, entry):
            return []
        if state.cluster is not None:
            return self._owe(source, [id], epoch)
        return [
            send
            for subscription, local in state.local_subscriptions.items()
            if entry.intersects(local)
            for send in self._multicast.send(Subscribe(subscription, local.filter), (source,), local)
        ]

    def _apply_unadvertise(self, message: Unadvertise, source: str, epoch: Epoch) -> None:
        state, origin = self._state, message.header.origin
        if origin is not None and state.withdrawals.advertisements.add(message.id, origin):
            state.events.advertisement_changed(source, message.id, None)
        state.advertisements.remove(source, message.id, epoch)

    def _apply_subscribe(self, message: Subscribe, source: str, epoch: Epoch) -> None:
        state, id, header = self._state, message.id, message.header
        entry = RouteEntry(message.filter, header.path, header.backup, header.origin, epoch)
        if state.withdrawals.subscriptions.covers(id, entry):
            state.subscriptions.remove(source, id, epoch)
            return
        intersecting = [of for of, advertisement in state.local_advertisements.items() if advertisement.intersects(entry)]
        # If later replies cover all these advertisements, they contained this subscription, or it is withdrawn.
        if state.replies.is_newer(intersecting, source, epoch):
            state.subscriptions.add(source, id, entry)
        elif not intersecting:
            state.subscriptions.remove(source, id, epoch)  # its earlier version is void all the same

    def _apply_unsubscribe(self, message: Unsubscribe, source: str, epoch: Epoch) -> None:
        state, origin = self._state, message.header.origin
        if origin is not None and state.withdrawals.subscriptions.add(message.id, origin):
            state.events.subscription_changed(source, message.id, None)
        state.subscriptions.remove(source, message.id, epoch)

    def _apply_snapshot(self, message: StateSnapshot, source: str, epoch: Epoch) -> list[Send]:
        state = self._state
        is_mutual = source in state.unsynced  # then both have sent a snapshot
        if epoch.incarnation >= state.known_peers[source]:  # else it is of an earlier incarnation
            state.unsynced.discard(source)
        state.advertisements.replace(source, _standing(message.entries, state.withdrawals.advertisements), epoch)
        sends = self._owe(source, [id for id, *_ in message.entries], epoch)
        if message.asks and (state.local_advertisements or state.cluster is not None or not is_mutual):
            sends += self.send_snapshot([source], asks=False)
        return sends

    def _apply_reply(self, message: StateSnapshot, source: str, epoch: Epoch) -> None:
        """Replace the subscriptions that a peer has for some advertisements; these may be withdrawn or changed by now."""
        state, answers = self._state, message.answers or ()
        current = {
            id: state.local_advertisements[id]
            for id, asked in answers
            if id in state.local_advertisements and state.replies.is_current(id, source, asked)
        }
        standing = _standing(message.entries, state.withdrawals.subscriptions)
        entries = [entry for entry in standing if any_intersects(current, RouteEntry(*entry[1:]))]
        state.subscriptions.replace(source, entries, epoch, lambda known: any_intersects(current, known))
        for id in current:
            state.replies.accept(id, source, epoch)
        for id, asked in answers:
            state.replies.received(id, source, asked)

    def _owe(self, source: str, ids: list[str], epoch: Epoch) -> list[Send]:
        due = self._replies_due.setdefault(source, {})
        for id in ids:
            due[id] = max(epoch, due.get(id, epoch))
        return self.replies()

    def _reply(self, source: str) -> list[Send]:
        state, due = self._state, self._replies_due[source]
        advertised = state.advertisements.by_broker(source)
        ready = {id: epoch for id, epoch in due.items() if id not in advertised or state.events.is_known(id, advertised[id])}
        self._replies_due[source] = {id: epoch for id, epoch in due.items() if id not in ready}
        if not self._replies_due[source]:
            del self._replies_due[source]
        replied = {id: advertised[id] for id in ready if id in advertised}
        if not replied:
            return []
        local = {id: entry for id, entry in state.local_subscriptions.items() if any_intersects(replied, entry)}
        answers = tuple((id, ready[id]) for id in replied)
        return self._multicast.send(StateSnapshot(state.topology.broker, snapshot_entries(local), answers=answers), (source,))


def _standing(entries: tuple[SnapshotEntry, ...], withdrawn: Tombstones) -> list[SnapshotEntry]:
    """The entries of a snapshot that clients have not withdrawn."""
    return [entry for entry in entries if not withdrawn.covers(entry[0], RouteEntry(*entry[1:]))]
