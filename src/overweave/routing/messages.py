"""Control messages of routing by destination, and their codecs."""

from typing import Annotated

import msgspec

from overweave.batches.destinations import NUMBERS_MAX
from overweave.contract.control_codecs import register
from overweave.contract.wire_ids import decode_id, encode_id
from overweave.language.codec import decode_filter, encode_filter
from overweave.language.headers import Epoch, Header, Origin
from overweave.language.messages import RoutingMessage
from overweave.language.predicates import Filter

_EMPTY = Header()
#: A route in a snapshot: its id, filter, path of clusters, whether it is a backup, and its origin (see `Header`).
SnapshotEntry = tuple[str, Filter, tuple[str, ...], bool, Origin | None]


class LinkState(RoutingMessage, frozen=True, tag="link-state"):
    """The links of the broker ``id`` as it sees them (DEST III-C); it is flooded, and a later one replaces it.

    ``number`` stands for the broker in destination lists. A broker that has just started does not know yet which of its links
    work: these are ``pending``.
    """

    id: str
    number: int
    incarnation: int
    version: int
    up: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    header: Header = _EMPTY


class StateSnapshot(RoutingMessage, frozen=True, tag="standing"):
    """The full state of the broker ``id`` for another one: its advertisements, or its subscriptions that intersect the other's.

    It replaces all updates up to the header's epoch. The sender ``asks`` for the other's advertisements in return. Subscriptions
    answer advertisements: ``answers`` are the ids of these with the epochs of their updates, and only intersecting subscriptions
    are replaced.
    """

    id: str
    entries: tuple[SnapshotEntry, ...]
    header: Header = _EMPTY
    asks: bool = False
    answers: tuple[tuple[str, Epoch], ...] | None = None


class _LinkStateBody(msgspec.Struct, frozen=True, array_like=True):
    """The body of a link state."""

    number: Annotated[int, msgspec.Meta(ge=0, lt=NUMBERS_MAX)]
    incarnation: int
    version: int
    up: tuple[str, ...]
    pending: tuple[str, ...]


class _StateSnapshotBody(msgspec.Struct, frozen=True, array_like=True):
    """The body of a state snapshot, with encoded filters, and with generations beside stable ids."""

    entries: tuple[tuple[str, int, bytes, tuple[str, ...], bool, Origin | None], ...]
    asks: bool
    answers: tuple[tuple[str, int, Epoch], ...] | None


_link_state_decoder = msgspec.msgpack.Decoder(_LinkStateBody)
_snapshot_decoder = msgspec.msgpack.Decoder(_StateSnapshotBody)


def _encode_link_state(state: LinkState) -> bytes:
    return msgspec.msgpack.encode(_LinkStateBody(state.number, state.incarnation, state.version, state.up, state.pending))


def _decode_link_state(id: str, header: Header, body: bytes) -> LinkState:
    found = _link_state_decoder.decode(body)
    return LinkState(id, found.number, found.incarnation, found.version, found.up, found.pending, header)


def _encode_snapshot(snapshot: StateSnapshot) -> bytes:
    entries = tuple((*encode_id(id), encode_filter(filter), *rest) for id, filter, *rest in snapshot.entries)
    answers = None if snapshot.answers is None else tuple((*encode_id(id), epoch) for id, epoch in snapshot.answers)
    return msgspec.msgpack.encode(_StateSnapshotBody(entries, snapshot.asks, answers))  # type: ignore[arg-type]


def _decode_snapshot(id: str, header: Header, body: bytes) -> StateSnapshot:
    found = _snapshot_decoder.decode(body)
    entries = tuple((decode_id(*entry[:2]), decode_filter(entry[2]), *entry[3:]) for entry in found.entries)
    answers = None if found.answers is None else tuple((decode_id(*answer[:2]), answer[2]) for answer in found.answers)
    return StateSnapshot(id, entries, header, found.asks, answers)


register("link-state", LinkState, _encode_link_state, _decode_link_state)
register("state-snapshot", StateSnapshot, _encode_snapshot, _decode_snapshot)
