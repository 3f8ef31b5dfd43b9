"""Replies to advertisements: which peers of a cluster still owe one, and up to which epoch replies count."""

from collections.abc import Iterable, Mapping

from overweave.language.headers import NEVER, Epoch


class Replies:
    """The replies to the advertisements of one broker, by advertisement and peer. Epochs are those of its own updates."""

    def __init__(self) -> None:
        #: The epoch of the update that sent each advertisement first, as it is now.
        self._advertised_since: dict[str, Epoch] = {}
        self._awaiting_reply: dict[str, dict[str, Epoch]] = {}
        #: The epochs of the latest replies, as the peers number them.
        self._reply_epochs: dict[str, dict[str, Epoch]] = {}
        #: The epoch of the last snapshot to each peer; replies to earlier updates do not count.
        self._snapshot_epochs: dict[str, Epoch] = {}

    @property
    def complete(self) -> bool:
        """Whether no reply is outstanding."""
        return not self._awaiting_reply

    def awaits(self, id: str) -> bool:
        """Whether a reply to an advertisement is outstanding."""
        return id in self._awaiting_reply

    def advertised(self, id: str, epoch: Epoch) -> None:
        """An advertisement was sent, new or changed."""
        self._advertised_since[id] = epoch
        self._reply_epochs.pop(id, None)

    def withdrawn(self, id: str) -> None:
        """An advertisement was withdrawn."""
        del self._advertised_since[id]
        self._awaiting_reply.pop(id, None)
        self._reply_epochs.pop(id, None)

    def expect(self, id: str, peers: Iterable[str], epoch: Epoch) -> None:
        """Await replies of some peers to an update of this epoch or later."""
        expected = dict.fromkeys(peers, epoch)
        if expected:
            self._awaiting_reply.setdefault(id, {}).update(expected)

    def expect_all(self, ids: Iterable[str], peers: list[str], epoch: Epoch) -> None:
        """Await replies of some peers to a snapshot."""
        self._snapshot_epochs.update(dict.fromkeys(peers, epoch))
        for id in ids:
            self.expect(id, peers, epoch)

    def is_current(self, id: str, peer: str, asked: Epoch) -> bool:
        """Whether a reply to an update of this epoch is about an advertisement as it is now."""
        since = self._advertised_since.get(id)
        return since is not None and asked >= max(since, self._snapshot_epochs.get(peer, NEVER))

    def accept(self, id: str, peer: str, epoch: Epoch) -> None:
        """Note the epoch of a current reply."""
        known = self._reply_epochs.setdefault(id, {})
        known[peer] = max(epoch, known.get(peer, epoch))

    def received(self, id: str, peer: str, asked: Epoch) -> None:
        """A peer has replied to an update of this epoch."""
        awaiting = self._awaiting_reply.get(id, {})
        if peer in awaiting and awaiting[peer] <= asked:
            del awaiting[peer]
            if not awaiting:
                del self._awaiting_reply[id]

    def is_newer(self, ids: Iterable[str], peer: str, epoch: Epoch) -> bool:
        """Whether an update of a peer is later than its reply to one of these advertisements."""
        return any(self._reply_epochs.get(id, {}).get(peer, NEVER) < epoch for id in ids)

    def forget(self, peer: str, epoch: Epoch) -> None:
        """Await nothing of a peer that was sent up to this epoch."""
        for id in list(self._awaiting_reply):
            self.received(id, peer, epoch)

    def validate(self, advertisements: Mapping[str, object], epoch: Epoch) -> None:
        """Check the invariants."""
        assert advertisements.keys() == self._advertised_since.keys()
        assert self._reply_epochs.keys() <= advertisements.keys()
        assert self._awaiting_reply.keys() <= advertisements.keys()
        assert all(since <= epoch for since in self._advertised_since.values())
