"""The guests of one broker: the brokers that have joined at it without being in the overlay, or the one that it has joined at."""

from collections.abc import Iterable

from overweave.broker.context import BrokerContext
from overweave.contract.effects import CloseLink
from overweave.contract.overlay_state import OverlayState

#: The timer at which guests that are away are removed, and how long they may be away.
GUESTS, _AWAY_S = "guests", 30.0


class Guests(dict[str, None]):
    """The guests by name, in the order in which they have joined.

    A broker of the overlay removes a guest that is away for too long, as a session that expires: publications would wait for it.
    The guest joins again when it returns. A guest never removes its contact.
    """

    def __init__(self, context: BrokerContext, ids: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(ids))
        self._context = context
        #: The guests that are not connected, and since when.
        self._away: dict[str, float] = {}

    def start(self) -> None:
        """Those of the journal are not connected yet."""
        for guest in self:
            self.on_disconnected(guest)

    def on_connected(self, peer: str) -> None:
        """A guest is back."""
        self._away.pop(peer, None)

    def on_disconnected(self, peer: str) -> None:
        """A guest is away from now on."""
        if peer in self:
            self._away[peer] = self._context.step.now_s
            self._context.timers.set(GUESTS, _AWAY_S)

    def remove(self, peer: str) -> bool:
        """Forget a guest; whether it was one."""
        self._away.pop(peer, None)
        return self.pop(peer, self) is None

    def expire(self, state: OverlayState) -> None:
        """Close the links to guests that have been away for too long, unless they or this broker are on the way to be members."""
        now_s, members = self._context.step.now_s, {id for tree in state for id in tree.brokers}
        if all(self._context.id in tree.brokers for tree in state):
            for guest, since_s in self._away.items():
                if since_s + _AWAY_S <= now_s and guest not in members:
                    self._context.step.effects.append(CloseLink(guest))
        if self._away:
            later = [since_s + _AWAY_S for since_s in self._away.values() if since_s + _AWAY_S > now_s]
            self._context.timers.set_at(GUESTS, min(later, default=now_s + _AWAY_S))

    def validate(self) -> None:
        """Check the invariants."""
        assert self._away.keys() <= self.keys()
        assert not self._away or GUESTS in self._context.timers.due_s
