"""Effects: all that a core can ask a driver to do. The driver carries them out in the order given."""

from collections.abc import Sequence

import msgspec

from overweave.batches.base import Batch
from overweave.batches.trace_fields import Columns
from overweave.contract.frames import Frame
from overweave.contract.overlay_state import OverlayState
from overweave.contract.records import Decision, Record, Statement
from overweave.overlay.parts import LinkKind

#: Subscriptions with what each of them gets.
Parts = Sequence[tuple[str, Batch]]


class SendFrame(msgspec.Struct, frozen=True, gc=False):
    """Put a frame on the connection to a peer; it may get lost, the core knows how to deal with that."""

    peer: str
    frame: Frame


class SetTimer(msgspec.Struct, frozen=True):
    """Fire a timer at a time; one of the same name that was set before is forgotten."""

    name: str
    at_s: float


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Write to the journal what must survive a crash (None: no longer); `Persisted` says when it is durable."""

    key: tuple[str, str]
    value: object


class Rejection(msgspec.Struct, frozen=True):
    """Tell the application that the broker has not accepted an advertisement or a subscription, or the ``withdrawal`` of one.

    Effect of a client's core.
    """

    id: str
    code: str
    text: str
    withdrawal: bool


class Deliver(msgspec.Struct, frozen=True):
    """Hand publications to the application (effects of a client's core): what each of some subscriptions gets."""

    parts: Parts


class Trace(msgspec.Struct, frozen=True, gc=False):
    """A row for the trace."""

    record: Record


class TraceColumns(msgspec.Struct, frozen=True):
    """Many rows for the trace."""

    columns: Columns


class TraceStatement(msgspec.Struct, frozen=True, gc=False):
    """A row for the trace of statements."""

    statement: Statement


class TraceDecision(msgspec.Struct, frozen=True):
    """A row for the trace of decisions, and a line for the log."""

    decision: Decision


class Reject(msgspec.Struct, frozen=True):
    """Send a peer an error with a code and a text, and close its connection.

    ``forget``: the core has removed the peer, and dropped ``rows`` publications for it; the driver removes it too.
    """

    peer: str
    code: str
    text: str
    rows: int = 0
    forget: bool = False


class Notify(msgspec.Struct, frozen=True):
    """Tell a client what it did wrong, by a code and a text, and go on; ``number`` counts up from one to the next."""

    peer: str
    code: str
    text: str
    number: int


class OpenLink(msgspec.Struct, frozen=True):
    """Open a link to another broker of the network, at an address if it is not in the network file."""

    peer: str
    kind: LinkKind = LinkKind.PRIMARY
    url: str = ""


class CloseLink(msgspec.Struct, frozen=True):
    """Close the link to a neighbour permanently: both ends get `PeerLeft`."""

    peer: str


class RetireLink(msgspec.Struct, frozen=True):
    """Retire the link to a neighbour: no new publications, and `CloseLink` once those in flight are settled on both sides.

    Output of modules and routing protocols; the core performs it.
    """

    peer: str


class Restart(msgspec.Struct, frozen=True):
    """Others know an ``incarnation`` of this broker's past that is not before its own (its clock went back): start again above
    it, with the journal.
    """

    incarnation: int


class Attach(msgspec.Struct, frozen=True):
    """Connect to another broker too; `AttachFailed` says that it has no permitted address. Effect of a client's core."""

    peer: str
    #: The connection of the broker that ordered it: its addresses are valid for this.
    source: str = ""


class Detach(msgspec.Struct, frozen=True):
    """Close the connection to a broker permanently: nothing of this client is left there. Effect of a client's core."""

    peer: str


class MigrationEnded(msgspec.Struct, frozen=True):
    """The migration of a client, ordered by `MigrateClient`, is complete, or the client stays because of an ``error``."""

    token: str
    client: str
    error: str | None


class OverlayChanged(msgspec.Struct, frozen=True):
    """The broker has adopted a state of the overlay: other members, at other addresses."""

    state: OverlayState


class ModuleAnswer(msgspec.Struct, frozen=True):
    """The answer of a module to a request of an operator, or a part of it: ``more`` parts follow."""

    token: str
    body: bytes = b""
    error: str | None = None
    more: bool = False


Effect = (
    SendFrame
    | SetTimer
    | Persist
    | Rejection
    | Deliver
    | Trace
    | TraceColumns
    | TraceStatement
    | TraceDecision
    | Reject
    | Notify
    | OpenLink
    | CloseLink
    | Restart
    | Attach
    | Detach
    | MigrationEnded
    | OverlayChanged
    | ModuleAnswer
)
