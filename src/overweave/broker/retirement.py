"""Retirement of links: no new publications, and a close once those in flight are settled on both sides.

Either end may be the initiator. Both stop using the link and send `LinkRetired`. An end whose messages are all settled sends it
again, as drained. When both are drained, the initiator closes the link; after `undeliverable_timeout_s` it does so anyway.
"""

from dataclasses import dataclass

from overweave.broker.context import BrokerContext
from overweave.broker.recovery import Recovery
from overweave.contract.effects import CloseLink
from overweave.contract.frames import LinkRetired

#: The timer at which links that have not drained are closed.
RETIRE = "retire"


@dataclass(slots=True)
class _Retired:
    #: When it is closed, drained or not.
    deadline_s: float
    #: Whether this end began the retirement, and closes the link.
    is_initiator: bool
    drained: bool = False
    peer_drained: bool = False
    #: Whether this end closes the link now.
    closing: bool = False


class LinkRetirement:
    """The retired links of one broker."""

    def __init__(self, context: BrokerContext, recovery: Recovery) -> None:
        self._context, self._recovery = context, recovery
        #: The state of each retired link, by neighbour.
        self.links: dict[str, _Retired] = {}

    def __contains__(self, neighbour: str) -> bool:
        return neighbour in self.links

    def retire(self, neighbour: str, is_initiator: bool = True) -> None:
        """Retire the link to a neighbour, unless it is."""
        if neighbour not in self._context.peers.neighbours or neighbour in self.links:
            return
        deadline_s = self._context.step.now_s + self._context.config.undeliverable_timeout_s
        self.links[neighbour] = _Retired(deadline_s, is_initiator)
        self._send(neighbour, LinkRetired())
        self._recovery.on_link_draining(neighbour)
        self._context.timers.set_at(RETIRE, deadline_s)

    def on_message(self, neighbour: str, message: LinkRetired) -> None:
        """The other end retires the link, or is drained."""
        self.retire(neighbour, is_initiator=False)
        self.links[neighbour].peer_drained |= message.drained

    def on_link_up(self, neighbour: str) -> None:
        """A retired link has a new session: its other end may have restarted."""
        link = self.links[neighbour]
        link.drained = link.peer_drained = False
        self._send(neighbour, LinkRetired())

    def check(self) -> None:
        """Announce drained links, and close those that are drained on both sides."""
        for neighbour, link in self.links.items():
            if not link.drained and not self._context.peers.sessions[neighbour].outbound.unsettled_entries():
                link.drained = True
                self._send(neighbour, LinkRetired(drained=True))
                self._close_drained(neighbour, link)
            elif link.drained:
                self._close_drained(neighbour, link)

    def on_timer(self) -> None:
        """Close links that have not drained in time."""
        now_s = self._context.step.now_s
        for neighbour, link in self.links.items():
            if link.deadline_s <= now_s:
                self._context.step.effects.append(CloseLink(neighbour))
        later = [link.deadline_s for link in self.links.values() if link.deadline_s > now_s]
        if later:
            self._context.timers.set_at(RETIRE, min(later))

    def forget(self, neighbour: str) -> None:
        """The link is closed."""
        self.links.pop(neighbour, None)

    def validate(self) -> None:
        """Check the invariants: links are closed, drained by both ends or not."""
        context = self._context
        assert self.links.keys() <= context.peers.neighbours.keys()
        assert RETIRE in context.timers.due_s or all(link.deadline_s <= context.step.now_s for link in self.links.values())
        assert not any(
            link.drained and link.peer_drained and link.is_initiator and not link.closing for link in self.links.values()
        )

    def _close_drained(self, neighbour: str, link: _Retired) -> None:
        if link.peer_drained and link.is_initiator and not link.closing:
            link.closing = True
            self._context.step.effects.append(CloseLink(neighbour))

    def _send(self, neighbour: str, message: LinkRetired) -> None:
        self._context.peers.sessions[neighbour].send_control(message, self._context.step.effects)
